"""When a trajectory settles and to what: the rules one by one. Orders of arrival are in tests/property."""

from __future__ import annotations

import math

import pytest

from ebbtide_governance.settlement import Waiting
from ebbtide_schemas.chain import chain_order, trajectory_root
from support.trajectories import (
    FAR_MS,
    IDLE_MS,
    POLICY,
    TRAJECTORY,
    USER,
    WINDOW_MS,
    end,
    reward,
    segment,
    settle,
    step,
    waits,
)

ENDED = [step("a"), end("z", 1, "a")]


# --- when -----------------------------------------------------------------------------------------------------


def test_an_ended_and_rewarded_trajectory_settles_at_once() -> None:
    assert settle(ENDED, [reward("r")], now_ms=1).end == "terminated"


def test_an_unrewarded_one_waits_for_the_window_after_its_last_receipt() -> None:
    assert waits(ENDED, [], now_ms=1000) == Waiting(1 + WINDOW_MS, "unrewarded")
    assert settle(ENDED, [], now_ms=1 + WINDOW_MS).rewards == ()


def test_one_without_end_mark_waits_until_it_is_idle() -> None:
    assert waits([step("a")], [reward("r")], now_ms=0) == Waiting(IDLE_MS, "open")
    assert settle([step("a")], [reward("r")], now_ms=IDLE_MS).end == "idle"


def test_an_end_mark_whose_ancestors_are_not_there_does_not_end_it() -> None:
    steps = [step("a"), end("z", 2, "b")]
    assert waits(steps, [reward("r")], now_ms=10) == Waiting(2 + IDLE_MS, "missing_parent")
    assert settle([*steps, step("b", 1, "a")], [reward("r")], now_ms=10).missing_parents == 0


def test_a_step_after_the_end_reopens_it() -> None:
    reopened = [*ENDED, step("b", 2, "z", received_ms=50)]
    assert waits(reopened, [reward("r")], now_ms=60) == Waiting(50 + IDLE_MS, "open")


def test_a_sub_agents_end_mark_does_not_end_the_trajectory() -> None:
    steps = [step("a"), step("sub", 1, "a", branch="sub-agent", end="terminated"), step("b", 2, "a")]
    assert waits(steps, [reward("r")], now_ms=10).why == "open"


def test_rewards_for_steps_that_never_came_wait_for_ever() -> None:
    assert waits([], [reward("r")], now_ms=FAR_MS) == Waiting(None, "no_step")


def test_required_rewards_are_asked_for_by_name() -> None:
    policy = type(POLICY)(idle_s=100, reward_window_s=1000, required_rewards=("resolved", "polite"))
    assert waits(ENDED, [reward("r", name="resolved")], now_ms=10, policy=policy).why == "unrewarded"
    both = [reward("r", name="resolved"), reward("s", name="polite")]
    assert len(settle(ENDED, both, now_ms=10, policy=policy).rewards) == 2


@pytest.mark.parametrize("event_ms", [2_556_057_600_000, 1000, -1, 1_773_480_000_018_000, None])
def test_a_clock_that_is_far_off_moves_no_deadline(event_ms: int | None) -> None:
    """Case 37: idle time and deadlines follow receipt; a suspect time is never earlier or later than that."""
    steps = [step("a", received_ms=5000, event_ms=event_ms, time_suspect=True), end("z", 1, "a", received_ms=6000)]
    assert waits(steps, [], now_ms=7000) == Waiting(6000 + WINDOW_MS, "unrewarded")
    settled = settle(steps, [reward("r", event_ms=event_ms, time_suspect=True, received_ms=7000)], now_ms=7000)
    assert (settled.first_ms, settled.last_ms) == (5000, 6000)
    assert [(one.event_ms, one.late) for one in settled.rewards] == [(7000, False)]
    assert "time_suspect" in settled.flags


def test_a_clock_that_runs_ahead_is_clamped_even_where_nobody_suspects_it() -> None:
    steps = [step("a", received_ms=5000, event_ms=9000), end("z", 1, "a", received_ms=6000)]
    assert settle(steps, [reward("r")]).last_ms == 6000


# --- rewards --------------------------------------------------------------------------------------------------


def test_a_reward_that_happened_in_the_window_is_on_time_whenever_it_arrives() -> None:
    early = settle(ENDED, [reward("r", event_ms=500, received_ms=600)])
    late_arrival = settle(ENDED, [reward("r", event_ms=500, received_ms=FAR_MS)])
    assert late_arrival == early
    assert not early.rewards[0].late


