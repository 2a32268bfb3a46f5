"""Judges settled trajectories: policy, consent, holds, erasures and reviews, now and whenever one of them changes.

State keeps the newest revision of each trajectory, so that a fact that comes years later finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ebbtide_governance.facts import FactsView
from ebbtide_governance.policy import Judgement, decide, label, people
from ebbtide_platform.codec import decode, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.topics import DECISIONS, MEMBERS, TICKS, TRAJECTORIES, Topic
from ebbtide_schemas.records import DecisionRecord, GroupRef, MemberRecord, SettledRecord, Verdict
from ebbtide_streams.context import StageContext
from ebbtide_streams.state.agenda import NOW, due, set_due, take_news, tick_of
from ebbtide_streams.state.rows import get_row, key_of, pack, put_row, rows_of, unpack

JUDGED_PER_TICK = 1_000
"""Of those that facts have touched; a policy touches everybody, and the rest is judged by the next tick."""
GROUP_CHANGED = "group_changed"
"""Why a group loses a member whose later revision names another one."""

_TRAJECTORY, _VERDICT, _SUBJECT = b"t", b"v", b"p"


class _Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What was last said of a trajectory."""

    tenant: str
    revision: int
    digest: str
    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    policy: str = ""


class JudgeStage:
    """Settled trajectories and ticks to `DecisionRecord`s, and to `MemberRecord`s for those in a group."""

    name: ClassVar[str] = "judge"
    inputs: ClassVar[tuple[Topic, ...]] = (TRAJECTORIES, TICKS)

    def __init__(self, partition: int, context: StageContext) -> None:
        self._partition = partition
        self._context = context

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Nothing: a judgement opens no text."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Judge one revision, or with a tick what new facts have touched.

        Raises:
            Poison: it can never be processed.
        """
        facts = self._context.facts().view()
        if record.topic == TRAJECTORIES.name:
            self._take(decode(record.value, SettledRecord), facts, tx)
            return
        tick_ms = tick_of(record)
        self._take_news(facts, tx)
        for name in due(tx, tick_ms, JUDGED_PER_TICK):
            set_due(tx, name, None)
            self._judge(unpack(name), facts, tick_ms, tx)

    def _take(self, settled: SettledRecord, facts: FactsView, tx: StageTransaction) -> None:
        trajectory = settled.trajectory
        key = key_of(_TRAJECTORY, trajectory)
        row = get_row(tx, key_of(_VERDICT, trajectory), _Verdict)
        if row is not None:
            if row.tenant != settled.tenant:
                raise Poison("tenant_mismatch")
            if settled.revision < row.revision or (settled.revision, settled.digest) == (row.revision, row.digest):
                return
            self._leave_group(get_row(tx, key, SettledRecord), settled, facts, tx)
        put_row(tx, key, settled)
        put_row(tx, key_of(_VERDICT, trajectory), _Verdict(settled.tenant, settled.revision, settled.digest))
        for subject in people(settled):
            tx.put(key_of(_SUBJECT, subject, trajectory), b"")
        self._judge(trajectory, facts, settled.settled_ms, tx)

    def _take_news(self, facts: FactsView, tx: StageTransaction) -> None:
        """Put on the agenda whom the new facts have touched."""
        news = take_news(tx, facts)
        touched = {pack(trajectory) for trajectory in news.trajectories}
        for subject in news.subjects:
            prefix = key_of(_SUBJECT, subject)
            touched |= {key[len(prefix) :] for key, _ in tx.scan(prefix)}
        for name in touched:
            _say_again(name, tx)
        if news.everybody or news.tenants:
            verdicts = rows_of(tx, _VERDICT, _Verdict)
            touched |= {name for name, row in verdicts if news.everybody or row.tenant in news.tenants}
        for name in sorted(touched):
            set_due(tx, name, NOW)

    def _judge(self, trajectory: str, facts: FactsView, now_ms: int, tx: StageTransaction) -> None:
        """Say what is new about the trajectory; the same verdict for the same reasons is not said twice."""
        settled = get_row(tx, key_of(_TRAJECTORY, trajectory), SettledRecord)
        if settled is None:
            return
        policy = facts.policy(settled.tenant)
        judgement = decide(settled, policy, facts)
        said = _Verdict(
            settled.tenant, settled.revision, settled.digest, judgement.verdict, judgement.reasons, label(policy)
        )
        key = key_of(_VERDICT, trajectory)
        if get_row(tx, key, _Verdict) == said:
            return
        put_row(tx, key, said)
        decision = DecisionRecord(
            settled=settled,
            verdict=judgement.verdict,
            reasons=judgement.reasons,
            policy=said.policy,
            facts_offset=facts.offset,
            decided_ms=now_ms,
        )
        tx.emit(_decision_output(decision))
        if settled.group is not None:
            tx.emit(_member_output(settled.group, settled, judgement, facts, now_ms))

    def _leave_group(
        self, before: SettledRecord | None, after: SettledRecord, facts: FactsView, tx: StageTransaction
    ) -> None:
        if before is None or before.group is None or (after.group is not None and after.group.id == before.group.id):
            return
        left = Judgement("rejected", (GROUP_CHANGED,))
        tx.emit(_member_output(before.group, after, left, facts, after.settled_ms))


def _say_again(name: bytes, tx: StageTransaction) -> None:
    """Have *eligible* said once more of a trajectory that a fact names.

    Between two ticks a consent may be withdrawn and given again, and the curator, which looks at the newest
    facts, may have seen the withdrawal alone.
    """
    key = _VERDICT + name
    row = get_row(tx, key, _Verdict)
    if row is not None and row.verdict == "eligible":
        put_row(tx, key, msgspec.structs.replace(row, verdict=None))


def _decision_output(decision: DecisionRecord) -> OutRecord:
    settled = decision.settled
    stamped = headers(
        event=f"{settled.trajectory}/{settled.revision}/{decision.facts_offset}",
        kind="decision",
        source=JudgeStage.name,
        time_ms=decision.decided_ms,
        tenant=settled.tenant,
    )
    return OutRecord(DECISIONS.name, settled.trajectory.encode(), encode(decision), tuple(stamped))


def _member_output(
    group: GroupRef, settled: SettledRecord, judgement: Judgement, facts: FactsView, now_ms: int
) -> OutRecord:
    member = MemberRecord(
        group=group,
        tenant=settled.tenant,
        trajectory=settled.trajectory,
        revision=settled.revision,
        facts_offset=facts.offset,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        decided_ms=now_ms,
    )
    stamped = headers(
        event=f"{group.id}/{settled.trajectory}/{settled.revision}/{facts.offset}",
        kind="member",
        source=JudgeStage.name,
        time_ms=now_ms,
        tenant=settled.tenant,
    )
    return OutRecord(MEMBERS.name, group.id.encode(), encode(member), tuple(stamped))
