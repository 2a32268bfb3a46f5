"""When a trajectory settles, and to what.

*What* is a function of the set of steps and rewards and of nothing else: neither the order nor the number of
their arrivals shows in it. *When* follows receipt times only, so that no producer's clock moves a deadline.
A reward that comes in after a revision was published makes a new one, equal to what the first would have
been had the reward come in time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from msgspec.structs import replace

from ebbtide_governance.chains import PlannedChain, PlannedSegment, cut, lowest, segments_of
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.chain import chain_order, trajectory_root
from ebbtide_schemas.events import EndMark
from ebbtide_schemas.records import (
    Chain,
    EffectiveReward,
    Policy,
    RenderedRef,
    RewardRecord,
    SegmentRef,
    SettledRecord,
    StepHeader,
)

SECOND_MS = 1000
MAX_REFERENCE_BYTES = 700_000
"""Of one revision's references: they must fit into a log record of 900 kB, with room for the rest."""
_REFERENCE_BYTES = 120
_ID_BYTES = 40

TOO_MANY_REFERENCES = "too_many_references"
SEGMENT_UNREADABLE = "segment_unreadable"
TIME_SUSPECT = "time_suspect"
PURPOSE_MIXED = "purpose_mixed"
GROUP_MIXED = "group_mixed"

_WORST_END_FIRST: tuple[EndMark, ...] = ("superseded", "aborted", "truncated", "terminated")

Why = Literal["no_step", "open", "missing_parent", "unrewarded"]
EventT = TypeVar("EventT", StepHeader, RewardRecord)


@dataclass(frozen=True)
class Waiting:
    """Not settled yet; without news, nothing changes before ``until_ms`` (None: nothing ever does)."""

    until_ms: int | None
    why: Why


@dataclass(frozen=True)
class Plan:
    """All of a revision that does not depend on text: ``draft`` has no chains, digest and number yet."""

    draft: SettledRecord
    chains: tuple[PlannedChain, ...]
    segments: tuple[SegmentRef, ...]
    """Each segment once, in chain order: the order in which placeholders are numbered."""


@dataclass(frozen=True)
class Rendering:
    """What became of one segment, without its text."""

    hole: bool = False
    unreadable: bool = False
    """True: a hole because it is damaged or refused, not because somebody was erased."""
    binary: bool = False
    findings: Mapping[str, int] = field(default_factory=dict)
    """Number of findings by type."""
    found: str = ""
    """Digest of the findings: with the segment ids it fixes the rendered text."""


def plan(
    trajectory: str, steps: Iterable[StepHeader], rewards: Iterable[RewardRecord], policy: Policy, *, now_ms: int
) -> Plan | Waiting:
    """What the trajectory settles to at ``now_ms`` (receipt time), or what it waits for.

    It settles once it has ended (an end mark on its last step whose ancestors are all there, or
    ``policy.idle_s`` of silence) and has its required rewards, or has waited ``policy.reward_window_s`` for
    them since its last step was received.
    """
    ordered = chain_order(_first_received(steps))
    if not ordered:
        return Waiting(None, "no_step")
    known = _first_received(rewards)
    waits = [wait for wait in _waits(ordered, known, policy) if wait.until_ms is None or now_ms < wait.until_ms]
    if waits:
        return max(waits, key=lambda wait: wait.until_ms or 0)
    segments = {ref.id: ref for step in ordered for ref in segments_of(step)}
    draft = _draft(trajectory, ordered, known, policy, text_bytes=sum(ref.size for ref in segments.values()))
    return Plan(draft, cut(trajectory, ordered), tuple(segments.values()))


