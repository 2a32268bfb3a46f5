"""One verdict with every reason, from the trajectory, the policy and the facts alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide_governance.facts import FactsState
from ebbtide_governance.policy import REASONS, Judgement, decide, label, people
from ebbtide_schemas.records import FactRecord, GroupRef, Policy, SettledRecord
from support.trajectories import POLICY, USER, end, reward, segment, settle, step

STEPS = [step("a"), end("z", 1, "a")]
GOOD = settle(STEPS, [reward("r")], now_ms=100)


def facts(*given: dict[str, Any]) -> FactsState:
    state = FactsState()
    for offset, members in enumerate(given):
        values: dict[str, Any] = {"tenant": "acme", "fact_ms": 1000} | members
        state.apply(offset, FactRecord(**values))
    return state


def judge(settled: SettledRecord = GOOD, policy: Policy = POLICY, *given: dict[str, Any]) -> Judgement:
    return decide(settled, policy, facts(*given))


def test_a_trajectory_that_nothing_speaks_against_is_eligible() -> None:
    assert judge() == Judgement("eligible", ())


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"rewards": ()}, "unrewarded"),
        ({"purpose": None}, "purpose_missing"),
        ({"purpose": "evaluation"}, "purpose_not_allowed"),
        ({"purpose": None, "flags": ("purpose_mixed",)}, "purpose_mixed"),
        ({"flags": ("group_mixed",)}, "group_mixed"),
        ({"flags": ("segment_unreadable",)}, "segment_unreadable"),
        ({"end": "aborted"}, "aborted"),
        ({"end": "superseded"}, "superseded"),
        ({"text_bytes": POLICY.max_text_bytes + 1}, "too_large"),
        ({"chains": (), "flags": ("too_many_references",)}, "too_large"),
        ({"chains": ()}, "empty"),
        ({"missing_parents": 1}, "missing_parent"),
        ({"binary": True}, "binary_unseen"),
        ({"holes": 1}, "hole_after_action"),
    ],
)
def test_each_fault_has_a_code_that_calls_for_its_verdict(members: dict[str, Any], code: str) -> None:
    assert judge(replace(GOOD, **members)) == Judgement(REASONS[code].verdict, (code,))


def test_all_reasons_are_given_and_the_gravest_decides() -> None:
    bad = replace(GOOD, rewards=(), purpose=None, end="aborted", binary=True)
    assert judge(bad) == Judgement("rejected", ("aborted", "binary_unseen", "purpose_missing", "unrewarded"))


def test_every_reason_says_what_it_means_and_what_would_change_it() -> None:
    assert all(reason.text.endswith(".") and reason.remedy.endswith(".") for reason in REASONS.values())
    assert list(REASONS) == sorted(REASONS)


def test_an_unknown_reward_is_never_zero() -> None:
    """Case 21: a member without a value is rejected, and one whose value is zero is not."""
    assert judge(settle(STEPS, [])).reasons == ("unrewarded",)
    assert judge(settle(STEPS, [reward("r", 0.0)], now_ms=100)).verdict == "eligible"


def test_a_policy_can_ask_for_a_declared_subject_and_allow_binary_content() -> None:
    assert judge(replace(GOOD, subject_declared=False), Policy(require_subject=True)).reasons == ("subject_unknown",)
    assert judge(replace(GOOD, binary=True), Policy(allow_binary=True)).verdict == "eligible"


@pytest.mark.parametrize(("purpose", "reasons"), [("training", ("consent_withdrawn",)), ("evaluation", ())])
def test_a_withdrawn_consent_rejects_for_its_purpose(purpose: str, reasons: tuple[str, ...]) -> None:
    withdrawn = {"kind": "consent", "subject": USER, "purpose": purpose, "state": "withdrawn"}
    assert judge(GOOD, POLICY, withdrawn).reasons == reasons


def test_a_third_persons_withdrawal_counts_as_well() -> None:
    steps = [step("a", observation=(segment("x", subjects=("subject-third",)),), end="terminated")]
    settled = settle(steps, [reward("r")], now_ms=100)
    assert people(settled) == {USER, "subject-third"}
    withdrawn = {"kind": "consent", "subject": "subject-third", "state": "withdrawn"}
    assert judge(settled, POLICY, withdrawn).reasons == ("consent_withdrawn",)


def test_the_erasure_of_the_person_it_was_recorded_with_rejects() -> None:
    assert judge(GOOD, POLICY, {"kind": "erasure", "subject": USER}).reasons == ("subject_erased",)


def test_the_erasure_of_a_third_person_holds_it_until_it_is_rendered_again() -> None:
    steps = [step("a"), step("b", 1, "a", observation=(segment("x", subjects=("third",)),), end="terminated")]
    erased = {"kind": "erasure", "subject": "third"}
    before = settle(steps, [reward("r")], now_ms=100)
    after = settle(steps, [reward("r")], now_ms=100, holes=frozenset({"x"}))
    assert judge(before, POLICY, erased) == Judgement("held", ("erasure_pending",))
    assert judge(after, POLICY, erased) == Judgement("eligible", ("hole_after_action",))


def test_a_hold_holds_until_it_is_lifted() -> None:
    held = {"kind": "hold", "subject": USER, "state": "set"}
    assert judge(GOOD, POLICY, held) == Judgement("held", ("hold",))
    assert judge(GOOD, POLICY, held, {**held, "state": "lifted"}).verdict == "eligible"


def test_an_approval_waives_what_a_person_can_judge_and_nothing_else() -> None:
    approved = {"kind": "review", "trajectory": GOOD.trajectory, "state": "approved"}
    assert judge(replace(GOOD, binary=True), POLICY, approved) == Judgement("eligible", ("review_approved",))
    assert judge(replace(GOOD, rewards=()), POLICY, approved).verdict == "rejected"
    held = {"kind": "hold", "trajectory": GOOD.trajectory, "state": "set"}
    assert judge(replace(GOOD, binary=True), POLICY, approved, held).verdict == "held"


def test_an_approval_does_not_speak_of_a_revision_that_came_after_it() -> None:
    approved = {"kind": "review", "trajectory": GOOD.trajectory, "state": "approved", "fact_ms": 50}
    assert judge(replace(GOOD, binary=True), POLICY, approved).reasons == ("binary_unseen",)


def test_a_refusal_rejects() -> None:
    refused = {"kind": "review", "trajectory": GOOD.trajectory, "state": "refused"}
    assert judge(GOOD, POLICY, refused) == Judgement("rejected", ("review_refused",))


def test_a_decision_names_its_policy() -> None:
    assert label(Policy(name="strict", version=3)) == "strict@3"


def test_a_group_is_no_reason_by_itself() -> None:
    assert judge(replace(GOOD, group=GroupRef(id="g", size=2))).verdict == "eligible"
