"""What a history came to, as plain data: what each trajectory shows, why it may or may not, and what is curated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.codec import decode
from ebbtide_platform.doors.curated import MAX_PAGE_RECORDS, CuratedDoor
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import Erased, rendered_space
from ebbtide_platform.sealing.identity import trajectory_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import DECISIONS, GROUPS, QUARANTINE, SHARED, TRAJECTORIES, curated
from ebbtide_schemas.events import Segment
from ebbtide_schemas.messages import message_of
from ebbtide_schemas.records import (
    Chain,
    DecisionRecord,
    GroupRecord,
    QuarantineRecord,
    RenderedRef,
    SettledRecord,
)
from golden.acts import Act, Post
from golden.platform_in_memory import Platform
from support.doors import KnownNewest

Names = Mapping[str, str]
"""``tenant/trajectory`` as the history calls it, by the log's id."""


def names_of(acts: Sequence[Act], door: MemoryKeyDoor) -> Names:
    """The names of all trajectories whose steps are sent."""
    sent = [(act.tenant, json.loads(act.event).get("trajectory")) for act in acts if isinstance(act, Post)]
    return {trajectory_id(door.identity_key(tenant), name): f"{tenant}/{name}" for tenant, name in sent if name}


def outcome(platform: Platform, names: Names) -> dict[str, Any]:
    """Everything that must be the same for ever; ids and digests too, since a change of them is a new revision."""
    settled = [decode(record.value, SettledRecord) for record in platform.log.records(TRAJECTORIES)]
    decisions = [decode(record.value, DecisionRecord) for record in platform.log.records(DECISIONS)]
    newest = {names[record.trajectory]: record for record in settled}
    told: dict[str, list[str]] = {}
    for decision in decisions:
        said = " ".join((decision.verdict, *decision.reasons))
        told.setdefault(names[decision.settled.trajectory], []).append(f"{decision.settled.revision} {said}")
    return {
        "trajectories": {
            name: _trajectory(record, platform) | {"told": told[name]} for name, record in sorted(newest.items())
        },
        "groups": _groups(platform.log, names),
        "quarantine": sorted(
            " ".join((record.stage, record.reason, record.topic))
            for record in (decode(record.value, QuarantineRecord) for record in platform.log.records(QUARANTINE))
        ),
        "curated": curated_of(platform.log, platform.door),
    }


def curated_of(log: MemoryLog, door: MemoryKeyDoor) -> dict[str, list[Any]]:
    """What a consumer of each tenant reads from the beginning."""
    log.create_topics([*SHARED, *map(curated, door.tenants())])
    groups = [decode(record.value, GroupRecord) for record in log.records(GROUPS)]
    index = KnownNewest(groups={record.group.id: record.state for record in groups})
    reader = CuratedDoor(log.follow, Sealer(door), index)
    try:
        pages = {tenant: reader.page(tenant, "", "", MAX_PAGE_RECORDS, 0.0) for tenant in door.tenants()}
    finally:
        reader.close()
    return {tenant: [_without_cursor(line) for line in page.lines] for tenant, page in pages.items()}


def _without_cursor(line: bytes) -> dict[str, Any]:
    item: dict[str, Any] = msgspec.json.decode(line)
    del item["cursor"]
    return item


def _trajectory(settled: SettledRecord, platform: Platform) -> dict[str, Any]:
    return {
        "revision": settled.revision,
        "digest": settled.digest,
        "root": settled.root,
        "steps": settled.steps,
        "end": settled.end,
        "level": settled.level,
        "flags": list(settled.flags),
        "holes": settled.holes,
        "missing_parents": settled.missing_parents,
        "binary": settled.binary,
        "redaction": settled.redaction,
        "findings": settled.findings,
        "rewards": [msgspec.to_builtins(reward) for reward in settled.rewards],
        "chains": [_chain(chain, settled, platform) for chain in settled.chains],
    }


def _chain(chain: Chain, settled: SettledRecord, platform: Platform) -> dict[str, Any]:
    return {
        "sample": chain.sample,
        "rollout_weight": chain.rollout_weight,
        "level": chain.level,
        "messages": [_message(ref, settled, platform) for ref in chain.segments],
    }


def _message(ref: RenderedRef, settled: SettledRecord, platform: Platform) -> dict[str, Any]:
    if ref.hole:
        return {"role": ref.role, "hole": True}
    space = rendered_space(settled.revision)
    plain = platform.sealer.open(platform.rendered.chunks(settled.trajectory, space, ref.segment))
    assert not isinstance(plain, Erased)
    return message_of(msgspec.json.decode(plain, type=Segment)) | ({"trained": True} if ref.trained else {})


def _groups(log: MemoryLog, names: Names) -> dict[str, Any]:
    newest = {
        record.group.id: record for record in (decode(record.value, GroupRecord) for record in log.records(GROUPS))
    }
    return {
        name: {
            "tenant": record.tenant,
            "state": record.state,
            "revision": record.revision,
            "size": record.group.size,
            "members": sorted(f"{names[member.trajectory]} {member.verdict}" for member in record.members),
        }
        for name, record in newest.items()
    }
