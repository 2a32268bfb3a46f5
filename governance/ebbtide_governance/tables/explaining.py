"""Why a trajectory stands where it stands, and what would change it, in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from ebbtide_governance.policy import REASONS
from ebbtide_governance.tables.merging import state_of
from ebbtide_governance.tables.rows import (
    DecisionRow,
    GroupRow,
    QuarantineRow,
    RewardRow,
    SampleRow,
    StepRow,
    TrajectoryRow,
)
from ebbtide_governance.tables.views import (
    DecisionView,
    Failure,
    GroupView,
    ReasonView,
    RewardView,
    SampleView,
    TrajectorySummary,
    TrajectoryView,
)
from ebbtide_schemas.records import Policy

MS = 1000


def explain(
    row: TrajectoryRow,
    *,
    steps: Sequence[StepRow],
    decisions: Sequence[DecisionRow],
    rewards: Sequence[RewardRow],
    samples: Sequence[SampleRow],
    quarantined: Sequence[QuarantineRow],
    policy: Policy,
) -> TrajectoryView:
    """The whole answer to *why*; ``decisions`` come newest first."""
    findings: Counter[str] = Counter()
    for step in steps:
        findings.update(step.findings or {})
    return TrajectoryView(
        tenant=row.tenant,
        trajectory=row.trajectory,
        state=state_of(row.model_dump()),
        agent=row.agent,
        session=row.session,
        purpose=row.purpose,
        group=row.group_id,
        steps=len(steps),
        segments=sum(step.scanned or 0 for step in steps),
        findings=dict(sorted(findings.items())),
        first_received_ms=row.first_received_ms,
        last_received_ms=row.last_received_ms,
        ended_ms=row.ended_ms,
        revision=row.revision,
        level=row.level,
        end=row.end,
        root=row.root,
        holes=row.holes or 0,
        decisions=[_decision(decision) for decision in decisions],
        rewards=[_reward(reward) for reward in rewards],
        samples=[
            SampleView(
                sample=sample.sample,
                revision=sample.revision or 0,
                live=bool(sample.live),
                reasons=sample.reasons or [],
            )
            for sample in samples
        ],
        quarantine=[failure_of(record) for record in quarantined if record.reason],
        next=what_is_next(row, has_reward=bool(rewards), policy=policy),
    )


def what_is_next(row: TrajectoryRow, *, has_reward: bool, policy: Policy) -> str:
    """What an undecided trajectory waits for, or what would change the verdict of a decided one."""
    state = state_of(row.model_dump())
    if state == "quarantined":
        return "A record of it is in quarantine: mend the cause, then produce it again with `ebbtide replay`."
    if row.verdict == "eligible":
        return "A withdrawn consent, an erasure, a hold, a later step or a later reward makes a new decision."
    if row.verdict is not None:
        return " ".join(reason_of(code).remedy for code in row.reasons or [])
    if row.settled_ms is not None:
        return "It is settled; the verdict is on its way."
    last = row.last_received_ms or 0
    if row.ended_ms is None:
        until = _clock(last + int(policy.idle_s * MS))
        return (
            f"No step ended it: it settles when an end mark comes, or after {policy.idle_s:g} s of silence ({until})."
        )
    if not has_reward:
        until = _clock(last + int(policy.reward_window_s * MS))
        return f"It has ended and waits for a reward, at the latest until {until}."
    return "It has ended; it settles with the next tick once all its steps and required rewards are there."


def reason_of(code: str) -> ReasonView:
    """A reason code in words; a code of another version of the policy explains itself as that."""
    reason = REASONS.get(code)
    if reason is None:
        return ReasonView(code=code, text="a reason that this version does not know", remedy="Ask a newer version.")
    return ReasonView(code=code, text=reason.text, remedy=reason.remedy)


def failure_of(row: QuarantineRow) -> Failure:
    """A quarantined record by reference."""
    return Failure(
        stage=row.stage,
        reason=row.reason or "",
        topic=row.topic,
        partition=row.partition,
        offset=row.log_offset,
        tenant=row.tenant,
        trajectory=row.trajectory,
        event=row.event,
        quarantined_ms=row.quarantined_ms or 0,
        replayed_ms=row.replayed_ms,
    )


def summary_of(row: TrajectoryRow) -> TrajectorySummary:
    """A trajectory as one line of a list."""
    return TrajectorySummary(
        tenant=row.tenant,
        trajectory=row.trajectory,
        state=state_of(row.model_dump()),
        agent=row.agent,
        revision=row.revision,
        reasons=row.reasons or [],
        first_received_ms=row.first_received_ms,
        last_received_ms=row.last_received_ms,
    )


def group_of(row: GroupRow) -> GroupView:
    """A group with its members, once it is closed."""
    return GroupView(
        tenant=row.tenant,
        group=row.group_id,
        size=row.size,
        task=row.task,
        state=row.state or "open",
        revision=row.revision,
        members=row.members or [],
        closed_ms=row.closed_ms,
    )


def _decision(row: DecisionRow) -> DecisionView:
    return DecisionView(
        revision=row.revision,
        verdict=row.verdict or "",
        reasons=[reason_of(code) for code in row.reasons or []],
        policy=row.policy or "",
        facts_offset=row.facts_offset,
        decided_ms=row.decided_ms or 0,
    )


def _reward(row: RewardRow) -> RewardView:
    return RewardView(
        event=row.event,
        name=row.name or "",
        value=row.value,
        source=row.source or "",
        step=row.step,
        received_ms=row.seen_ms,
        supersedes=row.supersedes,
    )


def _clock(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / MS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
