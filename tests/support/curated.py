"""A curated sample as the curator writes it: four turns, sealed under the people who said them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ebbtide_platform.ports import Erased, KeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    EffectiveReward,
    GroupRef,
    RenderedRef,
    SealClass,
    SealedChunk,
    SettledRecord,
)


def curated_sample(
    door: KeyDoor,
    sealer: Sealer,
    name: str,
    revision: int = 0,
    *,
    tenant: str = "acme",
    subjects: Sequence[str] = ("u-1", "u-2"),
    seal_class: SealClass = "redacted",
    group: GroupRef | None = None,
    **changes: Any,
) -> CuratedRecord:
    """A sample in which the first subject asks, the agent answers, the second asks, and the agent answers again."""
    asks, tells = (str(ref) for ref in door.subject_refs(tenant, subjects))
    turns = [("user", "hi", asks), ("assistant", "hello", asks), ("user", "bye", tells), ("assistant", "so long", asks)]
    refs, sealed = [], list[SealedChunk]()
    for number, (role, text, subject) in enumerate(turns):
        scope = sealer.key_scope(tenant, f"t-{name}", [subject], seal_class)
        plain = canonical(Segment(role=role, content=f"{name} {text}"))  # type: ignore[arg-type]
        chunks = sealer.seal(scope, "event", f"{name}-{number}", plain)
        assert not isinstance(chunks, Erased)
        sealed += chunks
        refs.append(
            RenderedRef(segment=f"{name}-{number}", role=role, trained=role == "assistant")  # type: ignore[arg-type]
        )
    settled = SettledRecord(
        tenant=tenant,
        trajectory=f"t-{name}",
        session="session",
        revision=revision,
        supersedes=None,
        digest="digest",
        root="root",
        chains=(),
        rewards=(EffectiveReward(event="r", name="resolved", value=1.0, source="human", event_ms=1, late=False),),
        steps=2,
        subjects=(),
        subject_declared=True,
        end="terminated",
        agent="support",
        purpose="training",
        group=group,
    )
    chain = Chain(sample=name, steps=(), segments=tuple(refs), rollout_weight=1.0)
    record = CuratedRecord(
        sample=name,
        tenant=tenant,
        trajectory=f"t-{name}",
        revision=revision,
        supersedes=None,
        facts_offset=0,
        policy="default@1",
        chain=chain,
        sealed=tuple(sealed),
        settled=settled,
    )
    return msgspec.structs.replace(record, **changes)
