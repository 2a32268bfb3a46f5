"""What a decision changes in a tenant's curated topic: the pure half of the curator.

Decisions of one trajectory are ordered by (revision, facts offset). What is not newer than what stands in the
topic is a repeat and changes nothing, so that at-least-once stages before the curator become exactly-once here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ebbtide_governance.facts import FactsView
from ebbtide_governance.policy import decide
from ebbtide_platform.errors import Poison
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    CuratedTopicRecord,
    DecisionRecord,
    SealedChunk,
    WithdrawalRecord,
)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What stands in the curated topic for one trajectory."""

    revision: int
    facts_offset: int
    live: tuple[str, ...] = ()
    """Ids of samples that are not withdrawn, all of ``revision``."""


@dataclass(frozen=True)
class Curation:
    """What to write for one decision, and the entry that stands afterwards."""

    chains: tuple[Chain, ...]
    withdrawals: tuple[WithdrawalRecord, ...]
    entry: Entry


def curate(decision: DecisionRecord, entry: Entry | None, facts: FactsView) -> Curation | None:
    """What ``decision`` changes, None if it is a repeat.

    Consent, hold and erasure are looked at again under the newest ``facts``: a person may have spoken since
    the judge did.
    """
    settled = decision.settled
    if entry is not None and (settled.revision, decision.facts_offset) <= (entry.revision, entry.facts_offset):
        return None
    live = () if entry is None else entry.live
    eligible, reasons = decision.verdict == "eligible", decision.reasons
    if eligible and facts.offset > decision.facts_offset:
        again = decide(settled, facts.policy(settled.tenant), facts)
        eligible, reasons = again.verdict == "eligible", again.reasons
    wanted = settled.chains if eligible else ()
    if entry is not None and entry.revision == settled.revision and live:
        # The same content under a newer policy or fact: it stands already, and every revision appears once.
        wanted = tuple(chain for chain in wanted if chain.sample not in live)
    kept = tuple(chain.sample for chain in settled.chains) if eligible else ()
    withdrawals = tuple(
        WithdrawalRecord(
            sample=sample,
            tenant=settled.tenant,
            trajectory=settled.trajectory,
            revision=settled.revision,
            facts_offset=decision.facts_offset,
            reasons=reasons,
        )
        for sample in live
        if sample not in kept
    )
    return Curation(wanted, withdrawals, Entry(settled.revision, decision.facts_offset, kept))


def assemble(decision: DecisionRecord, chain: Chain, rendered: Callable[[str], Sequence[SealedChunk]]) -> CuratedRecord:
    """The sample of one chain; ``rendered`` gives the chunks of a segment in the decision's revision, still sealed.

    Raises:
        Poison: a segment that is no hole was not rendered.
    """
    settled = decision.settled
    sealed: list[SealedChunk] = []
    for ref in chain.segments:
        if not ref.hole:
            chunks = rendered(ref.segment)
            if not chunks:
                raise Poison("rendering_missing")
            sealed += chunks
    return CuratedRecord(
        sample=chain.sample,
        tenant=settled.tenant,
        trajectory=settled.trajectory,
        revision=settled.revision,
        supersedes=settled.supersedes,
        facts_offset=decision.facts_offset,
        policy=decision.policy,
        chain=chain,
        sealed=tuple(sealed),
        settled=msgspec.structs.replace(settled, chains=()),
    )


def replay(entry: Entry | None, record: CuratedTopicRecord) -> Entry:
    """The entry after ``record`` was read from the curated topic: how a lost index is rebuilt."""
    at = (record.revision, record.facts_offset)
    newest = max(at, (entry.revision, entry.facts_offset)) if entry is not None else at
    others = tuple(sample for sample in (entry.live if entry is not None else ()) if sample != record.sample)
    live = (*others, record.sample) if isinstance(record, CuratedRecord) else others
    return Entry(*newest, live)
