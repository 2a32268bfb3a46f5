"""Whatever the judge says, however often, and whenever the index is lost: the topic says the same in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide_governance.facts import FactsState, FactsView
from ebbtide_governance.policy import decide
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    CuratedTopicRecord,
    DecisionRecord,
    EffectiveReward,
    FactRecord,
    RenderedRef,
    SettledRecord,
    WithdrawalRecord,
)
from ebbtide_streams.curation import Entry, curate, replay

Word = Literal["given", "withdrawn", "nothing"]
"""What the subject says about training; ``nothing`` is a fact about somebody else."""

REWARD = EffectiveReward(event="r", name="reward", value=1.0, source="human", event_ms=1, late=False)
SAMPLES = st.sets(st.sampled_from("abc"), min_size=1).map(sorted)
WORD: st.SearchStrategy[Word] = st.sampled_from(("given", "withdrawn", "nothing"))
COINS = st.booleans()
BACKS = st.lists(st.integers(1, 4), max_size=4)
WORDS = st.lists(WORD, max_size=4)


def _settled(revision: int, samples: Sequence[str]) -> SettledRecord:
    shown = RenderedRef(segment="x", role="assistant", trained=True, subjects=("ada",))
    return SettledRecord(
        tenant="acme",
        trajectory="t",
        session="t",
        revision=revision,
        supersedes=revision - 1 if revision else None,
        digest=f"{revision}",
        root="root",
        chains=tuple(Chain(sample=name, steps=("s",), segments=(shown,), rollout_weight=1.0) for name in samples),
        rewards=(REWARD,),
        steps=1,
        subjects=("ada",),
        subject_declared=True,
        end="terminated",
        agent="support",
        purpose="training",
    )


def _facts(words: Sequence[Word]) -> FactsView:
    state = FactsState()
    for offset, word in enumerate(words):
        subject = "somebody else" if word == "nothing" else "ada"
        said: Literal["given", "withdrawn"] = "withdrawn" if word == "nothing" else word
        state.apply(offset, FactRecord(kind="consent", tenant="acme", fact_ms=1, subject=subject, state=said))
    return state.view()


def _judged(settled: SettledRecord, words: Sequence[Word], known: int) -> DecisionRecord:
    facts = _facts(words[:known])
    found = decide(settled, facts.policy("acme"), facts)
    return DecisionRecord(
        settled=settled,
        verdict=found.verdict,
        reasons=found.reasons,
        policy="default@1",
        facts_offset=facts.offset,
        decided_ms=1,
    )


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[Word], list[DecisionRecord]]:
    """What a judge says of one trajectory: newer revisions and newer facts in turn, and all facts in the end."""
    words = draw(WORDS)
    contents = draw(st.lists(SAMPLES, min_size=1, max_size=4))
    steps = draw(st.permutations(["fact"] * len(words) + ["revision"] * (len(contents) - 1)))
    at = (0, 0)
    decisions = [_judged(_settled(0, contents[0]), words, 0)]
    for step in steps:
        at = (at[0] + (step == "revision"), at[1] + (step == "fact"))
        decisions.append(_judged(_settled(at[0], contents[at[0]]), words, at[1]))
    return words, decisions


@dataclass
class Topic:
    """The curated topic, and a curator that may lose its index."""

    records: list[CuratedTopicRecord] = field(default_factory=list)
    entry: Entry | None = None

    def take(self, decision: DecisionRecord, facts: FactsView) -> None:
        curation = curate(decision, self.entry, facts)
        if curation is not None:
            self.records += [_curated(decision, chain) for chain in curation.chains]
            self.records += curation.withdrawals
            self.entry = curation.entry

    def rebuilt(self) -> Entry | None:
        entry: Entry | None = None
        for record in self.records:
            entry = replay(entry, record)
        return entry

    def live(self) -> dict[str, int]:
        """Revision by sample, as a consumer sees it."""
        found: dict[str, int] = {}
        for record in self.records:
            if isinstance(record, CuratedRecord):
                assert found.get(record.sample) != record.revision, "it stands already"
                found[record.sample] = record.revision
            else:
                assert found.pop(record.sample, None) is not None, "there was nothing to withdraw"
        return found


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


def _deliver(data: st.DataObject, topic: Topic, words: list[Word], decisions: list[DecisionRecord]) -> None:
    """As an at-least-once stage does: in order, going back whenever it was killed; facts only ever grow."""
    at, known = 0, 0
    backs: list[int] = data.draw(BACKS)
    while at < len(decisions):
        known = data.draw(st.integers(max(known, decisions[at].facts_offset), len(words)))
        topic.take(decisions[at], _facts(words[:known]))
        at += 1
        if data.draw(COINS) and backs:
            at = max(0, at - backs.pop())
        if data.draw(COINS):
            topic.entry = topic.rebuilt()


@settings(max_examples=300, deadline=None)
@given(history=_histories(), data=st.data())
def test_in_the_end_stands_what_the_last_verdict_says(
    history: tuple[list[Word], list[DecisionRecord]], data: st.DataObject
) -> None:
    words, decisions = history
    topic = Topic()
    _deliver(data, topic, words, decisions)
    last = decisions[-1]
    wanted = last.settled.chains if last.verdict == "eligible" else ()
    assert topic.live() == {chain.sample: last.settled.revision for chain in wanted}


@settings(max_examples=300, deadline=None)
@given(history=_histories(), data=st.data())
def test_nothing_is_written_twice(history: tuple[list[Word], list[DecisionRecord]], data: st.DataObject) -> None:
    """A revision comes again only if it was withdrawn and a newer fact brought it back."""
    words, decisions = history
    topic = Topic()
    _deliver(data, topic, words, decisions)
    topic.live()
    written = [(record.sample, record.revision, record.facts_offset, type(record)) for record in topic.records]
    assert len(written) == len(set(written))
    if "given" not in words:
        samples = [(record.sample, record.revision) for record in topic.records if isinstance(record, CuratedRecord)]
        assert len(samples) == len(set(samples))


@settings(max_examples=200, deadline=None)
@given(history=_histories(), data=st.data())
def test_an_index_that_was_rebuilt_gives_the_same_topic(
    history: tuple[list[Word], list[DecisionRecord]], data: st.DataObject
) -> None:
    """While the curator knows the facts that the judge knew, losing the index at any point shows nowhere."""
    words, decisions = history
    lost = data.draw(st.sets(st.integers(0, len(decisions))))
    keeping, losing = Topic(), Topic()
    for number, decision in enumerate(decisions):
        for topic in (keeping, losing):
            topic.take(decision, _facts(words[: decision.facts_offset]))
            topic.take(decision, _facts(words[: decision.facts_offset]))
        if number in lost:
            losing.entry = losing.rebuilt()
    assert losing.records == keeping.records


@settings(max_examples=200, deadline=None)
@given(history=_histories())
def test_who_has_withdrawn_is_not_written_whatever_the_judge_still_says(
    history: tuple[list[Word], list[DecisionRecord]],
) -> None:
    words, decisions = history
    withdrawn = _facts([*words, "withdrawn"])
    topic = Topic()
    for decision in decisions:
        topic.take(decision, withdrawn)
    assert [record for record in topic.records if not isinstance(record, WithdrawalRecord)] == []
