"""Any order, duplication or delay of steps and rewards gives the same newest revision, apart from its number.

The oracle is a plain batch computation that sees every event once, in order, and knows neither orders of
arrival nor revisions; the history is driven as the stage drives it, tick by tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide_governance.settlement import Plan, Rendering, complete, plan
from ebbtide_schemas.records import Policy, RewardRecord, SettledRecord, StepHeader
from support.trajectories import FAR_MS, TRAJECTORY, reward, step

POLICY = Policy(idle_s=0.05, reward_window_s=0.2)
Events = list[StepHeader | RewardRecord]


@dataclass(frozen=True)
class Arrival:
    """An event, and the moment at which settlement sees it."""

    at_ms: int
    event: StepHeader | RewardRecord


@st.composite
def trajectories(draw: st.DrawFn) -> Events:
    """Up to seven steps with any parents, some absent, and up to four rewards that may supersede one another."""
    count = draw(st.integers(1, 7))
    steps: Events = []
    for i in range(count):
        parent = draw(st.sampled_from([None, "gone", *(f"s{j}" for j in range(count) if j != i)]))
        steps.append(
            step(
                f"s{i}",
                i,
                parent,
                branch=draw(st.sampled_from(["continue", "continue", "fork", "sub-agent", "edit"])),
                prefix=draw(st.integers(0, 4)),
                end=draw(st.sampled_from([None, None, "terminated", "truncated"])),
                received_ms=draw(st.integers(0, 300)),
                event_ms=draw(st.none() | st.integers(0, 400)),
                time_suspect=draw(st.booleans()),
            )
        )
    names = [f"r{i}" for i in range(draw(st.integers(0, 4)))]
    rewards: Events = [
        reward(
            name,
            draw(st.sampled_from([0.0, 0.45, 1.0])),
            received_ms=draw(st.integers(0, 900)),
            event_ms=draw(st.none() | st.integers(0, 900)),
            supersedes=draw(st.sampled_from([None, *(other for other in names if other != name)])),
        )
        for name in names
    ]
    return steps + rewards


@st.composite
def arrivals(draw: st.DrawFn, events: Events) -> list[Arrival]:
    """Each event at least once, in any order, at any time; a repeat may carry a later receipt time."""
    repeats = draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
    late = [replace(event, received_ms=event.received_ms + draw(st.integers(0, 50))) for event in repeats]
    ordered = draw(st.permutations([*events, *late]))
    return [Arrival(draw(st.integers(0, 1500)), event) for event in ordered]


def published(history: list[Arrival], *, holes: frozenset[str] = frozenset()) -> list[SettledRecord]:
    """Every revision that is published while the arrivals come in, with a tick after each and one at the end."""
    revisions: list[SettledRecord] = []
    seen: Events = []
    for moment, arrival in [*enumerate(sorted(history, key=lambda arrival: arrival.at_ms)), (FAR_MS, None)]:
        if arrival is not None:
            seen.append(arrival.event)
        settled = settled_from(seen, arrival.at_ms if arrival else moment, holes)
        if settled is not None and (not revisions or settled.digest != revisions[-1].digest):
            revisions.append(
                replace(settled, revision=len(revisions), supersedes=revisions[-1].revision if revisions else None)
            )
    return revisions


def settled_from(events: Events, now_ms: int, holes: frozenset[str]) -> SettledRecord | None:
    steps = [event for event in events if isinstance(event, StepHeader)]
    rewards = [event for event in events if isinstance(event, RewardRecord)]
    planned = plan(TRAJECTORY, steps, rewards, POLICY, now_ms=now_ms)
    if not isinstance(planned, Plan):
        return None
    rendered = {ref.id: Rendering(hole=ref.id in holes) for ref in planned.segments}
    return complete(planned, rendered, redaction="r1", revision=0, supersedes=None, settled_ms=now_ms)


def content(settled: SettledRecord) -> SettledRecord:
    """A revision without its number, what it supersedes and its tick."""
    return replace(settled, revision=0, supersedes=None, settled_ms=0)


# --- the oracle ---------------------------------------------------------------------------------------------------


def oracle(events: Events) -> dict[str, Any]:
    """What a batch that sees everything at once says of the same events, by other code."""
    steps = {event.event: event for event in events if isinstance(event, StepHeader)}
    rewards = {event.event: event for event in events if isinstance(event, RewardRecord)}

    def when(event: StepHeader | RewardRecord) -> int:
        trusted = event.event_ms is not None and not event.time_suspect
        return min(event.event_ms or 0, event.received_ms) if trusted else event.received_ms

    on_time = max(when(one) for one in steps.values()) + 200
    gone = {one.supersedes for one in rewards.values()}
    top = max(one.ordinal for one in steps.values())
    ends = {one.end for one in steps.values() if one.ordinal == top and one.end}
    return {
        "rewards": {
            (one.event, one.value, when(one), when(one) > on_time) for one in rewards.values() if one.event not in gone
        },
        "steps": len(steps),
        "end": "truncated" if "truncated" in ends else "terminated" if ends else "idle",
        "trained": sorted(f"{event}-said" for event in steps),
        "first_ms": min(when(one) for one in steps.values()),
        "last_ms": max(when(one) for one in steps.values()),
    }


def summary(settled: SettledRecord) -> dict[str, Any]:
    return {
        "rewards": {(one.event, one.value, one.event_ms, one.late) for one in settled.rewards},
        "steps": settled.steps,
        "end": settled.end,
        "trained": sorted(ref.segment for chain in settled.chains for ref in chain.segments if ref.trained),
        "first_ms": settled.first_ms,
        "last_ms": settled.last_ms,
    }


# --- the promises -------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_order_duplication_or_delay_gives_the_newest_revision_of_the_batch(data: st.DataObject) -> None:
    events = data.draw(trajectories())
    newest = published(data.draw(arrivals(events)))[-1]
    assert summary(newest) == oracle(events)
    batch = settled_from(events, FAR_MS, frozenset())
    assert batch is not None
    assert content(newest) == content(batch)


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_revisions_rise_by_one_and_each_names_the_one_it_supersedes(data: st.DataObject) -> None:
    revisions = published(data.draw(arrivals(data.draw(trajectories()))))
    assert [one.revision for one in revisions] == list(range(len(revisions)))
    assert [one.supersedes for one in revisions] == [None, *range(len(revisions) - 1)]


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_a_reward_that_comes_after_revision_0_gives_what_revision_0_would_have_been(data: st.DataObject) -> None:
    """The reward's event time lies in the window; its arrival lies after everything."""
    steps = [event for event in data.draw(trajectories()) if isinstance(event, StepHeader)]
    last = max(min(s.received_ms if s.time_suspect or s.event_ms is None else s.event_ms, s.received_ms) for s in steps)
    event_ms = data.draw(st.integers(0, last + 200))
    in_time = reward("r", 0.45, event_ms=event_ms, received_ms=max(event_ms, 300))
    too_late = replace(in_time, received_ms=FAR_MS - 1)
    before = [Arrival(0, one) for one in steps]
    first, *_ = published([*before, Arrival(0, in_time)])
    unrewarded, rewarded = published([*before, Arrival(FAR_MS - 2, steps[0]), Arrival(FAR_MS - 1, too_late)])
    assert unrewarded.rewards == ()
    assert content(rewarded) == content(first)
    assert not rewarded.rewards[0].late
    assert (rewarded.revision, rewarded.supersedes) == (1, 0)


@settings(max_examples=75, deadline=None)
@given(st.data())
def test_holes_never_add_training_and_never_lose_a_place(data: st.DataObject) -> None:
    events = data.draw(trajectories())
    steps = [event.event for event in events if isinstance(event, StepHeader)]
    holes = frozenset(data.draw(st.sets(st.sampled_from([f"{event}-read" for event in steps]))))
    whole, holed = (settled_from(events, FAR_MS, erased) for erased in (frozenset(), holes))
    assert whole is not None
    assert holed is not None
    places = {chain.sample: [ref.segment for ref in chain.segments] for chain in whole.chains}
    for chain in holed.chains:
        assert [ref.segment for ref in chain.segments] == places[chain.sample]
        first = next((i for i, ref in enumerate(chain.segments) if ref.hole), len(chain.segments))
        assert not any(ref.trained for ref in chain.segments[first:])
    assert holed.holes == len(holes)
    assert (whole.digest == holed.digest) == (not holes)
