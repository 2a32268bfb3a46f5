"""What a decision changes in a curated topic: nothing twice, nothing that must not be trained on any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide_governance.facts import FactsState
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    DecisionRecord,
    EffectiveReward,
    FactRecord,
    RenderedRef,
    SettledRecord,
    Verdict,
)
from ebbtide_streams.curation import Curation, Entry, curate, replay

REWARD = EffectiveReward(event="r", name="reward", value=1.0, source="human", event_ms=1, late=False)


def _decision(
    revision: int = 0, *samples: str, verdict: Verdict = "eligible", facts: int = 0, reasons: tuple[str, ...] = ()
) -> DecisionRecord:
    shown = RenderedRef(segment="x", role="assistant", trained=True, subjects=("ada",))
    settled = SettledRecord(
        tenant="acme",
        trajectory="t",
        session="t",
        revision=revision,
        supersedes=revision - 1 if revision else None,
        digest=f"{revision}",
        root="root",
        chains=tuple(
            Chain(sample=sample, steps=("s",), segments=(shown,), rollout_weight=1.0) for sample in samples or ("a",)
        ),
        rewards=(REWARD,),
        steps=1,
        subjects=("ada",),
        subject_declared=True,
        end="terminated",
        agent="support",
        purpose="training",
    )
    return DecisionRecord(
        settled=settled, verdict=verdict, reasons=reasons, policy="default@1", facts_offset=facts, decided_ms=1
    )


def _facts(*facts: dict[str, Any]) -> FactsState:
    state = FactsState()
    for offset, members in enumerate(facts):
        values: dict[str, Any] = {"tenant": "acme", "fact_ms": 1} | members
        state.apply(offset, FactRecord(**values))
    return state


NOTHING = _facts()
WITHDRAWN: dict[str, Any] = {"kind": "consent", "subject": "ada", "state": "withdrawn"}


def _shape(curation: Curation | None) -> tuple[list[str], list[str]]:
    assert curation is not None
    return [chain.sample for chain in curation.chains], [record.sample for record in curation.withdrawals]


def test_an_eligible_trajectory_is_written_chain_by_chain() -> None:
    curation = curate(_decision(0, "a", "b"), None, NOTHING)
    assert _shape(curation) == (["a", "b"], [])
    assert curation is not None
    assert curation.entry == Entry(0, 0, ("a", "b"))


@pytest.mark.parametrize("verdict", ["held", "rejected"])
def test_what_is_not_eligible_is_not_written(verdict: Verdict) -> None:
    assert _shape(curate(_decision(verdict=verdict), None, NOTHING)) == ([], [])


@pytest.mark.parametrize("known", [Entry(0, 0, ("a",)), Entry(0, 1), Entry(1, 0, ("a",)), Entry(2, 0)])
def test_what_is_not_newer_than_what_stands_is_a_repeat(known: Entry) -> None:
    assert curate(_decision(), known, NOTHING) is None


def test_a_later_revision_supersedes_and_withdraws_what_it_no_longer_has() -> None:
    assert _shape(curate(_decision(1, "a", "c"), Entry(0, 0, ("a", "b")), NOTHING)) == (["a", "c"], ["b"])


def test_a_later_verdict_withdraws_everything_and_says_why() -> None:
    curation = curate(
        _decision(verdict="rejected", facts=1, reasons=("consent_withdrawn",)), Entry(0, 0, ("a",)), _facts(WITHDRAWN)
    )
    assert _shape(curation) == ([], ["a"])
    assert curation is not None
    (withdrawal,) = curation.withdrawals
    assert (withdrawal.reasons, withdrawal.revision, withdrawal.facts_offset) == (("consent_withdrawn",), 0, 1)


def test_the_same_revision_under_newer_facts_stands_as_it_is() -> None:
    curation = curate(_decision(facts=1), Entry(0, 0, ("a",)), _facts({"kind": "review", "trajectory": "else"}))
    assert _shape(curation) == ([], [])
    assert curation is not None
    assert curation.entry == Entry(0, 1, ("a",))


def test_what_was_withdrawn_can_come_back() -> None:
    given: dict[str, Any] = WITHDRAWN | {"state": "given"}
    assert _shape(curate(_decision(facts=2), Entry(0, 1), _facts(WITHDRAWN, given))) == (["a"], [])


@pytest.mark.parametrize(
    "fact",
    [WITHDRAWN, {"kind": "erasure", "subject": "ada"}, {"kind": "hold", "trajectory": "t", "state": "set"}],
    ids=lambda fact: fact["kind"],
)
def test_a_fact_that_came_after_the_judge_counts(fact: dict[str, Any]) -> None:
    curation = curate(_decision(1, "a"), Entry(0, 0, ("a",)), _facts(fact))
    assert _shape(curation) == ([], ["a"])
    assert curation is not None
    assert curation.withdrawals[0].reasons != ()


def test_the_index_is_what_the_topic_says() -> None:
    """Whatever was decided, reading what it wrote gives the entry that was kept."""
    entry: Entry | None = None
    rebuilt: Entry | None = None
    history = [
        _decision(0, "a", "b"),
        _decision(0, "a", "b", verdict="rejected", facts=1),
        _decision(0, "a", "b", facts=2),
        _decision(1, "a", facts=2),
        _decision(2, "a", "d", verdict="held", facts=3),
    ]
    for decision in history:
        curation = curate(decision, entry, NOTHING)
        assert curation is not None
        entry = curation.entry
        for chain in curation.chains:
            rebuilt = replay(rebuilt, _curated(decision, chain))
        for withdrawal in curation.withdrawals:
            rebuilt = replay(rebuilt, withdrawal)
        assert rebuilt is not None
        assert (rebuilt.revision, rebuilt.facts_offset) == (entry.revision, entry.facts_offset)
        assert sorted(rebuilt.live) == sorted(entry.live)


def _curated(decision: DecisionRecord, chain: Chain) -> CuratedRecord:
    settled = decision.settled
    return CuratedRecord(
        sample=chain.sample,
        tenant=settled.tenant,
        trajectory=settled.trajectory,
        revision=settled.revision,
        supersedes=settled.supersedes,
        facts_offset=decision.facts_offset,
        policy=decision.policy,
        chain=chain,
        sealed=(),
        settled=msgspec.structs.replace(settled, chains=()),
    )
