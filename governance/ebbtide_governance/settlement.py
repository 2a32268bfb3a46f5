"""When a trajectory settles, and to what.

*What* is a function of the set of steps and rewards and of nothing else: neither the order nor the number of
their arrivals shows in it. *When* follows receipt times only, so that no producer's clock moves a deadline.
A reward that comes in after a revision was published makes a new one, equal to what the first would have
been had the reward come in time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from msgspec.structs import replace

from ebbtide_governance.chains import PlannedChain, cut, lowest
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.chain import chain_order, trajectory_root
from ebbtide_schemas.records import (
    Policy,
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

Why = Literal["no_step", "open", "missing_parent", "unrewarded"]
ValueT = TypeVar("ValueT")
EventT = TypeVar("EventT", StepHeader, RewardRecord)


@dataclass(frozen=True)
class Waiting:
    """Not settled yet; without news, nothing changes before ``until_ms`` (None: nothing ever does)."""

    until_ms: int | None
    why: Why


@dataclass(frozen=True)
class Plan:
    """All of a revision that does not depend on text: ``draft`` has no chains, digest and revision yet."""

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
    waiting = _wait(ordered, given := list(_first_received(rewards)), policy)
    if waiting.until_ms is not None and now_ms < waiting.until_ms:
        return waiting
    chains = cut(trajectory, ordered)
    segments = {ref.id: ref for step in ordered for ref in (*step.observation, *_action(step), *step.outcome)}
    return Plan(_draft(trajectory, ordered, given, policy), chains, tuple(segments.values()))


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
    chains = [chain for planned in plan.chains if (chain := _chain(planned, rendered)).trains]
    weight = 1 / len(chains) if chains else 0.0
    views = [rendered[ref.id] for ref in plan.segments]
    flags = set(plan.draft.flags)
    if any(view.unreadable for view in views):
        flags.add(SEGMENT_UNREADABLE)
    settled = replace(
        plan.draft,
        chains=tuple(chain.weighed(weight) for chain in chains),
        holes=sum(view.hole for view in views),
        binary=any(view.binary for view in views),
        findings=dict(sorted(sum((Counter(view.findings) for view in views), Counter()).items())),
        redaction=redaction,
        flags=tuple(sorted(flags)),
    )
    found = {ref.id: rendered[ref.id].found for ref in plan.segments}
    digest = hashlib.sha256(canonical({"settled": settled, "found": found})).hexdigest()
    if _reference_bytes(settled) > MAX_REFERENCE_BYTES:
        flags.add(TOO_MANY_REFERENCES)
        settled = replace(settled, chains=(), rewards=(), flags=tuple(sorted(flags)))
    return replace(settled, digest=digest, revision=revision, supersedes=supersedes, settled_ms=settled_ms)


def occurred_ms(event_ms: int | None, *, suspect: bool, received_ms: int) -> int:
    """When something happened, as far as a producer's clock can be believed: never after it was received."""
    return received_ms if event_ms is None or suspect else min(event_ms, received_ms)


# --- when ----------------------------------------------------------------------------------------------------


def _wait(ordered: Sequence[StepHeader], rewards: Sequence[RewardRecord], policy: Policy) -> Waiting:
    """The moment from which on the trajectory is settled, and what it waits for until then."""
    last = max(step.received_ms for step in ordered)
    until, why = last, None
    marked = [step for step in _last(ordered) if step.end is not None]
    if not any(_has_ancestors(step, ordered) for step in marked):
        until, why = last + _ms(policy.idle_s), "missing_parent" if marked else "open"
    if not is_rewarded((reward.name for reward in _effective(rewards)), policy):
        deadline = last + _ms(policy.reward_window_s)
        if deadline > until or why is None:
            until, why = max(deadline, until), "unrewarded"
    # Nothing to wait for: it was due when its last step came in, by which clock the caller's never runs behind.
    return Waiting(until, why or "open") if why else Waiting(None, "open")


def is_rewarded(names: Iterable[str], policy: Policy) -> bool:
    """True if the policy's required rewards are among ``names``; if it requires none by name, any one will do."""
    present = set(names)
    return present.issuperset(policy.required_rewards) if policy.required_rewards else bool(present)


def _last(ordered: Sequence[StepHeader]) -> list[StepHeader]:
    """The steps with the highest ordinal: only there does an end mark end the trajectory."""
    top = max(step.ordinal for step in ordered)
    return [step for step in ordered if step.ordinal == top]


def _has_ancestors(step: StepHeader, ordered: Sequence[StepHeader]) -> bool:
    parents = {other.event: other.parent for other in ordered}
    seen: set[str] = set()
    event: str | None = step.event
    while event is not None:
        if event not in parents or event in seen:
            return False
        seen.add(event)
        event = parents[event]
    return True


# --- what ----------------------------------------------------------------------------------------------------


def _draft(
    trajectory: str, ordered: Sequence[StepHeader], rewards: Sequence[RewardRecord], policy: Policy
) -> SettledRecord:
    first = ordered[0]
    times = [_time(step) for step in ordered]
    known = {step.event for step in ordered}
    purposes = _values(step.purpose for step in ordered)
    groups = {step.group.id: step.group for step in reversed(ordered) if step.group is not None}
    acting = [step for step in ordered if step.action is not None]
    flags = {flag for step in ordered for flag in step.flags}
    flags |= {TIME_SUSPECT} if any(event.time_suspect for event in (*ordered, *rewards)) else set()
    flags |= {PURPOSE_MIXED} if len(purposes) > 1 else set()
    flags |= {GROUP_MIXED} if len(groups) > 1 else set()
    ends = sorted({step.end for step in _last(ordered) if step.end is not None}, key=_END_ORDER.index)
    return SettledRecord(
        tenant=first.tenant,
        trajectory=trajectory,
        session=first.session,
        revision=0,
        supersedes=None,
        digest="",
        root=trajectory_root([step.digest for step in ordered]),
        chains=(),
        rewards=_rewards(rewards, last_ms=max(times), policy=policy),
        steps=len(ordered),
        subjects=tuple(sorted({subject for step in ordered for subject in step.subjects})),
        subject_declared=all(step.subject_declared for step in ordered),
        end=ends[0] if ends else "idle",
        agent=first.agent,
        model=_one(step.model for step in acting),
        adapter=_one(step.adapter for step in acting),
        purpose=_one(purposes),
        consent_basis=_one(step.consent_basis for step in ordered),
        jurisdiction=_one(step.jurisdiction for step in ordered),
        retention=_one(step.retention for step in ordered),
        group=list(groups.values())[-1] if groups else None,
        level=lowest([step.level for step in acting]),
        missing_parents=sum(step.parent is not None and not _has_parent(step, known) for step in ordered),
        text_bytes=sum(
            {
                ref.id: ref.size for step in ordered for ref in (*step.observation, *_action(step), *step.outcome)
            }.values()
        ),
        flags=tuple(sorted(flags)),
        first_ms=min(times),
        last_ms=max(times),
    )
