"""Settle, judge and group end to end over memory stores: verdicts follow the facts, groups follow the verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide_platform.topics import MEMBERS, TRAJECTORIES
from support.stages import POLICY, WINDOW_MS, Pipeline, group

DEADLINE_MS = 500_000


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def settle(pipeline: Pipeline, trajectory: str = "t", value: float | None = 1.0, **members: Any) -> None:
    """One trajectory of one step, ended, and rewarded unless ``value`` is None."""
    pipeline.step("a", trajectory=trajectory, end="terminated", **members)
    if value is not None:
        tenant = members.get("tenant", "acme")
        pipeline.reward(f"r-{tenant}-{trajectory}", value, trajectory=trajectory, tenant=tenant)


# --- verdicts -------------------------------------------------------------------------------------------------


def test_a_decision_says_what_it_was_based_on(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    (decision,) = pipeline.decisions
    assert (decision.verdict, decision.reasons, decision.policy) == ("eligible", (), "default@1")
    assert (decision.facts_offset, decision.decided_ms) == (1, 20)
    assert decision.settled == pipeline.settled[0]


def test_an_unrewarded_trajectory_is_rejected_and_a_reward_of_any_age_mends_it(pipeline: Pipeline) -> None:
    settle(pipeline, value=None)
    pipeline.tick(WINDOW_MS)
    assert pipeline.verdict() == ("rejected", ("unrewarded",))
    pipeline.reward("r", event_ms=5 * WINDOW_MS, received_ms=5 * WINDOW_MS)
    pipeline.tick(5 * WINDOW_MS)
    assert pipeline.verdict() == ("eligible", ())
    assert pipeline.settled[-1].rewards[0].late


def test_a_consent_withdrawn_later_is_seen_at_the_next_tick(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    pipeline.fact("consent", subject=pipeline.subject("ada"), purpose="training", state="withdrawn")
    pipeline.tick(30)
    pipeline.tick(40)
    assert [one.verdict for one in pipeline.decisions] == ["eligible", "rejected"]
    assert pipeline.verdict() == ("rejected", ("consent_withdrawn",))
    assert (pipeline.decisions[-1].facts_offset, pipeline.decisions[-1].decided_ms) == (2, 30)
    assert pipeline.decisions[-1].settled.revision == 0
    pipeline.fact("consent", subject=pipeline.subject("ada"), state="given")
    pipeline.tick(50)
    assert pipeline.verdict() == ("eligible", ())


def test_a_consent_withdrawn_before_the_first_step_rejects_at_once(pipeline: Pipeline) -> None:
    pipeline.fact("consent", subject=pipeline.subject("ada"), state="withdrawn")
    settle(pipeline)
    pipeline.tick(20)
    assert [one.reasons for one in pipeline.decisions] == [("consent_withdrawn",)]


def test_the_erasure_of_the_person_it_was_recorded_with_withdraws_all_of_it(pipeline: Pipeline) -> None:
    settle(pipeline)
    settle(pipeline, "other", subject="bob")
    pipeline.tick(20)
    pipeline.erase("ada")
    pipeline.tick(30)
    newest = {one.settled.trajectory: one for one in pipeline.decisions}
    erased, untouched = (newest[settled.trajectory] for settled in pipeline.settled[:2])
    if erased.verdict == "eligible":
        erased, untouched = untouched, erased
    assert "subject_erased" in erased.reasons
    assert erased.verdict == "rejected"
    assert (erased.settled.revision, erased.settled.holes, erased.settled.chains) == (1, 2, ())
    assert (untouched.verdict, untouched.settled.revision) == ("eligible", 0)


def test_until_a_hole_is_rendered_a_trajectory_with_an_erased_third_person_is_held(pipeline: Pipeline) -> None:
    says = [("user", "hello", ()), ("assistant", "hi", ()), ("tool", "his file", ("son",))]
    settle(pipeline, says=says)
    pipeline.tick(20)
    pipeline.erase("son")
    pipeline.feed(TRAJECTORIES.name, replace(pipeline.settled[0], revision=1, digest="judged before settle sees it"))
    assert pipeline.verdict() == ("held", ("erasure_pending",))


def test_a_hold_holds_and_its_lifting_frees(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    pipeline.fact("hold", trajectory=pipeline.settled[0].trajectory, state="set")
    pipeline.tick(30)
    assert pipeline.verdict() == ("held", ("hold",))
    pipeline.fact("hold", trajectory=pipeline.settled[0].trajectory, state="lifted")
    pipeline.tick(40)
    assert pipeline.verdict() == ("eligible", ())


def test_another_policy_judges_everybody_again(pipeline: Pipeline) -> None:
    for i in range(3):
        settle(pipeline, f"t{i}")
    pipeline.tick(20)
    pipeline.fact("policy", tenant="acme", policy=replace(POLICY, name="strict", version=2, purposes=("evaluation",)))
    pipeline.tick(30)
    assert [one.reasons for one in pipeline.decisions[3:]] == [("purpose_not_allowed",)] * 3
    assert {one.policy for one in pipeline.decisions[3:]} == {"strict@2"}


def test_the_same_verdict_is_not_said_twice(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    pipeline.fact("consent", subject="somebody-else", state="given")
    for record in pipeline.settled * 2:
        pipeline.feed(TRAJECTORIES.name, record)
    pipeline.start()
    pipeline.tick(30)
    assert len(pipeline.decisions) == 1


def test_eligible_is_said_again_when_consent_was_withdrawn_and_given_between_two_ticks(pipeline: Pipeline) -> None:
    """The curator, which looks at the newest facts, may have seen the withdrawal alone."""
    settle(pipeline)
    pipeline.tick(20)
    pipeline.fact("consent", subject=pipeline.subject("ada"), state="withdrawn")
    pipeline.fact("consent", subject=pipeline.subject("ada"), state="given")
    pipeline.tick(30)
    first, again = pipeline.decisions
    assert (first.verdict, again.verdict) == ("eligible", "eligible")
    assert again.facts_offset > first.facts_offset


def test_an_older_revision_never_replaces_a_newer_one(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    pipeline.reward("s", 0.0)
    pipeline.tick(30)
    pipeline.feed(TRAJECTORIES.name, pipeline.settled[0])
    assert [one.settled.revision for one in pipeline.decisions] == [0, 1]


def test_a_step_after_the_end_is_judged_as_a_new_revision(pipeline: Pipeline) -> None:
    settle(pipeline)
    pipeline.tick(20)
    pipeline.step("b", 1, "a", end="aborted", received_ms=50)
    pipeline.tick(60)
    assert [(one.settled.revision, one.verdict) for one in pipeline.decisions] == [(0, "eligible"), (1, "rejected")]
    assert pipeline.verdict()[1] == ("aborted",)


def test_an_orphan_becomes_visible_after_the_waiting_time_and_is_not_eligible(pipeline: Pipeline) -> None:
    """Case 18."""
    pipeline.step("x", 3, "gone")
    pipeline.reward("r")
    pipeline.tick(100_003)
    assert pipeline.verdict() == ("held", ("missing_parent",))
    pipeline.step("gone", 2, None)
    pipeline.tick(200_006)
    assert pipeline.verdict() == ("eligible", ())


# --- groups ---------------------------------------------------------------------------------------------------


def test_four_eligible_members_make_a_complete_group(pipeline: Pipeline) -> None:
    """Case 23: prompts A and B, interleaved, make two groups of four."""
    for i in range(4):
        for prompt in ("A", "B"):
            settle(pipeline, f"{prompt}{i}", 0.0, group=group(prompt, 4))
    pipeline.tick(20)
    assert [(one.state, one.revision, len(one.members)) for one in pipeline.groups] == [("complete", 0, 4)] * 2
    assert len({member.trajectory for one in pipeline.groups for member in one.members}) == 8


def test_groups_never_mix_tenants() -> None:
    """Case 23: the same prompt of another tenant stands in a group of its own, even under an equal group id."""
    pipeline = Pipeline("acme", "other")
    shared = group("A", 2)
    settle(pipeline, "t1", group=shared)
    settle(pipeline, "t2", tenant="other", group=shared)
    pipeline.tick(20)
    assert pipeline.groups == []
    settle(pipeline, "t3", group=shared)
    settle(pipeline, "t4", tenant="other", group=shared)
    pipeline.tick(30)
    tenant_of = {member.trajectory: member.tenant for member in pipeline.members}
    assert sorted(one.tenant for one in pipeline.groups) == ["acme", "other"]
    for one in pipeline.groups:
        assert {tenant_of[member.trajectory] for member in one.members} == {one.tenant}
    assert group("A", 2, "acme").id != group("A", 2, "other").id


def test_a_member_without_a_reward_leaves_a_short_group_that_its_reward_completes(pipeline: Pipeline) -> None:
    """Case 21: the missing one is left out, with its reason; when it comes the group is complete after all."""
    for i in range(4):
        settle(pipeline, f"t{i}", 0.4 if i else None, group=group("g", 4))
    pipeline.tick(20)
    assert pipeline.groups == []
    pipeline.tick(WINDOW_MS)
    assert [one.state for one in pipeline.groups] == ["short"]
    assert [one.reasons for one in pipeline.groups[0].members if one.verdict != "eligible"] == [("unrewarded",)]
    pipeline.reward("r", 0.4, trajectory="t0", received_ms=WINDOW_MS)
    pipeline.tick(WINDOW_MS + 10)
    assert [(one.state, one.revision) for one in pipeline.groups] == [("short", 0), ("complete", 1)]


def test_the_deadline_closes_a_group_by_receipt_time(pipeline: Pipeline) -> None:
    for name in ("t1", "t2"):
        settle(pipeline, name, group=group("g", 4), event_ms=2_556_057_600_000, time_suspect=True)
    settle(pipeline, "alone", group=group("h", 4))
    pipeline.tick(20)
    pipeline.tick(20 + DEADLINE_MS - 1)
    assert pipeline.groups == []
    pipeline.tick(20 + DEADLINE_MS)
    assert sorted(one.state for one in pipeline.groups) == ["expired", "short"]


def test_a_group_that_loses_a_member_gets_a_new_revision(pipeline: Pipeline) -> None:
    for i, subject in enumerate(("ada", "bob", "eve")):
        settle(pipeline, f"t{i}", group=group("g", 3), subject=subject)
    pipeline.tick(20)
    pipeline.erase("bob")
    pipeline.tick(30)
    assert [(one.state, one.revision) for one in pipeline.groups] == [("complete", 0), ("short", 1)]
    lost = [member for member in pipeline.groups[-1].members if member.verdict != "eligible"]
    assert ["subject_erased" in member.reasons for member in lost] == [True]


def test_members_that_come_again_change_nothing(pipeline: Pipeline) -> None:
    for i in range(2):
        settle(pipeline, f"t{i}", group=group("g", 2))
    pipeline.tick(20)
    for member in reversed(list(pipeline.members)):
        pipeline.feed(MEMBERS.name, member)
    pipeline.start()
    pipeline.tick(30)
    assert len(pipeline.groups) == 1


def test_a_trajectory_that_changes_its_group_leaves_the_old_one(pipeline: Pipeline) -> None:
    settle(pipeline, group=group("g", 1))
    pipeline.tick(20)
    moved = replace(pipeline.settled[0], revision=1, digest="moved", group=group("h", 1))
    pipeline.feed(TRAJECTORIES.name, moved)
    pipeline.tick(30)
    left, joined = sorted(pipeline.groups[1:], key=lambda one: one.group.id != group("g", 1).id)
    assert (left.state, left.members[0].reasons) == ("expired", ("group_changed",))
    assert (joined.group.id, joined.state) == (group("h", 1).id, "complete")