def test_a_reward_that_happened_after_the_window_is_marked_late() -> None:
    settled = settle(ENDED, [reward("r", event_ms=WINDOW_MS + 2, received_ms=FAR_MS)])
    assert settled.rewards[0].late


def test_a_superseded_reward_no_longer_counts() -> None:
    given = [reward("r", 1.0), reward("s", 0.0, supersedes="r", event_ms=7), reward("t", 0.5, supersedes="s")]
    assert [(one.event, one.value) for one in settle(ENDED, given).rewards] == [("t", 0.5)]


def test_sums_of_rewards_are_never_doubled() -> None:
    """Case 35: a reward is set by its id, so a hundred of them sum to a hundred however often they come."""
    given = [reward(f"r-{i:03}", 1.0) for i in range(100)]
    settled = settle(ENDED * 3, given + given[::-1] + given[:50])
    assert sum(one.value for one in settled.rewards) == 100
    assert settled.steps == 2


def test_an_equal_value_is_exactly_the_value_that_was_sent() -> None:
    """Case 21: 0.45 is not exact in binary; it must not pick up a residue on its way."""
    assert {one.value for one in settle(ENDED, [reward(f"r{i}", 0.45) for i in range(8)]).rewards} == {0.45}


# --- chains ---------------------------------------------------------------------------------------------------


def test_steps_that_continue_one_another_are_one_chain() -> None:
    settled = settle([step("a"), step("b", 1, "a"), end("z", 2, "b")], [reward("r")])
    (chain,) = settled.chains
    assert [(ref.segment, ref.trained) for ref in chain.segments] == [
        ("a-read", False),
        ("a-said", True),
        ("b-read", False),
        ("b-said", True),
    ]
    assert (chain.steps, chain.rollout_weight) == (("a", "b", "z"), 1.0)


def test_tool_results_are_context_and_stand_after_the_call() -> None:
    settled = settle([step("a", outcome=(segment("a-result", "tool"),), end="terminated")], [reward("r")])
    assert [(ref.segment, ref.role, ref.trained) for ref in settled.chains[0].segments][2:] == [
        ("a-result", "tool", False)
    ]


def test_a_fork_reads_its_prefix_and_trains_only_its_own_actions() -> None:
    steps = [step("a"), step("b", 1, "a"), step("f", 1, "a", branch="fork", prefix=1, end="terminated")]
    main, fork = settle(steps, [reward("r")]).chains
    assert main.steps == ("a", "b")
    assert [(ref.segment, ref.trained) for ref in fork.segments] == [
        ("a-read", False),
        ("f-read", False),
        ("f-said", True),
    ]
    assert main.rollout_weight == fork.rollout_weight == 0.5


def test_an_edit_starts_a_chain_without_what_was_removed() -> None:
    steps = [step("a"), step("b", 1, "a", branch="edit", removed=(1,), prefix=1, end="terminated")]
    _, edited = settle(steps, [reward("r")]).chains
    assert [ref.segment for ref in edited.segments] == ["a-read", "b-read", "b-said"]


def test_a_sub_agent_starts_with_nothing_it_was_not_given() -> None:
    steps = [step("a"), step("sub", 1, "a", branch="sub-agent"), end("z", 2, "a")]
    _, sub = settle(steps, [reward("r")]).chains
    assert [ref.segment for ref in sub.segments] == ["sub-read", "sub-said"]


def test_the_second_continuation_of_a_step_is_a_chain_of_its_own() -> None:
    steps = [step("a"), step("b", 1, "a"), step("c", 2, "a", end="terminated")]
    first, second = settle(steps, [reward("r")]).chains
    assert (first.steps, second.steps) == (("a", "b"), ("c",))
    assert [ref.segment for ref in second.segments][:2] == ["a-read", "a-said"]


def test_a_prefix_shorter_than_the_context_starts_a_chain() -> None:
    steps = [step("a"), step("b", 1, "a", prefix=1, end="terminated")]
    assert [chain.steps for chain in settle(steps, [reward("r")]).chains] == [("a",), ("b",)]


