"""Looks for personal data in every new segment, once; what is found travels on, the text does not.

A segment is opened, taken apart and looked at when the first step that needs it comes; later steps, and the
same step again, find the answer in the segment store. Nothing passes that was not looked at: a segment that
cannot be opened, read or searched sends its step to quarantine. One whose key is destroyed is a hole, and the
step goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import msgspec

from ebbtide_governance.redaction.detector import Detector
from ebbtide_governance.redaction.scan import Scan, scan
from ebbtide_platform.codec import MAX_RECORD_BYTES, decode_any, encode, headers
from ebbtide_platform.errors import Corrupt, Denied, Misconfigured, Poison
from ebbtide_platform.ports import Erased, InRecord, KeyScope, OutRecord, StageTransaction
from ebbtide_platform.sealing.identity import uuid8
from ebbtide_platform.topics import FINDINGS, STEPS, Topic
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import (
    ChunkRecord,
    FindingsRecord,
    SealedChunk,
    SegmentFindings,
    SegmentRef,
    StepHeader,
    StepRecord,
)
from ebbtide_streams.context import StageContext
from ebbtide_streams.state.rows import key_of

CONFLICT = "conflict"
CORRUPT = "corrupt"
DENIED = "denied"
FOREIGN_SEGMENT = "foreign_segment"
SEGMENT_MISSING = "segment_missing"
SEGMENT_UNREADABLE = "segment_unreadable"
MISPLACED = "misplaced"
REDACTION_FAILED = "redaction_failed"
TOO_MANY_FINDINGS = "too_many_findings"

OPEN_BYTES = 4_000_000
"""Of plain text in memory at once, if no single segment is larger."""

_RAW = "raw"
_EVENT = b"e"
_SEGMENT = b"s"
_Place = tuple[str, str]
"""(trajectory, segment)."""


@dataclass(frozen=True)
class _Looked:
    """What became of a segment: ``failed`` names why it must not pass."""

    findings: SegmentFindings | None
    chunks: tuple[SealedChunk, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class _Opened:
    """A segment in the clear, laid out for the detector."""

    place: _Place
    chunks: tuple[SealedChunk, ...]
    entity_key: bytes
    scan: Scan


class RedactStage:
    """Steps to findings. Needs ``context.pool``."""

    name: ClassVar[str] = "redact"
    inputs: ClassVar[tuple[Topic, ...]] = (STEPS,)

    def __init__(self, partition: int, context: StageContext) -> None:
        if context.pool is None:
            raise Misconfigured("redaction has no detector", try_this="give the processors a detector pool")
        self._pool: Detector = context.pool
        self._sealer = context.sealer
        self._store = context.raw_segments
        self._looked: dict[_Place, _Looked] = {}

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Open and search the segments that are new in this batch, all of them together.

        Raises:
            Unavailable: the key door, or the detectors, do not answer.
        """
        self._looked = {}
        carried: dict[_Place, dict[int, SealedChunk]] = {}
        wanted: dict[_Place, tuple[StepHeader, SegmentRef]] = {}
        for read in _readable(records):
            for chunk in (read.sealed,) if isinstance(read, ChunkRecord) else read.sealed:
                carried.setdefault((_trajectory(read), chunk.segment), {})[chunk.chunk] = chunk
            if isinstance(read, StepRecord):
                wanted.update(((read.header.trajectory, ref.id), (read.header, ref)) for ref in _texts(read.header))
        opened: list[_Opened] = []
        size = 0
        for place, (header, ref) in wanted.items():
            chunks = tuple(chunk for _, chunk in sorted(carried.get(place, {}).items()))
            result = self._known(place, chunks) or self._open(place, header, ref, chunks)
            if isinstance(result, _Looked):
                self._looked[place] = result
                continue
            opened.append(result)
            size += ref.size
            if size > OPEN_BYTES:
                self._look(opened)
                opened, size = [], 0
        self._look(opened)

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Keep what a record carries; for a step, emit what was found in the segments that it is the first to have."""
        read = decode_any(record.value)
        if isinstance(read, StepRecord | ChunkRecord) and record.key != _trajectory(read).encode():
            # Settlement reads the segments of its own partition: it would look for these in vain.
            raise Poison(MISPLACED)
        if isinstance(read, ChunkRecord):
            self._store.put_chunks(read.trajectory, _RAW, [read.sealed])
        elif isinstance(read, StepRecord):
            self._step(read, tx)
        else:
            raise Poison("unexpected_record_type")

    def _step(self, step: StepRecord, tx: StageTransaction) -> None:
        header = step.header
        known = tx.get(key_of(_EVENT, header.event))
        if known is not None:
            if known.decode() != header.digest:
                raise Poison(CONFLICT)
            return
        segments = tuple(self._findings(header, ref, tx) for ref in _texts(header))
        found = FindingsRecord(header=header, segments=segments, redaction=self._pool.version)
        value = encode(found)
        if len(value) > MAX_RECORD_BYTES:
            raise Poison(TOO_MANY_FINDINGS)
        for ref in _texts(header):
            looked = self._looked[header.trajectory, ref.id]
            self._store.put_chunks(header.trajectory, _RAW, looked.chunks)
        self._store.put_chunks(header.trajectory, _RAW, step.sealed)
        self._store.put_findings(found)
        tx.put(key_of(_EVENT, header.event), header.digest.encode())
        stamped = headers(
            event=header.event, kind="findings", source=self.name, time_ms=header.received_ms, tenant=header.tenant
        )
        tx.emit(OutRecord(FINDINGS.name, header.trajectory.encode(), value, tuple(stamped)))

    def _findings(self, header: StepHeader, ref: SegmentRef, tx: StageTransaction) -> SegmentFindings:
        """What was found; ``repeat`` if an earlier step has told it already."""
        looked = self._looked[header.trajectory, ref.id]
        if looked.findings is None:
            raise Poison(looked.failed)
        key = key_of(_SEGMENT, header.trajectory, ref.id)
        told = f"{looked.findings.state} {self._pool.version}".encode()
        if tx.get(key) == told:
            return SegmentFindings(segment=ref.id, state="repeat")
        tx.put(key, told)
        return looked.findings

    # --- one segment ---------------------------------------------------------------------------------------------

    def _known(self, place: _Place, chunks: tuple[SealedChunk, ...]) -> _Looked | None:
        """What the same detectors found earlier, perhaps before a crash."""
        known = self._store.findings(*place)
        if known is None or known[0] != self._pool.version:
            return None
        return _Looked(msgspec.msgpack.decode(known[1], type=SegmentFindings), chunks)

    def _open(
        self, place: _Place, header: StepHeader, ref: SegmentRef, carried: tuple[SealedChunk, ...]
    ) -> _Looked | _Opened:
        chunks = carried if carried and len(carried) == carried[0].chunks else self._stored(place, carried)
        if not chunks:
            return _Looked(None, failed=SEGMENT_MISSING)
        if not _belongs(chunks[0], header, ref):
            return _Looked(None, failed=FOREIGN_SEGMENT)
        first = chunks[0]
        try:
            plain = self._sealer.open(chunks)
            key = self._sealer.entity_key(KeyScope(first.tenant, first.trajectory, first.subjects, first.seal_class))
            if isinstance(plain, Erased) or isinstance(key, Erased):
                return _Looked(SegmentFindings(segment=ref.id, state="erased"), chunks)
            return _Opened(place, chunks, key, scan(msgspec.json.decode(plain, type=Segment)))
        except Corrupt:
            return _Looked(None, failed=CORRUPT)
        except Denied:
            return _Looked(None, failed=DENIED)
        except (msgspec.DecodeError, RecursionError):
            return _Looked(None, failed=SEGMENT_UNREADABLE)

    def _stored(self, place: _Place, carried: tuple[SealedChunk, ...]) -> tuple[SealedChunk, ...]:
        """The chunks of earlier batches with those of this one."""
        chunks = {chunk.chunk: chunk for chunk in (*self._store.chunks(place[0], _RAW, place[1]), *carried)}
        return tuple(chunk for _, chunk in sorted(chunks.items()))

    def _look(self, opened: Sequence[_Opened]) -> None:
        """Search all of ``opened`` in one call."""
        found = iter(self._pool.detect([text for segment in opened for text in segment.scan.texts]))
        for segment in opened:
            spans = [next(found) for _ in segment.scan.texts]
            seen = [of_text for of_text in spans if of_text is not None]
            if len(seen) < len(spans):
                self._looked[segment.place] = _Looked(None, failed=REDACTION_FAILED)
                continue
            findings = SegmentFindings(
                segment=segment.place[1],
                findings=segment.scan.findings(seen, partial(uuid8, segment.entity_key, "entity")),
                binary=segment.scan.binary,
            )
            self._looked[segment.place] = _Looked(findings, segment.chunks)


def _readable(records: Iterable[InRecord]) -> Iterator[StepRecord | ChunkRecord]:
    """The records that `process` will not refuse."""
    for record in records:
        try:
            read = decode_any(record.value)
        except Poison:
            continue
        if isinstance(read, StepRecord | ChunkRecord):
            yield read


def _trajectory(read: StepRecord | ChunkRecord) -> str:
    return read.trajectory if isinstance(read, ChunkRecord) else read.header.trajectory


def _texts(header: StepHeader) -> list[SegmentRef]:
    """The segments that a sample can show, each once. Tool definitions, token buffers and hidden state are none."""
    action = (header.action,) if header.action is not None else ()
    refs = (*header.observation, *action, *header.outcome)
    return list({ref.id: ref for ref in refs if ref.kind == "message"}.values())


def _belongs(chunk: SealedChunk, header: StepHeader, ref: SegmentRef) -> bool:
    """True if the segment was sealed for this tenant, this trajectory and the people that the step names."""
    return (
        chunk.tenant == header.tenant
        and chunk.seal_class == "raw"
        and chunk.trajectory in (header.trajectory, None if ref.about_nobody else header.trajectory)
        and set(chunk.subjects) == (set() if ref.about_nobody else set(ref.subjects))
    )
