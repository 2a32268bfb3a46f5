"""A reward to its record, keyed by the alias of what it rewards."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from ebbtide_platform.doors.intake.drafts import Draft, Names, canonical_bytes, out_record
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.sealing.identity import alias_id, event_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import REWARDS
from ebbtide_schemas.events import Reward, RewardTarget
from ebbtide_schemas.records import RewardRecord
from ebbtide_schemas.validation import event_time


def draft_reward(reward: Reward, names: Names, sealer: Sealer) -> Draft:
    """A reward that came by itself.

    Its reason is about nobody that is known here, so the day's key seals it, and it is unreadable after 21 days.
    """
    record = reward_record(reward, event_id(names.key, reward.id), names)

    def seal() -> tuple[OutRecord, ...]:
        if reward.reason is None:
            return (reward_out(record, names),)
        reason = sealer.seal_quarantine(names.tenant, record.event, reward.reason.encode(), names.received_ms)
        return (reward_out(msgspec.structs.replace(record, reason=reason), names),)

    return Draft(record.event, record.digest, seal)


def reward_record(reward: Reward, event: str, names: Names) -> RewardRecord:
    """The record of a reward without its reason.

    Raises:
        InvalidInput: the reward has no canonical form.
    """
    event_ms, suspect = event_time(reward.time, names.received_ms)
    alias = _alias(reward.target, names.key)
    return RewardRecord(
        event=event,
        tenant=names.tenant,
        alias=alias,
        value=reward.value,
        name=reward.name,
        source=reward.source,
        received_ms=names.received_ms,
        event_ms=event_ms,
        time_suspect=suspect,
        supersedes=None if reward.supersedes is None else event_id(names.key, reward.supersedes),
        trajectory=alias if reward.target.trajectory is not None else None,
        digest=hmac.digest(names.key, b"reward\0" + canonical_bytes(reward, "$"), hashlib.sha256).hex(),
    )


def reward_out(record: RewardRecord, names: Names) -> OutRecord:
    """The record as it is written."""
    return out_record(REWARDS, record.alias, "reward", record, record.event, names)


def _alias(target: RewardTarget, key: bytes) -> str:
    if target.correlation is not None:
        return alias_id(key, f"correlation:{target.correlation.kind}", target.correlation.value)
    for kind in ("trajectory", "step", "response"):
        if (value := getattr(target, kind)) is not None:
            return alias_id(key, kind, value)
    raise AssertionError("a checked reward has a target")
