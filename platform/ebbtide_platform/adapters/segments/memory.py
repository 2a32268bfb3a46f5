"""The segment store in memory: the fake that ships."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ebbtide_schemas.records import FindingsRecord, SealedChunk, StepHeader


class MemorySegmentStore:
    """`SegmentStore` in dictionaries; what it holds is lost with it."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[str, str, str], dict[int, SealedChunk]] = {}
        self._findings: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._headers: dict[tuple[str, str], StepHeader] = {}

    def put_chunks(self, trajectory: str, space: str, chunks: Iterable[SealedChunk]) -> None:
        """Set by (trajectory, space, segment, chunk)."""
        for chunk in chunks:
            self._chunks.setdefault((trajectory, space, chunk.segment), {})[chunk.chunk] = chunk

    def chunks(self, trajectory: str, space: str, segment: str) -> list[SealedChunk]:
        """The chunks of a segment in order; empty if it is not there."""
        return [chunk for _, chunk in sorted(self._chunks.get((trajectory, space, segment), {}).items())]

    def put_findings(self, record: FindingsRecord) -> None:
        """Set the step's header and the findings of each segment that was scanned (or erased)."""
        trajectory = record.header.trajectory
        self._headers[trajectory, record.header.event] = record.header
        for item in record.segments:
            if item.state != "repeat":
                self._findings[trajectory, item.segment] = (record.redaction, msgspec.msgpack.encode(item))

    def findings(self, trajectory: str, segment: str) -> tuple[str, bytes] | None:
        """(redaction version, encoded `SegmentFindings`) or None."""
        return self._findings.get((trajectory, segment))

    def header(self, trajectory: str, event: str) -> StepHeader | None:
        """The header that came with `put_findings`."""
        return self._headers.get((trajectory, event))

    def drop_space(self, trajectory: str, space: str) -> None:
        """Forget what a superseded revision rendered."""
        for key in [key for key in self._chunks if key[:2] == (trajectory, space)]:
            del self._chunks[key]

    def close(self) -> None:
        """Nothing to release."""