def complete(
    plan: Plan,
    rendered: Mapping[str, Rendering],
    *,
    redaction: str,
    revision: int,
    supersedes: int | None,
    settled_ms: int,
) -> SettledRecord:
    """The revision, given what became of each segment of ``plan``.

    Actions after the first hole of their chain were sampled under a text that no longer exists, so they are
    not trained; a chain that trains nothing is no sample. ``digest`` covers everything but the revision's
    number, what it supersedes and its tick.
    """
    views = [rendered[ref.id] for ref in plan.segments]
    flags = {*plan.draft.flags, *({SEGMENT_UNREADABLE} if any(view.unreadable for view in views) else ())}
    settled = replace(
        plan.draft,
        chains=_chains(plan.chains, rendered),
        holes=sum(view.hole for view in views),
        binary=any(view.binary for view in views),
        findings=_total(view.findings for view in views),
        redaction=redaction,
        flags=tuple(sorted(flags)),
    )
    found = {ref.id: view.found for ref, view in zip(plan.segments, views, strict=True)}
    digest = hashlib.sha256(canonical({"settled": settled, "found": found})).hexdigest()
    if _reference_bytes(settled) > MAX_REFERENCE_BYTES:
        flags.add(TOO_MANY_REFERENCES)
        settled = replace(settled, chains=(), rewards=(), flags=tuple(sorted(flags)))
    return replace(settled, digest=digest, revision=revision, supersedes=supersedes, settled_ms=settled_ms)


def occurred_ms(event: StepHeader | RewardRecord) -> int:
    """When it happened, as far as a producer's clock can be believed: never after it was received."""
    if event.event_ms is None or event.time_suspect:
        return event.received_ms
    return min(event.event_ms, event.received_ms)


def is_rewarded(names: Iterable[str], policy: Policy) -> bool:
    """True if the policy's required rewards are among ``names``; if it requires none by name, any one will do."""
    present = set(names)
    return present.issuperset(policy.required_rewards) if policy.required_rewards else bool(present)


# --- when ----------------------------------------------------------------------------------------------------


def _waits(ordered: Sequence[StepHeader], rewards: Sequence[RewardRecord], policy: Policy) -> Iterator[Waiting]:
    """What has to pass before the trajectory settles, and when each of it does."""
    last = max(step.received_ms for step in ordered)
    marked = {step.event for step in _last(ordered) if step.end is not None}
    if not marked & _rooted(ordered):
        yield Waiting(last + round(policy.idle_s * SECOND_MS), "missing_parent" if marked else "open")
    if not is_rewarded((reward.name for reward in _effective(rewards)), policy):
        yield Waiting(last + round(policy.reward_window_s * SECOND_MS), "unrewarded")


def _last(ordered: Sequence[StepHeader]) -> list[StepHeader]:
    """The steps with the highest ordinal: only there does an end mark end the trajectory."""
    top = max(step.ordinal for step in ordered)
    return [step for step in ordered if step.ordinal == top]


def _rooted(ordered: Sequence[StepHeader]) -> set[str]:
    """The steps whose ancestors are all there."""
    rooted: set[str] = set()
    for step in ordered:
        if step.parent is None or step.parent in rooted:
            rooted.add(step.event)
    return rooted


def _first_received(events: Iterable[EventT]) -> list[EventT]:
    """Each event once, as it was received first."""
    first: dict[str, EventT] = {}
    for event in events:
        known = first.get(event.event)
        if known is None or event.received_ms < known.received_ms:
            first[event.event] = event
    return list(first.values())


# --- what ----------------------------------------------------------------------------------------------------


def _draft(
    trajectory: str,
    ordered: Sequence[StepHeader],
    rewards: Sequence[RewardRecord],
    policy: Policy,
    *,
    text_bytes: int,
) -> SettledRecord:
    first = ordered[0]
    times = [occurred_ms(step) for step in ordered]
    acting = [step for step in ordered if step.action is not None]
    ends = [step.end for step in _last(ordered) if step.end is not None]
    return SettledRecord(
        tenant=first.tenant,
        trajectory=trajectory,
        session=first.session,
        revision=0,
        supersedes=None,
        digest="",
        root=trajectory_root([step.digest for step in ordered]),
        chains=(),
        rewards=_rewards(rewards, on_time_ms=max(times) + round(policy.reward_window_s * SECOND_MS)),
        steps=len(ordered),
        subjects=tuple(sorted({subject for step in ordered for subject in step.subjects})),
        subject_declared=all(step.subject_declared for step in ordered),
        end=min(ends, key=_WORST_END_FIRST.index, default="idle"),
        agent=first.agent,
        model=_agreed(step.model for step in acting),
        adapter=_agreed(step.adapter for step in acting),
        purpose=_agreed(step.purpose for step in ordered),
        consent_basis=_agreed(step.consent_basis for step in ordered),
        jurisdiction=_agreed(step.jurisdiction for step in ordered),
        retention=_agreed(step.retention for step in ordered),
        group=next((step.group for step in ordered if step.group is not None), None),
        level=lowest([step.level for step in acting]),
        missing_parents=_missing_parents(ordered),
        text_bytes=text_bytes,
        flags=tuple(sorted(_flags(ordered, rewards))),
        first_ms=min(times),
        last_ms=max(times),
    )


