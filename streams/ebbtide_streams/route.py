"""Brings rewards to their trajectories: by name at once, through an alias as soon as it is known.

Both inputs are keyed by alias, so a reward and the alias it waits for meet in one partition. A reward for an
outside id that several trajectories carry goes to each of them, whatever comes first. Rows are kept by tenant,
so that what one tenant sends never meets, and never holds up, what another one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ebbtide_platform.codec import decode_any, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.topics import ALIASES, LOG_MS, REWARDS, ROUTED, Topic
from ebbtide_schemas.events import RewardSource
from ebbtide_schemas.records import AliasRecord, RewardRecord
from ebbtide_streams.context import StageContext
from ebbtide_streams.state.rows import get_row, key_of, pack, put_row, rows_of, unpack

DROPPED_PER_RECORD = 2
"""Faster than rows can be added, so that what is out of date never piles up."""

_ALIAS = b"a"
_REWARD = b"r"
_EXPIRY = b"x"
_TIME_BYTES = 8


class _Alias(msgspec.Struct, array_like=True, frozen=True):
    """What an alias means; its key says which one, whose, and the trajectory."""

    step: bytes | None


class _Reward(msgspec.Struct, array_like=True, frozen=True):
    """A reward without its reason, which is personal, sealed and long, and which no later stage reads."""

    value: float
    name: str
    source: RewardSource
    received_ms: int
    event_ms: int | None
    time_suspect: bool
    digest: str
    supersedes: bytes | None
    routed: bool
    """It named its trajectory itself and waits for no alias."""


class RouteStage:
    """Aliases and rewards to routed rewards. The same reward id with another content is `Poison`."""

    name: ClassVar[str] = "route"
    inputs: ClassVar[tuple[Topic, ...]] = (ALIASES, REWARDS)

    def __init__(self, partition: int, context: StageContext) -> None:
        self._partition = partition
        self._context = context

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Nothing is cheaper for a whole batch."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Keep the half that came, and emit every pair that it completes."""
        found = decode_any(record.value)
        self._drop_expired(record.timestamp_ms, tx)
        if isinstance(found, AliasRecord):
            self._take_alias(found, tx)
        elif isinstance(found, RewardRecord):
            self._take_reward(found, tx)
        else:
            raise Poison("unexpected_record_type")

    def _take_alias(self, alias: AliasRecord, tx: StageTransaction) -> None:
        key = key_of(_ALIAS, alias.alias, alias.tenant, alias.trajectory)
        if tx.get(key) is not None:
            return
        row = _Alias(None if alias.step is None else pack(alias.step))
        _keep(tx, key, row, alias.received_ms)
        for event, reward in rows_of(tx, key_of(_REWARD, alias.alias, alias.tenant), _Reward):
            if not reward.routed:
                _emit(_record(alias.alias, alias.tenant, unpack(event), reward), alias.trajectory, row, tx)

    def _take_reward(self, reward: RewardRecord, tx: StageTransaction) -> None:
        key = key_of(_REWARD, reward.alias, reward.tenant, reward.event)
        known = get_row(tx, key, _Reward)
        if known is not None:
            if known.digest != reward.digest:
                raise Poison("conflict")
            return
        _keep(tx, key, _row(reward), reward.received_ms)
        slim = msgspec.structs.replace(reward, reason=())
        if reward.trajectory is not None:
            tx.emit(_output(slim))
            return
        for trajectory, alias in rows_of(tx, key_of(_ALIAS, reward.alias, reward.tenant), _Alias):
            _emit(slim, unpack(trajectory), alias, tx)

    def _drop_expired(self, now_ms: int, tx: StageTransaction) -> None:
        """A reward or alias waits for its other half as long as the log keeps it."""
        for key, _ in list(tx.scan(_EXPIRY, limit=DROPPED_PER_RECORD)):
            kept_ms = int.from_bytes(key[1 : 1 + _TIME_BYTES], "big")
            if kept_ms + LOG_MS > now_ms:
                return
            tx.delete(key[1 + _TIME_BYTES :])
            tx.delete(key)


def _keep(tx: StageTransaction, key: bytes, row: msgspec.Struct, received_ms: int) -> None:
    put_row(tx, key, row)
    tx.put(_EXPIRY + received_ms.to_bytes(_TIME_BYTES, "big") + key, b"")


def _row(reward: RewardRecord) -> _Reward:
    return _Reward(
        value=reward.value,
        name=reward.name,
        source=reward.source,
        received_ms=reward.received_ms,
        event_ms=reward.event_ms,
        time_suspect=reward.time_suspect,
        digest=reward.digest,
        supersedes=None if reward.supersedes is None else pack(reward.supersedes),
        routed=reward.trajectory is not None,
    )


def _record(alias: str, tenant: str, event: str, row: _Reward) -> RewardRecord:
    return RewardRecord(
        event=event,
        tenant=tenant,
        alias=alias,
        value=row.value,
        name=row.name,
        source=row.source,
        received_ms=row.received_ms,
        event_ms=row.event_ms,
        time_suspect=row.time_suspect,
        digest=row.digest,
        supersedes=None if row.supersedes is None else unpack(row.supersedes),
    )


def _emit(reward: RewardRecord, trajectory: str, alias: _Alias, tx: StageTransaction) -> None:
    step = None if alias.step is None else unpack(alias.step)
    tx.emit(_output(msgspec.structs.replace(reward, trajectory=trajectory, step=step)))


def _output(reward: RewardRecord) -> OutRecord:
    assert reward.trajectory is not None
    stamped = headers(
        event=reward.event, kind="reward", source=RouteStage.name, time_ms=reward.received_ms, tenant=reward.tenant
    )
    return OutRecord(ROUTED.name, reward.trajectory.encode(), encode(reward), tuple(stamped))
