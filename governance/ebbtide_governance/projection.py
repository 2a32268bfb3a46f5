"""The pure fold from the log to the read model: one record in, partial rows out.

No clock, no database, no key: the same log always makes the same tables, so they can be thrown away and
made again (`ebbtide rebuild`). Records that cannot be read make no rows; their stage quarantines them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from ebbtide_governance.tables.merging import Change
from ebbtide_governance.tables.rows import (
    DecisionRow,
    FactRow,
    GroupRow,
    QuarantineRow,
    RewardRow,
    SampleRow,
    StepRow,
    TrajectoryRow,
)
from ebbtide_platform.codec import decode, decode_any
from ebbtide_platform.errors import InvalidInput, Poison
from ebbtide_platform.ports import InRecord
from ebbtide_platform.topics import (
    CURATED_PREFIX,
    DECISIONS,
    FACTS,
    FINDINGS,
    GROUPS,
    MEMBERS,
    QUARANTINE,
    REWARDS,
    ROUTED,
    SHARED,
    STEPS,
    TICKS,
    TRAJECTORIES,
    Topic,
    tenant_of,
)
from ebbtide_schemas.records import (
    CuratedRecord,
    DecisionRecord,
    FactRecord,
    FindingsRecord,
    GroupRecord,
    GroupRef,
    MemberRecord,
    QuarantineRecord,
    RewardRecord,
    SettledRecord,
    StepHeader,
    StepRecord,
    WithdrawalRecord,
)

FOLLOWED: tuple[Topic, ...] = tuple(topic for topic in SHARED if topic is not TICKS)
"""Every shared topic but the ticks; curated topics are followed too, one for each tenant."""

REPLAY_HEADER = "ebbtide_replays"
"""On a record that was produced again from quarantine: its `QuarantineRecord` without the sealed bytes."""

_ACCEPTED = "0"
"""Ranks before every log offset: what a stage accepted and passed on is what stands."""

_INTEGER_END = 2**63
"""Beyond a database's largest integer."""


def fold(record: InRecord) -> list[Change]:
    """What ``record`` says about the read model."""
    changes = _replayed(record)
    try:
        read = decode_any(record.value)
    except Poison:
        return changes
    handlers = _CURATED if record.topic.startswith(CURATED_PREFIX) else _BY_TOPIC.get(record.topic, {})
    handler = handlers.get(type(read))
    if handler is not None:
        changes += handler(record, read)
    return changes if all(map(_is_storable, changes)) else []


def replay_header(quarantined: QuarantineRecord) -> tuple[str, bytes]:
    """The header that tells the read model which quarantined record has been produced again."""
    return REPLAY_HEADER, msgspec.msgpack.encode(msgspec.structs.replace(quarantined, sealed=()))


def _rank(*numbers: int) -> str:
    """Numbers as text that sorts as they do, in any database."""
    return ".".join(f"{number:019d}" for number in numbers)


def _is_storable(change: Change) -> bool:
    """False for numbers and characters that no writer of ours makes and a database refuses."""
    return all(
        "\0" not in value if isinstance(value, str) else not isinstance(value, int) or abs(value) < _INTEGER_END
        for value in change.values.values()
    )


def _seen(record: InRecord) -> str:
    return f"1.{_rank(record.offset)}"


# --- what came in -------------------------------------------------------------------------------------------


def _step(record: InRecord, read: StepRecord) -> list[Change]:
    return _header(read.header, _seen(record))


def _header(header: StepHeader, rank: str) -> list[Change]:
    key = {"tenant": header.tenant, "trajectory": header.trajectory}
    step = {
        "event": header.event,
        "header_rank": f"{rank}.{header.digest}",
        "ordinal": header.ordinal,
        "received_ms": header.received_ms,
        "digest": header.digest,
        "level": header.level,
        "end": header.end,
    }
    trajectory = {
        "first_received_ms": header.received_ms,
        "last_received_ms": header.received_ms,
        "ended_ms": header.received_ms if header.end else None,
        "opened_rank": f"{_rank(header.ordinal)}.{header.event}.{rank}.{header.digest}",
        "session": header.session,
        "agent": header.agent,
        "purpose": header.purpose,
        "group_id": header.group.id if header.group else None,
    }
    return [Change(StepRow, {**key, **step}), Change(TrajectoryRow, {**key, **trajectory})]