def _flags(ordered: Sequence[StepHeader], rewards: Sequence[RewardRecord]) -> set[str]:
    flags = {flag for step in ordered for flag in step.flags}
    if any(step.time_suspect for step in ordered) or any(reward.time_suspect for reward in rewards):
        flags.add(TIME_SUSPECT)
    if len({step.purpose for step in ordered} - {None}) > 1:
        flags.add(PURPOSE_MIXED)
    if len({step.group.id for step in ordered if step.group is not None}) > 1:
        flags.add(GROUP_MIXED)
    return flags


def _rewards(rewards: Iterable[RewardRecord], *, on_time_ms: int) -> tuple[EffectiveReward, ...]:
    """The rewards that count, by (event time, id); late is what happened after ``on_time_ms``."""
    counted = [
        EffectiveReward(
            event=reward.event,
            name=reward.name,
            value=reward.value,
            source=reward.source,
            event_ms=occurred_ms(reward),
            late=occurred_ms(reward) > on_time_ms,
            step=reward.step,
            supersedes=reward.supersedes,
        )
        for reward in _effective(rewards)
    ]
    return tuple(sorted(counted, key=lambda reward: (reward.event_ms, reward.event)))


def _effective(rewards: Iterable[RewardRecord]) -> list[RewardRecord]:
    """The rewards that no other one of the trajectory supersedes."""
    known = list(rewards)
    superseded = {reward.supersedes for reward in known if reward.supersedes != reward.event}
    return [reward for reward in known if reward.event not in superseded]


def _chains(planned: Iterable[PlannedChain], rendered: Mapping[str, Rendering]) -> tuple[Chain, ...]:
    """The chains that train something, with weights that sum to 1 however the trajectory was cut."""
    referenced = [(chain, _references(chain.segments, rendered)) for chain in planned]
    training = [(chain, segments) for chain, segments in referenced if any(ref.trained for ref in segments)]
    return tuple(
        Chain(
            sample=chain.sample,
            steps=chain.steps,
            segments=segments,
            rollout_weight=1 / len(training),
            level=chain.level,
        )
        for chain, segments in training
    )


def _references(segments: Iterable[PlannedSegment], rendered: Mapping[str, Rendering]) -> tuple[RenderedRef, ...]:
    references = []
    broken = False
    for segment in segments:
        ref = segment.ref
        hole = rendered[ref.id].hole
        broken = broken or hole
        references.append(
            RenderedRef(
                segment=ref.id,
                role=ref.role,
                trained=segment.trained and not broken,
                hole=hole,
                subjects=ref.subjects,
                about_nobody=ref.about_nobody,
            )
        )
    return tuple(references)


def _reference_bytes(settled: SettledRecord) -> int:
    """About how many bytes the references take on the log."""
    segments = [ref for chain in settled.chains for ref in chain.segments]
    ids = sum(len(ref.subjects) for ref in segments) + sum(len(chain.steps) for chain in settled.chains)
    names = sum(len(reward.name) for reward in settled.rewards)
    return (len(segments) + 2 * len(settled.rewards)) * _REFERENCE_BYTES + ids * _ID_BYTES + names


def _missing_parents(ordered: Iterable[StepHeader]) -> int:
    """Steps whose parent never came (or descends from them)."""
    seen: set[str] = set()
    missing = 0
    for step in ordered:
        missing += step.parent is not None and step.parent not in seen
        seen.add(step.event)
    return missing


def _agreed(values: Iterable[str | None]) -> str | None:
    """The one value that all steps which name any agree on."""
    named = set(values) - {None}
    return named.pop() if len(named) == 1 else None


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
