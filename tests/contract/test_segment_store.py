"""One suite for every segment store: SQLite's and the one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.ports import SegmentStore
from ebbtide_schemas.records import Finding, FindingsRecord, SealedChunk, SegmentFindings, StepHeader

FINDING = Finding(leaf="/content", start=0, end=3, type="PERSON", score=0.9)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentStore]:
    made: SegmentStore = (
        MemorySegmentStore() if request.param == "memory" else SqliteSegmentStore(tmp_path / "raw.sqlite")
    )
    yield made
    made.close()


def _chunk(segment: str = "s", number: int = 0, of: int = 1, data: bytes = b"sealed") -> SealedChunk:
    return SealedChunk(
        segment=segment,
        chunk=number,
        chunks=of,
        tenant="acme",
        trajectory="t",
        subjects=("p",),
        seal_class="raw",
        first_event="e",
        nonce=b"n" * 12,
        data=data,
    )


def _record(*segments: SegmentFindings, event: str = "e") -> FindingsRecord:
    header = StepHeader(
        event=event, tenant="acme", trajectory="t", session="t", ordinal=0, parent=None, branch="continue"
    )
    return FindingsRecord(header=header, segments=segments, redaction="r1")


def test_chunks_come_back_in_order_whatever_order_they_came_in(store: SegmentStore) -> None:
    chunks = [_chunk(number=number, of=12) for number in range(12)]
    store.put_chunks("t", "raw", reversed(chunks))
    assert store.chunks("t", "raw", "s") == chunks


def test_the_same_chunk_again_changes_nothing(store: SegmentStore) -> None:
    store.put_chunks("t", "raw", [_chunk()])
    store.put_chunks("t", "raw", [_chunk()])
    assert store.chunks("t", "raw", "s") == [_chunk()]


def test_trajectories_spaces_and_segments_are_apart(store: SegmentStore) -> None:
    store.put_chunks("t", "raw", [_chunk()])
    assert store.chunks("u", "raw", "s") == []
    assert store.chunks("t", "rendered:0", "s") == []
    assert store.chunks("t", "raw", "r") == []


def test_a_dropped_space_is_gone_and_no_other(store: SegmentStore) -> None:
    for space in ("rendered:1", "rendered:10"):
        store.put_chunks("t", space, [_chunk(), _chunk("r")])
    store.drop_space("t", "rendered:1")
    assert store.chunks("t", "rendered:1", "s") == store.chunks("t", "rendered:1", "r") == []
    assert store.chunks("t", "rendered:10", "s") == [_chunk()]


def test_findings_are_kept_with_the_version_that_looked(store: SegmentStore) -> None:
    scanned = SegmentFindings(segment="s", findings=(FINDING,))
    erased = SegmentFindings(segment="x", state="erased")
    store.put_findings(_record(scanned, erased))
    for item in (scanned, erased):
        found = store.findings("t", item.segment)
        assert found is not None
        assert (found[0], msgspec.msgpack.decode(found[1], type=SegmentFindings)) == ("r1", item)
    assert store.findings("t", "never seen") is None


def test_a_repeat_does_not_overwrite_what_was_found(store: SegmentStore) -> None:
    store.put_findings(_record(SegmentFindings(segment="s", findings=(FINDING,))))
    store.put_findings(_record(SegmentFindings(segment="s", state="repeat"), event="f"))
    found = store.findings("t", "s")
    assert found is not None
    assert msgspec.msgpack.decode(found[1], type=SegmentFindings).findings == (FINDING,)


def test_the_header_of_a_step_comes_back(store: SegmentStore) -> None:
    record = _record()
    store.put_findings(record)
    assert store.header("t", "e") == record.header
    assert store.header("t", "f") is None
    assert store.header("u", "e") is None


def test_another_connection_reads_what_was_written(tmp_path: Path) -> None:
    writer, reader = SqliteSegmentStore(tmp_path / "raw.sqlite"), SqliteSegmentStore(tmp_path / "raw.sqlite")
    writer.put_chunks("t", "raw", [_chunk()])
    assert reader.chunks("t", "raw", "s") == [_chunk()]
    writer.close()
    reader.close()
