"""The shared primitive: what is acknowledged is in the store and delivered; what is neither comes again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

import pytest

from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode
from ebbtide_platform.errors import Poison, Unavailable
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import FINDINGS, QUARANTINE, STEPS, TICKS, Topic
from ebbtide_schemas.records import QuarantineRecord
from ebbtide_streams.quarantine import CARRIED_BYTES, Quarantine
from ebbtide_streams.runner import StageRunner

NOW_MS = 1_700_000_000_000


class Echo:
    """Copies its input, counts it, and fails as the value says."""

    name: ClassVar[str] = "echo"
    inputs: ClassVar[tuple[Topic, ...]] = (STEPS, TICKS)

    def __init__(self) -> None:
        self.prepared: list[list[int]] = []
        self.processed: list[int] = []
        self.broken = False

    def prepare(self, records: Sequence[InRecord]) -> None:
        self.prepared.append([record.offset for record in records])

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        self.processed.append(record.offset)
        tx.put(b"%d" % record.offset, b"seen")
        tx.emit(OutRecord(FINDINGS.name, b"key", record.value or b"", partition=0))
        if record.value is None:
            raise Poison("null_value")
        if self.broken and record.value == b"breaks":
            raise ZeroDivisionError


class World:
    """A stage with its store, the log it writes to, and what stands there."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.store = MemoryStageStore()
        self.stage = Echo()
        self.door = MemoryKeyDoor("acme", clock_ms=lambda: NOW_MS)
        self.sealer = Sealer(self.door)

    def runner(self) -> StageRunner:
        """As after a start: the state is there, nothing in memory."""
        return StageRunner(self.stage, self.store, self.log, Quarantine("echo", self.sealer, lambda: NOW_MS))

    def echoed(self) -> list[bytes | None]:
        return [record.value for record in self.log.records(FINDINGS)]

    def quarantined(self) -> list[QuarantineRecord]:
        return [decode(record.value, QuarantineRecord) for record in self.log.records(QUARANTINE)]

    def keys(self) -> list[bytes]:
        with self.store.transaction({}) as tx:
            return [key for key, _ in tx.scan(b"")]


@pytest.fixture
def world() -> World:
    return World()


def _records(*values: bytes | None, start: int = 0, topic: str = STEPS.name) -> list[InRecord]:
    found = (("ce_tenant", b"acme"), ("ce_id", b"event-1"))
    return [InRecord(topic, 0, start + number, b"k", value, found) for number, value in enumerate(values)]


def test_a_batch_is_prepared_once_processed_in_order_and_delivered(world: World) -> None:
    runner = world.runner()
    runner.run(_records(b"a", b"b", b"c"))
    assert (world.stage.prepared, world.stage.processed) == ([[0, 1, 2]], [0, 1, 2])
    assert world.echoed() == [b"a", b"b", b"c"]
    assert (runner.position(STEPS.name), runner.position(TICKS.name)) == (3, 0)
    assert world.store.pending() == []


def test_what_the_store_has_seen_is_skipped_and_the_rest_is_done(world: World) -> None:
    world.runner().run(_records(b"a", b"b"))
    world.runner().run(_records(b"a", b"b", b"c"))
    assert world.stage.processed == [0, 1, 2]
    assert world.echoed() == [b"a", b"b", b"c"]


def test_topics_have_positions_of_their_own(world: World) -> None:
    runner = world.runner()
    runner.run([*_records(b"a", b"b"), *_records(b"tick", start=7, topic=TICKS.name)])
    assert world.store.offsets() == {STEPS.name: 2, TICKS.name: 8}


def test_a_stage_that_raises_leaves_nothing_and_its_batch_comes_again(world: World) -> None:
    world.stage.broken = True
    runner = world.runner()
    with pytest.raises(ZeroDivisionError):
        runner.run(_records(b"a", b"breaks", b"c"))
    assert (world.store.offsets(), world.keys(), world.echoed()) == ({}, [], [])
    assert runner.position(STEPS.name) == 0
    world.stage.broken = False
    world.runner().run(_records(b"a", b"breaks", b"c"))
    assert world.echoed() == [b"a", b"breaks", b"c"]


def test_a_failed_delivery_is_not_acknowledged_and_is_delivered_by_the_next_life(world: World) -> None:
    runner = world.runner()
    world.log.available = False
    with pytest.raises(Unavailable):
        runner.run(_records(b"a", b"b"))
    assert (world.store.offsets(), world.echoed()) == ({STEPS.name: 2}, [])
    world.log.available = True
    world.runner()
    assert world.echoed() == [b"a", b"b"]
    assert world.store.pending() == []


def test_a_runner_does_not_start_while_its_pending_outputs_cannot_be_delivered(world: World) -> None:
    world.log.available = False
    with pytest.raises(Unavailable):
        world.runner().run(_records(b"a"))
    with pytest.raises(Unavailable):
        world.runner()


def test_poison_is_set_aside_and_what_it_did_is_undone(world: World) -> None:
    world.runner().run(_records(b"a", None, b"c"))
    assert world.echoed() == [b"a", b"c"]
    assert world.keys() == [b"0", b"2"]
    assert world.store.offsets() == {STEPS.name: 3}
    (record,) = world.quarantined()
    assert (record.stage, record.reason, record.topic, record.partition, record.offset) == (
        "echo",
        "null_value",
        STEPS.name,
        0,
        1,
    )
    assert (record.tenant, record.trajectory, record.event) == ("acme", "k", "event-1")


class Refusing(Echo):
    """Calls everything poison."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        raise Poison("refused")


def test_quarantine_keeps_the_bytes_sealed(world: World) -> None:
    world.stage = Refusing()
    world.runner().run(_records(b"Ines Varga"))
    (record,) = world.quarantined()
    assert world.sealer.open(record.sealed) == b"Ines Varga"
    assert all(b"Ines" not in (raw.value or b"") for raw in world.log.records(QUARANTINE))


@pytest.mark.parametrize("key", [None, b"", b"ines@example.org", b"\xff\xfe", b"x" * 65, "Zoë".encode()], ids=repr)
def test_a_key_that_is_no_id_of_ours_is_not_repeated_in_clear(world: World, key: bytes | None) -> None:
    world.stage = Refusing()
    world.runner().run([InRecord(STEPS.name, 0, 0, key, b"v", (("ce_tenant", b"Ines Varga"),))])
    (record,) = world.quarantined()
    assert (record.trajectory, record.tenant, record.event) == (None, None, None)
    (raw,) = world.log.records(QUARANTINE)
    assert key is None or key == b"" or key not in (raw.key or b"")


def test_what_claims_an_unknown_tenant_is_sealed_under_the_deployment_s_own_key(world: World) -> None:
    world.stage = Refusing()
    world.runner().run([InRecord(STEPS.name, 0, 0, b"k", b"v", (("ce_tenant", b"nobody"),))])
    (record,) = world.quarantined()
    assert record.sealed[0].tenant == ""
    assert world.sealer.open(record.sealed) == b"v"


def test_what_would_not_fit_the_log_with_its_seal_is_only_referred_to(world: World) -> None:
    world.stage = Refusing()
    world.runner().run(_records(os.urandom(CARRIED_BYTES)))
    (record,) = world.quarantined()
    assert (record.topic, record.offset, record.sealed) == (STEPS.name, 0, ())
