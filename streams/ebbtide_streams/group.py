"""Closes groups: brings the verdicts on the members together, whichever partitions they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from ebbtide_governance.facts import FactsView
from ebbtide_governance.grouping import close, deadline_ms, rank, reference
from ebbtide_platform.codec import decode, encode, headers
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.topics import GROUPS, MEMBERS, TICKS, Topic
from ebbtide_schemas.records import GroupRecord, MemberRecord
from ebbtide_streams.context import StageContext
from ebbtide_streams.state.agenda import NOW, due, set_due, take_news, tick_of, waiting
from ebbtide_streams.state.rows import get_row, pack, put_row, rows_of

CLOSED_PER_TICK = 1_000
"""More are looked at by the next tick."""
_NONE_YET = -1
_GROUP, _MEMBER = b"g", b"m"


class _Group(msgspec.Struct, array_like=True, frozen=True):
    """What was last said of a group, and when its first verdict was made."""

    first_seen_ms: int
    revision: int = _NONE_YET
    digest: bytes = b""


class GroupStage:
    """Members and ticks to `GroupRecord`s. State is keyed by tenant first: groups never mix tenants."""

    name: ClassVar[str] = "group"
    inputs: ClassVar[tuple[Topic, ...]] = (MEMBERS, TICKS)

    def __init__(self, partition: int, context: StageContext) -> None:
        self._partition = partition
        self._context = context

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Nothing: a member is a reference."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Take in one member's verdict, or with a tick close what is due.

        Raises:
            Poison: it can never be processed.
        """
        if record.topic == MEMBERS.name:
            self._take(decode(record.value, MemberRecord), tx)
            return
        tick_ms = tick_of(record)
        facts = self._context.facts().view()
        self._take_news(facts, tx)
        for name in due(tx, tick_ms, CLOSED_PER_TICK):
            self._close(name, facts, tick_ms, tx)

    def _take(self, member: MemberRecord, tx: StageTransaction) -> None:
        name = pack(member.tenant) + pack(member.group.id)
        key = _MEMBER + name + pack(member.trajectory)
        known = get_row(tx, key, MemberRecord)
        if known is not None and rank(member) <= rank(known):
            return
        put_row(tx, key, member)
        row = get_row(tx, _GROUP + name, _Group) or _Group(member.decided_ms)
        put_row(tx, _GROUP + name, replace(row, first_seen_ms=min(row.first_seen_ms, member.decided_ms)))
        set_due(tx, name, NOW)

    def _take_news(self, facts: FactsView, tx: StageTransaction) -> None:
        """Another policy may set another deadline."""
        news = take_news(tx, facts)
        if news.everybody or news.tenants:
            for name in waiting(tx):
                set_due(tx, name, NOW)

    def _close(self, name: bytes, facts: FactsView, tick_ms: int, tx: StageTransaction) -> None:
        set_due(tx, name, None)
        row = get_row(tx, _GROUP + name, _Group)
        members = [member for _, member in rows_of(tx, _MEMBER + name, MemberRecord)]
        if row is None or not members:
            return
        policy = facts.policy(members[0].tenant)
        record = close(
            reference(members),
            members,
            policy,
            now_ms=tick_ms,
            first_seen_ms=row.first_seen_ms,
            is_closed=row.revision != _NONE_YET,
        )
        if record is None:
            set_due(tx, name, deadline_ms(row.first_seen_ms, policy))
            return
        digest = hashlib.sha256(encode(replace(record, closed_ms=0))).digest()
        if digest != row.digest:
            revision = row.revision + 1
            put_row(tx, _GROUP + name, replace(row, revision=revision, digest=digest))
            tx.emit(_output(replace(record, revision=revision)))


def _output(record: GroupRecord) -> OutRecord:
    stamped = headers(
        event=f"{record.group.id}/{record.revision}",
        kind="group",
        source=GroupStage.name,
        time_ms=record.closed_ms,
        tenant=record.tenant,
    )
    return OutRecord(GROUPS.name, record.group.id.encode(), encode(record), tuple(stamped))
