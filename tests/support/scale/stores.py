"""What the stores of doors, curator and key door cost, over N entries that lie in them already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.doors.outbox import Entry as OutboxEntry
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.ports import Erased, OutRecord, rendered_space
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import STEPS
from ebbtide_schemas.records import DecisionRecord
from ebbtide_streams.curation import CuratedIndex, Entry, curate
from support.scale.claim import Claim
from support.scale.counting import SqliteMeter
from support.scale.stages import settled_trajectory
from support.stages import Pipeline

AT_ONCE = 1_000
"""Of what a store is filled with."""
DEADLINE_S = 600.0


# --- outbox -----------------------------------------------------------------------------------------------------


class _Gate:
    """A log that takes nothing before it is opened, and then everything."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def write(self, records: Sequence[OutRecord]) -> None:
        """See `ports.LogWriter`."""
        self.reached.set()
        assert self.open.wait(DEADLINE_S)

    def close(self) -> None:
        """See `ports.LogWriter`."""


@contextmanager
def _full_outbox(size: int, folder: Path) -> Iterator[tuple[Outbox, _Gate, SqliteMeter]]:
    meter, gate = SqliteMeter(), _Gate()
    with meter.connecting():
        outbox = Outbox(folder, gate, max_bytes=1 << 40)
    with outbox:
        try:
            outbox.append([_event(size)])
            assert gate.reached.wait(DEADLINE_S)  # with that one event: all others are drained later
            for start in range(0, size, AT_ONCE):
                outbox.append([_event(i) for i in range(start, min(start + AT_ONCE, size))])
            yield outbox, gate, meter
        finally:
            gate.open.set()


def _event(number: int) -> OutboxEntry:
    return OutboxEntry(f"event {number:012}", "digest", (OutRecord(STEPS.name, b"key", b"v" * 100),))


def draining(size: int, folder: Path) -> float:
    """Instructions of handing ``size`` records to the log."""
    with _full_outbox(size, folder) as (outbox, gate, meter):

        def drain() -> None:
            gate.open.set()
            assert outbox.wait_drained(DEADLINE_S)

        return meter.count(drain)


def accepting(size: int, folder: Path) -> float:
    """Instructions of taking one more event with ``size`` waiting and remembered."""
    with _full_outbox(size, folder) as (outbox, _, meter):
        return meter.count(lambda: outbox.append([_event(size + 1)]))


# --- curator ----------------------------------------------------------------------------------------------------


def curating(size: int, folder: Path) -> float:
    """Instructions of one decision with samples of ``size`` other trajectories in index and segment store."""
    pipeline = Pipeline()
    settled = settled_trajectory(pipeline, 3)
    space = rendered_space(settled.revision)
    segments = [ref.segment for chain in settled.chains for ref in chain.segments]
    facts = FactsState()
    decision = DecisionRecord(
        settled=settled, verdict="eligible", reasons=(), policy="default@1", facts_offset=0, decided_ms=1
    )
    meter = SqliteMeter()
    with meter.connecting():
        index = CuratedIndex(folder / "index.sqlite")
        rendered = SqliteSegmentStore(folder / "rendered.sqlite")
    for segment in segments:
        rendered.put_chunks(settled.trajectory, space, pipeline.rendered.chunks(settled.trajectory, space, segment))
    (sealed,) = pipeline.rendered.chunks(settled.trajectory, space, segments[0])
    rendered.put_chunks("others", space, (msgspec.structs.replace(sealed, segment=f"s{i}") for i in range(size)))
    index.update({("acme", f"t{i}"): Entry(0, 0, (f"sample {i}",)) for i in range(size)}, {})

    def write() -> None:
        key = (settled.tenant, settled.trajectory)
        curation = curate(decision, index.entry(*key), facts)
        assert curation is not None
        for segment in segments:
            assert rendered.chunks(settled.trajectory, space, segment)
        index.update({key: curation.entry}, {"topic": 1})

    try:
        return meter.count(write)
    finally:
        index.close()
        rendered.close()


# --- key door ---------------------------------------------------------------------------------------------------


def _people(door: LocalKeyDoor, size: int) -> None:
    door.create_tenant("acme")
    for start in range(0, size, AT_ONCE):
        door.subject_refs("acme", [f"person {i}" for i in range(start, min(start + AT_ONCE, size))])


def _of_door(work: Callable[[LocalKeyDoor], object]) -> Callable[[int, Path], float]:
    def cost(size: int, folder: Path) -> float:
        meter = SqliteMeter()
        with meter.connecting(), LocalKeyDoor(replace(Settings(), data_dir=folder)) as door:
            _people(door, size)
            return meter.count(lambda: work(door))

    return cost


def erase(door: LocalKeyDoor) -> None:
    """Destroy one person's key."""
    assert door.destroy_subject("acme", "person 7") is not None


def meet(door: LocalKeyDoor) -> None:
    """See one more person."""
    (reference,) = door.subject_refs("acme", ["somebody new"])
    assert not isinstance(reference, Erased)


CLAIMS = (
    Claim("draining the outbox is linear", "instructions", draining, "linear", 4_000, 200_000),
    Claim("taking an event costs the same in a full outbox", "instructions", accepting, "flat", 2_000, 100_000),
    Claim("a decision is curated at the same cost among many", "instructions", curating, "flat", 2_000, 100_000),
    Claim("an erasure costs the same among many people", "instructions", _of_door(erase), "flat", 3_000, 30_000),
    Claim("a new person costs the same among many", "instructions", _of_door(meet), "flat", 3_000, 30_000),
)
