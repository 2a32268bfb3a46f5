"""Facts in total order, views that never change, and who was touched since when."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide_governance import facts as module
from ebbtide_governance.facts import FactsState, Review, Touched
from ebbtide_schemas.records import FactRecord, Policy


def fact(kind: Any, **members: Any) -> FactRecord:
    return FactRecord(kind=kind, tenant=members.pop("tenant", "acme"), fact_ms=members.pop("fact_ms", 0), **members)


def state_of(*facts: FactRecord) -> FactsState:
    state = FactsState()
    for offset, one in enumerate(facts):
        state.apply(offset, one)
    return state


def test_nothing_is_ruled_before_the_first_fact() -> None:
    state = FactsState()
    assert state.policy("acme") == Policy()
    assert state.consent("s", "training") is None
    assert not state.erased("s")
    assert not state.held("t", ["s"])
    assert state.review("t") is None
    assert not state.touched_since(0)


def test_a_tenants_own_policy_stands_before_the_deployments() -> None:
    state = state_of(
        fact("policy", tenant="acme", policy=Policy(name="own")), fact("policy", tenant=None, policy=Policy(version=2))
    )
    assert state.policy("acme").name == "own"
    assert state.policy("other").version == 2


@pytest.mark.parametrize(
    ("words", "training", "evaluation"),
    [
        ([("withdrawn", None)], "withdrawn", "withdrawn"),
        ([("withdrawn", "training")], "withdrawn", None),
        ([("withdrawn", None), ("given", "training")], "given", "withdrawn"),
        ([("given", "training"), ("withdrawn", None)], "withdrawn", "withdrawn"),
    ],
)
def test_the_newest_word_about_a_purpose_or_about_all_counts(
    words: list[tuple[Any, str | None]], training: str | None, evaluation: str | None
) -> None:
    state = state_of(*(fact("consent", subject="s", purpose=purpose, state=word) for word, purpose in words))
    assert state.consent("s", "training") == training
    assert state.consent("s", "evaluation") == evaluation
    assert state.consent("another", "training") is None


def test_a_hold_lies_on_a_trajectory_or_a_subject_until_it_is_lifted() -> None:
    state = state_of(fact("hold", subject="s", state="set"), fact("hold", trajectory="t", state="set"))
    assert state.held("x", ["s"])
    assert state.held("t", [])
    state.apply(2, fact("hold", subject="s", state="lifted"))
    assert not state.held("x", ["s"])


def test_an_erasure_is_final() -> None:
    state = state_of(fact("erasure", subject="s"), fact("consent", subject="s", state="given"))
    assert state.erased("s")


def test_a_review_keeps_the_moment_it_was_given() -> None:
    state = state_of(fact("review", trajectory="t", state="approved", fact_ms=7))
    assert state.review("t") == Review("approved", 7)


def test_a_view_never_changes() -> None:
    state = state_of(fact("consent", subject="s", state="given"))
    view = state.view()
    state.apply(1, fact("consent", subject="s", state="withdrawn"))
    state.apply(2, fact("erasure", subject="s"))
    assert (view.offset, view.consent("s", None), view.erased("s")) == (1, "given", False)
    assert view.touched_since(1) == Touched()
    assert (state.offset, state.consent("s", None), state.erased("s")) == (3, "withdrawn", True)


def test_a_fact_that_comes_again_changes_nothing() -> None:
    state = state_of(fact("consent", subject="s", state="given"), fact("consent", subject="s", state="withdrawn"))
    state.apply(0, fact("consent", subject="s", state="given"))
    assert state.consent("s", None) == "withdrawn"
    assert state.offset == 2


def test_a_fact_about_nobody_rules_nothing() -> None:
    state = state_of(fact("erasure"), fact("consent", state="withdrawn"), fact("hold", state="set"), fact("policy"))
    assert not state.held("t", ["s"])
    assert state.policy("acme") == Policy()


def test_touched_names_whom_the_facts_are_about() -> None:
    state = state_of(
        fact("erasure", subject="old"),
        fact("consent", subject="s", state="withdrawn"),
        fact("review", trajectory="t", state="approved"),
        fact("policy", tenant="acme", policy=Policy()),
        fact("tenant", tenant="other"),
    )
    assert state.touched_since(1) == Touched(frozenset({"s"}), frozenset({"t"}), frozenset({"acme"}))
    assert not state.touched_since(4)


def test_a_policy_for_all_touches_everybody() -> None:
    assert state_of(fact("policy", tenant=None, policy=Policy())).touched_since(0).everybody


def test_a_question_older_than_what_is_remembered_is_answered_everybody() -> None:
    count = module.TOUCHES + 1
    state = state_of(*(fact("consent", subject=f"s{i}", state="given") for i in range(count)))
    assert state.touched_since(0).everybody
    assert len(state.touched_since(1).subjects) == module.TOUCHES
