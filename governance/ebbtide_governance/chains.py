"""Cuts the steps of a trajectory into chains: maximal runs in which each step extends the one before.

A chain becomes one curated sample. What a chain takes over from the run it left is context: every action is
trained in exactly one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ebbtide_platform.sealing.identity import sample_id
from ebbtide_schemas.records import Level, SegmentRef, StepHeader

_LEVELS: tuple[Level, ...] = ("recorded", "replayable", "token-exact")


@dataclass(frozen=True)
class PlannedSegment:
    """A segment at its place in a chain; ``trained`` if it is an action of the chain's own steps."""

    ref: SegmentRef
    trained: bool


@dataclass(frozen=True)
class PlannedChain:
    """A chain before anything is known of its text."""

    sample: str
    steps: tuple[str, ...]
    segments: tuple[PlannedSegment, ...]
    level: Level


@dataclass
class _Run:
    """A chain while it grows; ``length_after`` says how many segments stood when each step was done."""

    segments: list[PlannedSegment]
    steps: list[str] = field(default_factory=list)
    length_after: dict[str, int] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)

    def extend(self, step: StepHeader) -> None:
        self.segments += [PlannedSegment(ref, trained=ref is step.action) for ref in segments_of(step)]
        if step.action is not None:
            self.levels.append(step.level)
        self.steps.append(step.event)
        self.length_after[step.event] = len(self.segments)


def cut(trajectory: str, ordered: Sequence[StepHeader]) -> tuple[PlannedChain, ...]:
    """The chains of steps that stand in chain order (`ebbtide_schemas.chain.chain_order`).

    A step extends its parent's chain if it continues it, nothing has done so before, and the prefix it names
    is the whole of it (0: it names none). Any other step starts a chain with the context that it keeps.
    """
    runs: list[_Run] = []
    run_of: dict[str, _Run] = {}
    for step in ordered:
        parent = run_of.get(step.parent) if step.parent is not None else None
        if parent is not None and _extends(step, parent):
            run = parent
        else:
            run = _Run(_context(step, parent))
            runs.append(run)
        run.extend(step)
        run_of[step.event] = run
    return tuple(
        PlannedChain(sample_id(trajectory, run.steps[0]), tuple(run.steps), tuple(run.segments), lowest(run.levels))
        for run in runs
    )


def segments_of(step: StepHeader) -> tuple[SegmentRef, ...]:
    """The messages that ``step`` adds to the context, in order: what it read, what it said, what came of it."""
    refs = (*step.observation, *((step.action,) if step.action is not None else ()), *step.outcome)
    return tuple(ref for ref in refs if ref.kind == "message")


def lowest(levels: Sequence[Level]) -> Level:
    """The level that all of ``levels`` reach; *recorded* if there are none."""
    return min(levels, key=_LEVELS.index, default="recorded")


def _extends(step: StepHeader, run: _Run) -> bool:
    is_tip = run.steps[-1] == step.parent
    return step.branch == "continue" and is_tip and (step.prefix == 0 or step.prefix >= len(run.segments))


def _context(step: StepHeader, run: _Run | None) -> list[PlannedSegment]:
    """What the step read before its own observation, as far as it is known."""
    if run is None or step.parent is None:
        return []
    read = run.segments[: run.length_after[step.parent]]
    if step.branch in ("compaction", "edit"):
        removed = set(step.removed)
        read = [segment for position, segment in enumerate(read) if position not in removed]
    # A sub-agent reads what it is given; elsewhere 0 is a prefix that was not named.
    if step.prefix or step.branch == "sub-agent":
        read = read[: step.prefix]
    return [replace(segment, trained=False) for segment in read]
