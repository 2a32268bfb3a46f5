"""The settle, judge and group stages say the same in the end, whatever came when, and how often."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide_platform.topics import FINDINGS
from support.stages import WINDOW_MS, Pipeline, group

NAMES = ("one", "two")
STEPS = ("a", "b", "z")
REWARDS = ("r", "s")
ARRIVALS = [(name, event) for name in NAMES for event in (*STEPS, *REWARDS)]


def arrive(pipeline: Pipeline, name: str, event: str) -> None:
    """One event of a trajectory of two steps, an end mark and two rewards."""
    if event in REWARDS:
        pipeline.reward(f"{name}-{event}", 0.5, trajectory=name)
        return
    ordinal = STEPS.index(event)
    parent = STEPS[ordinal - 1] if ordinal else None
    is_end = event == "z"
    says = () if is_end else (("user", f"{event}: I am Ada Lovelace", ()), ("assistant", f"{event}: hi", ()))
    record = pipeline.header(
        event,
        ordinal,
        parent,
        trajectory=name,
        says=says,
        finds=["Ada Lovelace"],
        end="terminated" if is_end else None,
        group=group("g", 2),
    )
    pipeline.feed(FINDINGS.name, record)


@settings(max_examples=30, deadline=None)
@given(
    order=st.permutations(ARRIVALS),
    repeats=st.lists(st.sampled_from(ARRIVALS), max_size=6),
    ticks=st.sets(st.integers(0, 20)),
    restarts=st.sets(st.integers(0, 20)),
)
def test_the_last_word_is_the_same(
    order: list[tuple[str, str]], repeats: list[tuple[str, str]], ticks: set[int], restarts: set[int]
) -> None:
    pipeline = Pipeline()
    for moment, (name, event) in enumerate([*order, *repeats]):
        arrive(pipeline, name, event)
        if moment in ticks:
            pipeline.tick(WINDOW_MS)
        if moment in restarts:
            pipeline.start()
    pipeline.tick(2 * WINDOW_MS)
    newest = {decision.settled.trajectory: decision for decision in pipeline.decisions}
    assert len(newest) == len(NAMES)
    for decision in newest.values():
        assert (decision.verdict, decision.reasons) == ("eligible", ())
        assert sum(reward.value for reward in decision.settled.rewards) == 1.0
        assert pipeline.texts(decision.settled) == [
            "a: I am [PERSON_1]",
            "a: hi",
            "b: I am [PERSON_1]",
            "b: hi",
        ]
        revisions = [one.revision for one in pipeline.settled if one.trajectory == decision.settled.trajectory]
        assert revisions == list(range(len(revisions)))
    assert pipeline.groups[-1].state == "complete"
    assert {member.trajectory for member in pipeline.groups[-1].members} == set(newest)
