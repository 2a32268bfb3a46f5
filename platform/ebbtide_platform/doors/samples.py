"""A curated record and its opened segments to what a consumer gets; erased segments are holes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ebbtide_platform.errors import Corrupt
from ebbtide_platform.ports import Erased
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import CuratedRecord, RenderedRef, SealedChunk, WithdrawalRecord
from ebbtide_schemas.samples import Sample, SampleGroup, SampleMessage, Withdrawal

_segment_decoder: msgspec.json.Decoder[Segment] = msgspec.json.Decoder(Segment)


def sealed_segments(record: CuratedRecord) -> dict[str, list[SealedChunk]]:
    """The chunks of each segment of a sample, in order; a hole has none.

    Raises:
        Corrupt: a chunk is not of this tenant and of class ``redacted``: nobody's raw text leaves by this door.
    """
    segments: dict[str, list[SealedChunk]] = {}
    for chunk in record.sealed:
        if chunk.tenant != record.tenant or chunk.seal_class != "redacted":
            raise Corrupt("a curated sample carries what is not its own")
        segments.setdefault(chunk.segment, []).append(chunk)
    shown = {ref.segment for ref in record.chain.segments if not ref.hole}
    return {segment: chunks for segment, chunks in segments.items() if segment in shown}


def read_segment(plain: bytes | Erased) -> Segment | None:
    """An opened segment, None if it is erased.

    Raises:
        Corrupt: it is no segment.
    """
    if isinstance(plain, Erased):
        return None
    try:
        return _segment_decoder.decode(plain)
    except msgspec.DecodeError:
        raise Corrupt("a curated segment is not a segment") from None


def sample_of(record: CuratedRecord, opened: Mapping[str, Segment | None], group: SampleGroup | None) -> Sample:
    """The sample; ``opened`` has the segments that can be shown. The cursor is left for who knows it."""
    settled = record.settled
    messages = _messages(record.chain.segments, opened)
    return Sample(
        id=record.sample,
        tenant=record.tenant,
        trajectory=record.trajectory,
        revision=record.revision,
        supersedes=record.supersedes,
        messages=messages,
        rewards=list(settled.rewards),
        rollout_weight=record.chain.rollout_weight,
        level=record.chain.level,
        # Redaction is not yet projected on to token ids: a chain goes out as text.
        tokens=None,
        group=group,
        agent=settled.agent,
        model=settled.model,
        adapter=settled.adapter,
        purpose=settled.purpose,
        end=settled.end,
        root=settled.root,
        policy=record.policy,
        redaction=settled.redaction,
        findings=settled.findings,
        holes=sum(message.hole for message in messages),
    )


def withdrawal_of(record: WithdrawalRecord) -> Withdrawal:
    """The withdrawal; the cursor is left for who knows it."""
    return Withdrawal(
        id=record.sample,
        tenant=record.tenant,
        trajectory=record.trajectory,
        revision=record.revision,
        reasons=list(record.reasons),
    )


def _messages(refs: Sequence[RenderedRef], opened: Mapping[str, Segment | None]) -> list[SampleMessage]:
    messages = []
    holed = False
    for ref in refs:
        segment = opened.get(ref.segment)
        if segment is None:
            holed = True
            messages.append(SampleMessage(role=ref.role or "user", content=None, hole=True))
            continue
        messages.append(
            SampleMessage(
                role=segment.role,
                content=segment.content,
                tool_calls=segment.tool_calls,
                tool_call_id=segment.tool_call_id,
                name=segment.name,
                reasoning=segment.reasoning,
                extra=segment.extra,
                # What was said after a hole was sampled under a text that no longer exists.
                trained=ref.trained and not holed,
            )
        )
    return messages
