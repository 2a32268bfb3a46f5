"""The redact stage over stores in memory with real sealing: what passes, once, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

import msgspec
import pytest

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.detector import Detector, Span
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.errors import Misconfigured, Poison
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import Erased, InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FINDINGS, STEPS
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.chain import header_digest
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import (
    ChunkRecord,
    FindingsRecord,
    LogRecord,
    SealedChunk,
    SegmentRef,
    StepHeader,
    StepRecord,
    TickRecord,
)
from ebbtide_streams.context import StageContext
from ebbtide_streams.redact import RedactStage
from support.stages import Worker

TRAJECTORY = "t-1"
MAIL = "mail ines.varga@example.org"


class CountingDetector(PatternDetector):
    """Counts the texts that it looked at."""

    looked = 0

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        self.looked += len(texts)
        return super().detect(texts)


class NewerDetector(CountingDetector):
    version = "patterns-newer"  # type: ignore[misc]


class BlindDetector(PatternDetector):
    """Cannot look at anything."""

    def detect(self, texts: Sequence[str]) -> list[Any]:
        return [None for _ in texts]


class Bench:
    """One partition of the stage, and a door's way of sealing what goes in."""

    def __init__(self, pool: Detector | None = None) -> None:
        self.door = MemoryKeyDoor("acme", "other")
        self.sealer = Sealer(self.door)
        self.raw = MemorySegmentStore()
        self.store = MemoryStageStore()
        self.pool = pool or CountingDetector()
        self._offsets = count()
        (reference,) = self.door.subject_refs("acme", ["ines"])
        assert isinstance(reference, str)
        self.subject = reference
        self.start()

    def start(self, pool: Detector | None = None) -> None:
        """Start the stage anew over the state that is there."""
        context = StageContext(
            settings=Settings(),
            sealer=self.sealer,
            facts=FactsState,
            raw_segments=self.raw,
            rendered_segments=MemorySegmentStore(),
            pool=pool or self.pool,
        )
        self.worker = Worker(RedactStage(0, context), self.store)

    def sealed(
        self, event: str, text: str | bytes, tenant: str = "acme", *, nobody: bool = False
    ) -> tuple[SegmentRef, tuple[SealedChunk, ...]]:
        plain = text if isinstance(text, bytes) else canonical(Segment(role="user", content=text))
        people = () if nobody else (self.subject,)
        scope = self.sealer.key_scope(tenant, TRAJECTORY, people, "raw")
        segment = self.sealer.segment_id(scope, plain)
        assert isinstance(segment, str)
        chunks = self.sealer.seal(scope, event, segment, plain)
        assert not isinstance(chunks, Erased)
        ref = SegmentRef(id=segment, kind="message", role="user", subjects=people, about_nobody=nobody, size=len(plain))
        return ref, chunks

    def step(self, event: str, *texts: str | bytes, carries: bool = True, **members: Any) -> StepRecord:
        pieces = [self.sealed(event, text) for text in texts]
        values: dict[str, Any] = {
            "event": event,
            "tenant": "acme",
            "trajectory": TRAJECTORY,
            "session": "s",
            "ordinal": 0,
            "parent": None,
            "branch": "continue",
            "observation": tuple(ref for ref, _ in pieces),
        } | members
        header = StepHeader(**values)
        header = msgspec.structs.replace(header, digest=header_digest(header))
        return StepRecord(header=header, sealed=tuple(c for _, chunks in pieces for c in chunks) if carries else ())

    def feed(self, record: LogRecord) -> list[FindingsRecord]:
        read = InRecord(STEPS.name, 0, next(self._offsets), TRAJECTORY.encode(), encode(record))
        outputs = self.worker.feed(read)
        assert {output.topic for output in outputs} <= {FINDINGS.name}
        assert {output.key for output in outputs} <= {TRAJECTORY.encode()}
        return [decode(output.value, FindingsRecord) for output in outputs]

    def looked(self) -> int:
        assert isinstance(self.pool, CountingDetector)
        return self.pool.looked


def states(record: FindingsRecord) -> list[str]:
    return [segment.state for segment in record.segments]