def test_every_action_is_trained_exactly_once_and_weights_sum_to_one() -> None:
    steps = [step("a"), *(step(f"f{i}", 1 + i, "a", branch="fork", prefix=2) for i in range(9)), end("z", 20, "a")]
    settled = settle(steps, [reward("r")])
    trained = [ref.segment for chain in settled.chains for ref in chain.segments if ref.trained]
    assert sorted(trained) == sorted(["a-said", *(f"f{i}-said" for i in range(9))])
    assert math.isclose(math.fsum(chain.rollout_weight for chain in settled.chains), 1.0)


def test_a_missing_parent_is_counted_and_its_child_kept() -> None:
    """Case 18: of a, b(a), c(b), d(never sent), e(a), r2(b) no step is lost and one parent is unknown."""
    steps = [
        step("c", 2, "b"),
        step("d", 1, "never", received_ms=4),
        step("a"),
        step("e", 4, "a", event_ms=-5),
        step("b", 1, "a"),
        step("r2", 3, "b", branch="fork"),
    ]
    settled = settle(steps, [reward("r")])
    assert settled.missing_parents == 1
    assert sorted(event for chain in settled.chains for event in chain.steps) == ["a", "b", "c", "d", "e", "r2"]
    assert settled.root == trajectory_root([one.digest for one in chain_order(steps)])


def test_a_trajectory_of_orphans_settles_and_says_so() -> None:
    """Case 18: it becomes visible after the waiting time, with its root missing."""
    settled = settle([step("x", 3, "gone")], [reward("r")])
    assert (settled.missing_parents, settled.end) == (1, "idle")


def test_steps_whose_parents_form_a_ring_settle() -> None:
    settled = settle([step("a", 1, "b"), step("b", 2, "a", end="terminated")], [reward("r")])
    assert settled.missing_parents == 1
    assert settled.steps == 2


# --- holes ----------------------------------------------------------------------------------------------------


def test_actions_before_a_hole_are_trained_and_actions_after_it_are_not() -> None:
    steps = [step("a"), step("b", 1, "a", end="terminated")]
    settled = settle(steps, [reward("r")], holes=frozenset({"b-read"}))
    assert [(ref.segment, ref.trained, ref.hole) for ref in settled.chains[0].segments] == [
        ("a-read", False, False),
        ("a-said", True, False),
        ("b-read", False, True),
        ("b-said", False, False),
    ]
    assert settled.holes == 1


def test_a_hole_breaks_every_chain_that_read_it_and_no_other() -> None:
    steps = [
        step("a"),
        step("f", 1, "a", branch="fork", prefix=2),
        step("s", 2, "a", branch="sub-agent", end="terminated"),
    ]
    settled = settle(steps, [reward("r")], holes=frozenset({"a-read"}))
    assert [chain.steps for chain in settled.chains] == [("s",)]
    assert settled.chains[0].rollout_weight == 1.0


# --- what a revision says of itself ------------------------------------------------------------------------------


def test_steps_that_disagree_on_the_purpose_leave_it_open() -> None:
    settled = settle([step("a"), step("b", 1, "a", purpose="evaluation", end="terminated")], [reward("r")])
    assert settled.purpose is None
    assert "purpose_mixed" in settled.flags


def test_a_step_that_names_no_purpose_takes_the_others() -> None:
    assert settle([step("a"), end("z", 1, "a", purpose=None)], [reward("r")]).purpose == "training"


def test_subjects_are_those_of_the_steps() -> None:
    settled = settle([step("a"), end("z", 1, "a", subjects=("subject-b",))], [reward("r")])
    assert settled.subjects == ("subject-b", USER)


def test_the_number_of_a_revision_and_its_tick_are_not_in_its_digest() -> None:
    first = settle(ENDED, [reward("r")], now_ms=10, revision=0)
    again = settle(ENDED, [reward("r")], now_ms=FAR_MS, revision=7)
    assert first.digest == again.digest
    assert (again.revision, again.settled_ms, again.trajectory) == (7, FAR_MS, TRAJECTORY)


def test_text_is_counted_once_however_often_it_is_read() -> None:
    steps = [step("a"), step("f", 1, "a", branch="fork", prefix=2, end="terminated")]
    assert settle(steps, [reward("r")]).text_bytes == 40


def test_more_references_than_a_record_holds_are_left_out_and_flagged() -> None:
    many = tuple(segment(f"s{i}") for i in range(2000))
    steps = [step("a", observation=many), *(step(f"f{i}", 1, "a", branch="fork", prefix=2000) for i in range(5))]
    settled = settle(steps, [reward("r")])
    assert settled.chains == ()
    assert "too_many_references" in settled.flags