def _findings(record: InRecord, read: FindingsRecord) -> list[Change]:
    scanned = [segment for segment in read.segments if segment.state == "scanned"]
    erased = sum(segment.state == "erased" for segment in read.segments)
    types = Counter(finding.type for segment in scanned for finding in segment.findings)
    step, trajectory = _header(read.header, _ACCEPTED)
    counted = {
        # A repeat of the step finds its segments known and scans fewer: it must not hide the first look.
        "findings_rank": _rank(len(scanned) + erased, record.offset),
        "scanned": len(scanned),
        "erased": erased,
        "findings": dict(types),
        "redaction": read.redaction,
    }
    return [Change(StepRow, {**step.values, **counted}), trajectory]


def _reward(record: InRecord, read: RewardRecord) -> list[Change]:
    return [Change(RewardRow, {**_reward_values(read, _seen(record)), "seen_ms": read.received_ms})]


def _routed(record: InRecord, read: RewardRecord) -> list[Change]:
    routed = {
        "routed_ms": record.timestamp_ms,
        "routed_rank": _rank(record.offset),
        "trajectory": read.trajectory,
        "step": read.step,
    }
    return [Change(RewardRow, {**_reward_values(read, _ACCEPTED), **routed})]


def _reward_values(read: RewardRecord, rank: str) -> dict[str, Any]:
    return {
        "tenant": read.tenant,
        "event": read.event,
        "alias": read.alias,
        "header_rank": f"{rank}.{read.digest}",
        "name": read.name,
        "value": read.value,
        "source": read.source,
        "event_ms": read.event_ms,
        "supersedes": read.supersedes,
    }


# --- what was made of it ------------------------------------------------------------------------------------


def _settled(_: InRecord, read: SettledRecord) -> list[Change]:
    return [Change(TrajectoryRow, _settled_values(read))]


def _settled_values(read: SettledRecord) -> dict[str, Any]:
    return {
        "tenant": read.tenant,
        "trajectory": read.trajectory,
        "settled_rank": f"{_rank(read.revision, read.settled_ms)}.{read.digest}",
        "revision": read.revision,
        "settled_ms": read.settled_ms,
        "level": read.level,
        "end": read.end,
        "root": read.root,
        "digest": read.digest,
        "holes": read.holes,
        "chains": len(read.chains),
    }


def _decision(record: InRecord, read: DecisionRecord) -> list[Change]:
    settled = read.settled
    verdict = {
        "verdict": read.verdict,
        "reasons": list(read.reasons),
        "policy": read.policy,
        "decided_ms": read.decided_ms,
    }
    newest = {
        **_settled_values(settled),
        **verdict,
        "decided_rank": _rank(settled.revision, read.facts_offset, record.offset),
        "facts_offset": read.facts_offset,
        "decided_revision": settled.revision,
    }
    history = {
        **verdict,
        "tenant": settled.tenant,
        "trajectory": settled.trajectory,
        "revision": settled.revision,
        "facts_offset": read.facts_offset,
        "rank": _rank(record.offset),
    }
    return [Change(TrajectoryRow, newest), Change(DecisionRow, history)]


def _curated(record: InRecord, read: CuratedRecord) -> list[Change]:
    first = {
        "first_offset": record.offset,
        "first_curated_ms": record.timestamp_ms,
        "first_settled_ms": read.settled.settled_ms,
    }
    return _sample(record, read, {**first, "live": True, "reasons": [], "policy": read.policy})


def _withdrawal(record: InRecord, read: WithdrawalRecord) -> list[Change]:
    return _sample(record, read, {"live": False, "reasons": list(read.reasons)})