def test_a_step_goes_on_with_what_was_found_and_without_its_text() -> None:
    bench = Bench()
    step = bench.step("e-1", MAIL, "nothing here")
    (found,) = bench.feed(step)
    assert found.header == step.header
    assert found.redaction == PatternDetector.version
    assert states(found) == ["scanned", "scanned"]
    (finding,) = found.segments[0].findings
    assert (finding.leaf, finding.start, finding.end, finding.type) == ("/content", 5, 27, "EMAIL")
    assert found.segments[1].findings == ()
    assert b"varga" not in encode(found)
    assert bench.sealer.open(bench.raw.chunks(TRAJECTORY, "raw", found.segments[0].segment)) == canonical(
        Segment(role="user", content=MAIL)
    )
    assert bench.raw.header(TRAJECTORY, "e-1") == step.header


def test_equal_values_have_equal_digests_only_under_the_same_people() -> None:
    bench = Bench()
    (found,) = bench.feed(bench.step("e-1", MAIL, "to INES.VARGA@example.org"))
    first, second = (segment.findings[0].entity for segment in found.segments)
    assert first == second
    (other,) = bench.door.subject_refs("acme", ["jonas"])
    assert isinstance(other, str)
    bench.subject = other
    (found,) = bench.feed(bench.step("e-2", MAIL))
    assert found.segments[0].findings[0].entity not in ("", first)


def test_a_segment_is_looked_at_once_however_often_it_is_resent() -> None:
    bench = Bench()
    bench.feed(bench.step("e-1", MAIL))
    (found,) = bench.feed(bench.step("e-2", MAIL, "new", "new"))
    assert states(found) == ["repeat", "scanned"]
    assert bench.looked() == 2


def test_a_whole_batch_is_looked_at_in_one_call_and_a_repeat_in_it_once() -> None:
    bench = Bench()
    steps = [bench.step("e-1", MAIL), bench.step("e-2", MAIL, carries=False)]
    records = [InRecord(STEPS.name, 0, i, b"t-1", encode(step)) for i, step in enumerate(steps)]
    bench.worker.stage.prepare(records)
    with bench.store.transaction({STEPS.name: 2}) as tx:
        for record in records:
            bench.worker.stage.process(record, tx)
    found = [decode(output.value, FindingsRecord) for _, output in bench.store.pending()]
    assert [states(record) for record in found] == [["scanned"], ["repeat"]]
    assert bench.looked() == 1


def test_the_same_step_again_is_harmless() -> None:
    bench = Bench()
    step = bench.step("e-1", MAIL)
    bench.feed(step)
    assert bench.feed(step) == []


def test_a_crash_before_the_commit_repeats_the_same_findings_without_looking_again() -> None:
    bench = Bench()
    step = bench.step("e-1", MAIL)
    record = InRecord(STEPS.name, 0, 0, b"t-1", encode(step))
    bench.worker.stage.prepare([record])
    with pytest.raises(RuntimeError), bench.store.transaction({STEPS.name: 1}) as tx:
        bench.worker.stage.process(record, tx)
        raise RuntimeError("killed")
    bench.start()
    (found,) = bench.feed(step)
    assert states(found) == ["scanned"]
    assert len(found.segments[0].findings) == 1
    assert bench.looked() == 1


def test_the_same_id_with_another_content_is_a_conflict() -> None:
    bench = Bench()
    bench.feed(bench.step("e-1", MAIL))
    with pytest.raises(Poison) as refused:
        bench.feed(bench.step("e-1", "another"))
    assert refused.value.reason == "conflict"


def test_newer_detectors_look_again() -> None:
    bench = Bench()
    bench.feed(bench.step("e-1", MAIL))
    bench.start(NewerDetector())
    (found,) = bench.feed(bench.step("e-2", MAIL))
    assert (states(found), found.redaction) == (["scanned"], "patterns-newer")


def test_chunks_that_stand_before_their_step_belong_to_it() -> None:
    bench = Bench()
    # Random letters do not compress, so that the segment has several chunks.
    letters = Random(7).randbytes(500_000).hex(" ", 4).translate(str.maketrans("0123456789", "ghijklmnop"))
    ref, chunks = bench.sealed("e-1", f"{MAIL} {letters}")
    assert len(chunks) > 1
    for chunk in chunks[:-1]:
        assert bench.feed(ChunkRecord(tenant="acme", trajectory=TRAJECTORY, sealed=chunk)) == []
    step = msgspec.structs.replace(bench.step("e-1", observation=(ref,)), sealed=chunks[-1:])
    (found,) = bench.feed(step)
    assert [finding.type for finding in found.segments[0].findings] == ["EMAIL"]


