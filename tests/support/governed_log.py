"""A small log with a bit of everything: two tenants, every state, repeats, conflicts and a replay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from ebbtide_governance.projection import replay_header
from ebbtide_platform import topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.codec import encode
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    DecisionRecord,
    FactRecord,
    Finding,
    FindingsRecord,
    GroupMember,
    GroupRecord,
    GroupRef,
    LogRecord,
    MemberRecord,
    Policy,
    QuarantineRecord,
    RewardRecord,
    SegmentFindings,
    SegmentRef,
    SettledRecord,
    StepHeader,
    StepRecord,
    Verdict,
    WithdrawalRecord,
)

START_MS = 1_700_000_000_000
GROUP = GroupRef(id="g-1", size=2, task="task-1")


def step(tenant: str, trajectory: str, number: int, *, end: bool = False, digest: str = "d") -> StepHeader:
    """The header of step ``number`` of a trajectory, received ``number`` seconds after the start."""
    return StepHeader(
        event=f"{trajectory}-s{number}",
        tenant=tenant,
        trajectory=trajectory,
        session=f"session-{trajectory}",
        ordinal=number,
        parent=None,
        branch="continue",
        action=SegmentRef(id=f"{trajectory}-a{number}", kind="message", role="assistant"),
        agent="support",
        purpose="training",
        group=GROUP if trajectory.startswith("grouped") else None,
        end="terminated" if end else None,
        received_ms=START_MS + 1000 * number,
        digest=digest,
    )


def findings(header: StepHeader, *types: str, repeat: bool = False) -> FindingsRecord:
    """One segment of the step with a finding of each type."""
    found = tuple(Finding(leaf="/content", start=0, end=1, type=kind, score=1.0) for kind in types)
    segment = SegmentFindings(segment=f"{header.event}-x", state="repeat" if repeat else "scanned", findings=found)
    return FindingsRecord(header=header, segments=(segment,), redaction="pattern/1")


def reward(tenant: str, event: str, alias: str, trajectory: str | None = None) -> RewardRecord:
    """A reward of 1; routed if it has a trajectory."""
    return RewardRecord(
        event=event,
        tenant=tenant,
        alias=alias,
        value=1.0,
        name="resolved",
        source="human",
        received_ms=START_MS + 9000,
        trajectory=trajectory,
        digest="r",
    )


def settled(tenant: str, trajectory: str, revision: int = 0) -> SettledRecord:
    """A settled revision with one chain."""
    return SettledRecord(
        tenant=tenant,
        trajectory=trajectory,
        session=f"session-{trajectory}",
        revision=revision,
        supersedes=revision - 1 if revision else None,
        digest=f"digest-{revision}",
        root="root",
        chains=(Chain(sample=f"sample-{trajectory}", steps=(), segments=(), rollout_weight=1.0),),
        rewards=(),
        steps=1,
        subjects=(),
        subject_declared=True,
        end="terminated",
        agent="support",
        settled_ms=START_MS + 10_000 * (revision + 1),
    )


def decision(of: SettledRecord, verdict: Verdict, *reasons: str, facts: int = 1) -> DecisionRecord:
    """The verdict on a revision."""
    return DecisionRecord(
        settled=of,
        verdict=verdict,
        reasons=reasons,
        policy="default@1",
        facts_offset=facts,
        decided_ms=of.settled_ms + facts,
    )


def curated(of: SettledRecord) -> CuratedRecord:
    """The sample of a revision."""
    return CuratedRecord(
        sample=of.chains[0].sample,
        tenant=of.tenant,
        trajectory=of.trajectory,
        revision=of.revision,
        supersedes=of.supersedes,
        facts_offset=1,
        policy="default@1",
        chain=of.chains[0],
        sealed=(),
        settled=of,
    )


def withdrawal(of: SettledRecord, *reasons: str) -> WithdrawalRecord:
    """The end of a sample."""
    return WithdrawalRecord(
        sample=of.chains[0].sample,
        tenant=of.tenant,
        trajectory=of.trajectory,
        revision=of.revision,
        facts_offset=2,
        reasons=reasons,
    )


def quarantined(
    tenant: str | None, trajectory: str | None, offset: int, reason: str = "redaction_failed"
) -> QuarantineRecord:
    """A step that could not be processed."""
    return QuarantineRecord(
        stage="redact",
        reason=reason,
        topic=topics.STEPS.name,
        partition=0,
        offset=offset,
        tenant=tenant,
        trajectory=trajectory,
        event=None,
        sealed=(),
        quarantined_ms=START_MS + 500,
    )


def put(
    log: MemoryLog, topic: topics.Topic, key: str, record: LogRecord, headers: tuple[tuple[str, bytes], ...] = ()
) -> None:
    """Append one record."""
    log.write([OutRecord(topic.name, key.encode(), encode(record), headers)])


def ticking_clock() -> Callable[[], int]:
    """A clock that moves a second forward each time it is read: receipt times without waiting."""
    seconds = count(20)
    return lambda: START_MS + 1000 * next(seconds)


def governed_log() -> MemoryLog:
    """The whole story, in an order in which the stages could have written it.

    acme: *good* is curated and re-curated; *refused* was curated, then consent was withdrawn; *unpaid* is rejected
    for two reasons; *open* has no verdict; *broken* is in quarantine; *mended* was, and went through again;
    *grouped-a*/*grouped-b* are a group. globex: *good* too, under the same names.
    """
    log = MemoryLog(now_ms=ticking_clock())
    log.create_topics(topics.SHARED)
    put(log, topics.FACTS, "", FactRecord(kind="policy", tenant=None, fact_ms=START_MS, policy=Policy(idle_s=60)))
    for tenant in ("acme", "globex"):
        put(log, topics.FACTS, "", FactRecord(kind="tenant", tenant=tenant, fact_ms=START_MS))
        log.create_topics([topics.curated(tenant)])

    for tenant, extra in (("acme", 1), ("globex", 0)):
        headers = [step(tenant, "good", number, end=number == 1 + extra) for number in range(2 + extra)]
        for header in [*headers, headers[0]]:  # the outbox may deliver twice
            put(log, topics.STEPS, "good", StepRecord(header=header))
        for header in headers:
            put(log, topics.FINDINGS, "good", findings(header, "PERSON", "EMAIL_ADDRESS"))
        put(log, topics.FINDINGS, "good", findings(headers[0], repeat=True))
        put(log, topics.REWARDS, "good", reward(tenant, "rw-1", "good"))
        put(log, topics.ROUTED, "good", reward(tenant, "rw-1", "good", "good"))
        for revision in range(1 + extra):
            revised = settled(tenant, "good", revision)
            put(log, topics.TRAJECTORIES, "good", revised)
            put(log, topics.DECISIONS, "good", decision(revised, "eligible"))
            put(log, topics.curated(tenant), "good", curated(revised))

    _refused(log)
    put(log, topics.STEPS, "unpaid", StepRecord(header=step("acme", "unpaid", 0, end=True)))
    unpaid = decision(settled("acme", "unpaid"), "rejected", "unrewarded", "purpose_missing")
    put(log, topics.DECISIONS, "unpaid", unpaid)
    put(log, topics.DECISIONS, "unpaid", unpaid)  # a stage that fell after writing writes again
    put(log, topics.STEPS, "open", StepRecord(header=step("acme", "open", 0)))
    put(log, topics.REWARDS, "later", reward("acme", "rw-2", "later"))
    _quarantine(log)
    _group(log)
    return log


def all_records(log: MemoryLog) -> list[InRecord]:
    """Everything the projector follows, topic by topic."""
    followed = [*topics.SHARED, topics.curated("acme"), topics.curated("globex")]
    return [record for topic in followed for record in log.records(topic)]


def _refused(log: MemoryLog) -> None:
    put(log, topics.STEPS, "refused", StepRecord(header=step("acme", "refused", 0, end=True)))
    refused = settled("acme", "refused")
    put(log, topics.DECISIONS, "refused", decision(refused, "eligible"))
    put(log, topics.curated("acme"), "refused", curated(refused))
    put(log, topics.FACTS, "", FactRecord(kind="consent", tenant="acme", fact_ms=START_MS, state="withdrawn"))
    put(log, topics.DECISIONS, "refused", decision(refused, "rejected", "consent_withdrawn", facts=4))
    put(log, topics.curated("acme"), "refused", withdrawal(refused, "consent_withdrawn"))


def _quarantine(log: MemoryLog) -> None:
    for trajectory, offset in (("broken", 70), ("mended", 71)):
        put(log, topics.STEPS, trajectory, StepRecord(header=step("acme", trajectory, 0)))
        put(log, topics.QUARANTINE, trajectory, quarantined("acme", trajectory, offset))
    put(log, topics.QUARANTINE, "", quarantined(None, None, 72, "undecodable"))
    again = StepRecord(header=step("acme", "mended", 0))
    put(log, topics.STEPS, "mended", again, (replay_header(quarantined("acme", "mended", 71)),))
    log.write([OutRecord(topics.STEPS.name, b"junk", b"\xff junk", ())])


def _group(log: MemoryLog) -> None:
    members = []
    for trajectory in ("grouped-a", "grouped-b"):
        put(log, topics.STEPS, trajectory, StepRecord(header=step("acme", trajectory, 0, end=True)))
        of = settled("acme", trajectory)
        put(log, topics.DECISIONS, trajectory, decision(of, "held", "binary_unseen"))
        member = MemberRecord(
            group=GROUP,
            tenant="acme",
            trajectory=trajectory,
            revision=0,
            facts_offset=1,
            verdict="held",
            reasons=("binary_unseen",),
            decided_ms=START_MS,
        )
        put(log, topics.MEMBERS, GROUP.id, member)
        members.append(GroupMember(trajectory=trajectory, revision=0, verdict="held", reasons=("binary_unseen",)))
    closed = GroupRecord(
        group=GROUP, tenant="acme", state="short", revision=0, members=tuple(members), closed_ms=START_MS + 1
    )
    put(log, topics.GROUPS, GROUP.id, closed)
    open_one = MemberRecord(
        group=GroupRef(id="g-2", size=8),
        tenant="acme",
        trajectory="good",
        revision=1,
        facts_offset=1,
        verdict="eligible",
        reasons=(),
        decided_ms=START_MS,
    )
    put(log, topics.MEMBERS, "g-2", open_one)
