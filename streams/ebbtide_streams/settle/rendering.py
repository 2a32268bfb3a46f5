"""Renders a revision: opens its raw segments, replaces what was found, seals what may be shown.

Two passes over the trajectory in chain order: a value found anywhere is replaced everywhere, under the same
placeholder. Plain text is in memory only while its trajectory is being rendered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ebbtide_governance.facts import FactsView
from ebbtide_governance.redaction.render import Renderer
from ebbtide_governance.settlement import Plan, Rendering, complete
from ebbtide_platform.errors import Corrupt, Denied, Unavailable
from ebbtide_platform.ports import Erased, rendered_space
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import SealedChunk, SegmentFindings, SegmentRef, SettledRecord
from ebbtide_streams.context import StageContext

_Sealed = dict[str, tuple[SealedChunk, ...] | Erased]


@dataclass(frozen=True)
class _Read:
    """A segment as the segment store has it; ``text`` is None before it is opened, and for a hole."""

    rendering: Rendering
    redaction: str = ""
    findings: SegmentFindings | None = None
    first_event: str = ""
    text: Segment | None = None


_HOLE = _Read(Rendering(hole=True))
_UNREADABLE = _Read(Rendering(hole=True, unreadable=True))


class RevisionRenderer:
    """Makes the revision of a plan and puts its text, sealed, into the space ``rendered:<revision>``."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def render(
        self,
        planned: Plan,
        facts: FactsView,
        *,
        revision: int,
        supersedes: int | None,
        settled_ms: int,
        is_news: Callable[[SettledRecord], bool],
    ) -> SettledRecord | None:
        """The revision, or None if it is no news: then nothing is opened that needs no opening.

        Raises:
            Lacking: the segment store lacks something that the log names.
        """

        def completed(segments: Mapping[str, _Read]) -> SettledRecord:
            return complete(
                planned,
                {segment: read.rendering for segment, read in segments.items()},
                redaction="+".join(sorted({read.redaction for read in segments.values()} - {""})),
                revision=revision,
                supersedes=supersedes,
                settled_ms=settled_ms,
            )

        segments = {ref.id: self._find(planned.draft.trajectory, ref, facts) for ref in planned.segments}
        while is_news(completed(segments)):
            opened = self._open(planned.draft.trajectory, segments)
            settled = completed(opened)
            if not is_news(settled):
                return None
            sealed = self._seal(planned, opened)
            erased = {segment: _HOLE for segment, chunks in sealed.items() if isinstance(chunks, Erased)}
            if not erased:
                self._put(settled, sealed)
                return settled
            # Somebody was erased in between; without that text, other placeholders may be numbered otherwise.
            segments |= erased
        return None

    def _find(self, trajectory: str, ref: SegmentRef, facts: FactsView) -> _Read:
        """What is known of a segment before it is opened."""
        if any(map(facts.erased, ref.subjects)):
            return _HOLE
        found = self._context.raw_segments.findings(trajectory, ref.id)
        if found is None:
            raise Lacking("the findings of a segment")
        redaction, encoded = found
        findings = msgspec.msgpack.decode(encoded, type=SegmentFindings)
        if findings.state == "erased":
            return _HOLE
        rendering = Rendering(
            binary=findings.binary,
            findings=Counter(finding.type for finding in findings.findings),
            found=hashlib.sha256(encoded).hexdigest(),
        )
        return _Read(rendering, redaction, findings)

    def _open(self, trajectory: str, segments: Mapping[str, _Read]) -> dict[str, _Read]:
        """Every segment with its text; one whose key is destroyed, or that is damaged, becomes a hole."""
        opened = dict(segments)
        for segment, read in segments.items():
            if not read.rendering.hole:
                chunks = self._context.raw_segments.chunks(trajectory, "raw", segment)
                if not chunks:
                    raise Lacking("a segment")
                opened[segment] = self._opened(read, chunks)
        return opened

    def _opened(self, read: _Read, chunks: Sequence[SealedChunk]) -> _Read:
        try:
            plain = self._context.sealer.open(chunks)
            if isinstance(plain, Erased):
                return _HOLE
            text = msgspec.json.decode(plain, type=Segment)
        except (Corrupt, Denied, msgspec.DecodeError):
            # One damaged segment must neither stop the partition nor take the tick's other trajectories along.
            return _UNREADABLE
        return replace(read, first_event=chunks[0].first_event, text=text)

    def _seal(self, planned: Plan, opened: Mapping[str, _Read]) -> _Sealed:
        draft, sealer = planned.draft, self._context.sealer
        renderer = Renderer()
        shown = [
            (ref, read, read.text, read.findings.findings if read.findings else ())
            for ref in planned.segments
            if (read := opened[ref.id]).text is not None
        ]
        for _, _, text, findings in shown:
            renderer.learn(text, findings)
        sealed: _Sealed = {}
        for ref, read, text, findings in shown:
            subjects = () if ref.about_nobody else ref.subjects
            scope = sealer.key_scope(draft.tenant, draft.trajectory, subjects, "redacted")
            sealed[ref.id] = sealer.seal(scope, read.first_event, ref.id, canonical(renderer.render(text, findings)))
        return sealed

    def _put(self, settled: SettledRecord, sealed: _Sealed) -> None:
        store, space = self._context.rendered_segments, rendered_space(settled.revision)
        # A try before a crash may have left another rendering under this number.
        store.drop_space(settled.trajectory, space)
        chunks = [chunk for pieces in sealed.values() if not isinstance(pieces, Erased) for chunk in pieces]
        store.put_chunks(settled.trajectory, space, chunks)


class Lacking(Unavailable):
    """The segment store is behind the log, or was lost."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the segment store does not have {what} that the log names",
            try_this="let redaction catch up; if the store was lost, replay ebbtide.steps.v1",
        )