def _sample(record: InRecord, read: CuratedRecord | WithdrawalRecord, values: dict[str, Any]) -> list[Change]:
    try:
        tenant = tenant_of(record.topic)
    except InvalidInput:
        return []
    common = {
        "tenant": tenant,
        "sample": read.sample,
        "log_offset": record.offset,
        "trajectory": read.trajectory,
        "record_tenant": read.tenant,
        "revision": read.revision,
        "curated_ms": record.timestamp_ms,
    }
    return [Change(SampleRow, {**common, **values})]


def _member(_: InRecord, read: MemberRecord) -> list[Change]:
    return [Change(GroupRow, _group_values(read.tenant, read.group))]


def _group(record: InRecord, read: GroupRecord) -> list[Change]:
    closed = {
        "rank": _rank(read.revision, record.offset),
        "state": read.state,
        "revision": read.revision,
        "members": [msgspec.to_builtins(member) for member in read.members],
        "closed_ms": read.closed_ms,
    }
    return [Change(GroupRow, {**_group_values(read.tenant, read.group), **closed})]


def _group_values(tenant: str, group: GroupRef) -> dict[str, Any]:
    return {"tenant": tenant, "group_id": group.id, "size": group.size, "task": group.task}


# --- governance and what went wrong ---------------------------------------------------------------------------


def _fact(record: InRecord, read: FactRecord) -> list[Change]:
    values = {
        "log_offset": record.offset,
        "kind": read.kind,
        "tenant": read.tenant,
        "fact_ms": read.fact_ms,
        "subject": read.subject,
        "trajectory": read.trajectory,
        "purpose": read.purpose,
        "state": read.state,
        "policy": msgspec.to_builtins(read.policy) if read.policy else None,
    }
    return [Change(FactRow, values)]


def _quarantine(record: InRecord, read: QuarantineRecord) -> list[Change]:
    values = {
        **_origin(read),
        "rank": _rank(record.partition, record.offset),
        "tenant": read.tenant,
        "trajectory": read.trajectory,
        "event": read.event,
        "reason": read.reason,
        "quarantined_ms": read.quarantined_ms,
        "sealed_partition": record.partition,
        "sealed_offset": record.offset,
    }
    return [Change(QuarantineRow, values), *_touched(read, quarantined_ms=read.quarantined_ms)]


def _replayed(record: InRecord) -> list[Change]:
    """The way back of a quarantined record, told by the header it was produced again with."""
    value = dict(record.headers).get(REPLAY_HEADER)
    if value is None:
        return []
    try:
        origin = decode(value, QuarantineRecord)
    except Poison:
        return []
    row = Change(QuarantineRow, {**_origin(origin), "replayed_ms": record.timestamp_ms})
    return [row, *_touched(origin, replayed_ms=record.timestamp_ms)]


def _origin(read: QuarantineRecord) -> dict[str, Any]:
    return {"stage": read.stage, "topic": read.topic, "partition": read.partition, "log_offset": read.offset}


def _touched(read: QuarantineRecord, **times: int) -> list[Change]:
    if read.tenant is None or read.trajectory is None:
        return []
    return [Change(TrajectoryRow, {"tenant": read.tenant, "trajectory": read.trajectory, **times})]


_Handlers = dict[type, Callable[[InRecord, Any], list[Change]]]

_BY_TOPIC: dict[str, _Handlers] = {
    STEPS.name: {StepRecord: _step},
    REWARDS.name: {RewardRecord: _reward},
    ROUTED.name: {RewardRecord: _routed},
    FINDINGS.name: {FindingsRecord: _findings},
    TRAJECTORIES.name: {SettledRecord: _settled},
    DECISIONS.name: {DecisionRecord: _decision},
    MEMBERS.name: {MemberRecord: _member},
    GROUPS.name: {GroupRecord: _group},
    FACTS.name: {FactRecord: _fact},
    QUARANTINE.name: {QuarantineRecord: _quarantine},
}
"""A record on another topic than its own says nothing: the stage that reads it there quarantines it."""

_CURATED: _Handlers = {CuratedRecord: _curated, WithdrawalRecord: _withdrawal}