def test_what_is_erased_is_a_hole_and_the_step_goes_on() -> None:
    bench = Bench()
    step = bench.step("e-1", MAIL)
    bench.door.destroy_subject("acme", "ines")
    bench.sealer = Sealer(bench.door)
    bench.start()
    (found,) = bench.feed(step)
    assert states(found) == ["erased"]


def test_a_segment_about_nobody_and_a_bare_end_mark_pass() -> None:
    bench = Bench()
    ref, chunks = bench.sealed("e-1", "You are brief.", nobody=True)
    (found,) = bench.feed(msgspec.structs.replace(bench.step("e-1", observation=(ref,)), sealed=chunks))
    assert states(found) == ["scanned"]
    (found,) = bench.feed(bench.step("e-2", end="terminated"))
    assert found.segments == ()


def test_bytes_are_flagged() -> None:
    bench = Bench()
    (found,) = bench.feed(bench.step("e-1", "data:image/png;base64,iVBORw0KGgo="))
    assert found.segments[0].binary
    assert [finding.type for finding in found.segments[0].findings] == ["BINARY"]


def test_only_what_a_sample_can_show_is_looked_at_but_all_of_it_is_kept() -> None:
    bench = Bench()
    ref, chunks = bench.sealed("e-1", b'{"name":"refund"}', nobody=True)
    tools = (msgspec.structs.replace(ref, kind="tool-definition", role=None),)
    (found,) = bench.feed(msgspec.structs.replace(bench.step("e-1", tools=tools), sealed=chunks))
    assert found.segments == ()
    assert bench.raw.chunks(TRAJECTORY, "raw", ref.id) == list(chunks)


# --- what must not pass -------------------------------------------------------------------------------------------


def refused(bench: Bench, record: LogRecord) -> str:
    with pytest.raises(Poison) as poison:
        bench.feed(record)
    assert bench.store.pending() == []
    return poison.value.reason


def test_a_text_that_could_not_be_looked_at_does_not_pass() -> None:
    bench = Bench(BlindDetector())
    assert refused(bench, bench.step("e-1", MAIL)) == "redaction_failed"
    assert bench.feed(bench.step("e-2", end="terminated"))[0].segments == ()


def test_a_changed_segment_does_not_pass() -> None:
    bench = Bench()
    step = bench.step("e-1", MAIL)
    (chunk,) = step.sealed
    changed = msgspec.structs.replace(chunk, data=chunk.data[:-1] + bytes([chunk.data[-1] ^ 1]))
    assert refused(bench, msgspec.structs.replace(step, sealed=(changed,))) == "corrupt"


def test_a_segment_that_is_not_there_does_not_pass() -> None:
    bench = Bench()
    assert refused(bench, bench.step("e-1", MAIL, carries=False)) == "segment_missing"


def test_a_segment_that_is_no_message_does_not_pass() -> None:
    bench = Bench()
    assert refused(bench, bench.step("e-1", b'{"role":"nobody"}')) == "segment_unreadable"


def test_another_tenants_segment_does_not_pass() -> None:
    bench = Bench()
    ref, chunks = bench.sealed("e-1", MAIL, "other", nobody=True)
    step = msgspec.structs.replace(bench.step("e-1", observation=(ref,)), sealed=chunks)
    assert refused(bench, step) == "foreign_segment"


def test_findings_that_fit_into_no_record_do_not_pass_unseen() -> None:
    bench = Bench()
    many = " ".join(f"u{i}@example.org" for i in range(12_000))
    assert refused(bench, bench.step("e-1", many)) == "too_many_findings"


def test_a_record_that_is_no_step_does_not_pass() -> None:
    assert refused(Bench(), TickRecord(tick_ms=1)) == "unexpected_record_type"


def test_redaction_without_a_detector_does_not_start() -> None:
    context = StageContext(
        settings=Settings(),
        sealer=Sealer(MemoryKeyDoor("acme")),
        facts=FactsState,
        raw_segments=MemorySegmentStore(),
        rendered_segments=MemorySegmentStore(),
    )
    with pytest.raises(Misconfigured, match="no detector"):
        RedactStage(0, context)
