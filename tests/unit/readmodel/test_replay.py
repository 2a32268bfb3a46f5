"""Replay opens what was set aside and writes it back to the partition it came from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ebbtide_governance.commands.replay import Choice, choose, produce_again
from ebbtide_governance.projection import fold
from ebbtide_governance.tables.merging import merge_all
from ebbtide_governance.tables.rows import QuarantineRow, TrajectoryRow
from ebbtide_platform import topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.records import QuarantineRecord
from support.governed_log import START_MS, put, quarantined

NOW_MS = 1_900_000_000_000


def _log(*records: QuarantineRecord) -> MemoryLog:
    log = MemoryLog(now_ms=lambda: NOW_MS)
    log.create_topics(topics.SHARED)
    for record in records:
        put(log, topics.QUARANTINE, record.trajectory or "", record)
    return log


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), [1, 2, 3]),
        (Choice(tenant="acme"), [1, 2]),
        (Choice(reason="undecodable"), [2, 3]),
        (Choice(tenant="acme", reason="undecodable"), [2]),
        (Choice(offset=1), [1]),
        (Choice(stage="settle"), []),
    ],
    ids=["any", "of a tenant", "with a reason", "both", "one", "of another stage"],
)
def test_a_choice_names_records_by_what_is_known_of_them(choice: Choice, expected: list[int]) -> None:
    log = _log(
        quarantined("acme", "t", 1),
        quarantined("acme", "t", 2, "undecodable"),
        quarantined("globex", "t", 3, "undecodable"),
    )
    assert sorted(record.offset for _, record in choose(log.records(topics.QUARANTINE), choice, set())) == expected


def test_a_record_is_replayed_once_however_often_it_was_written_or_asked_for() -> None:
    log = _log(quarantined("acme", "t", 1), quarantined("acme", "t", 1))
    records = log.records(topics.QUARANTINE)
    assert len(list(choose(records, Choice(), set()))) == 1
    assert list(choose(records, Choice(), {("redact", topics.STEPS.name, 0, 1)})) == []


def test_the_original_bytes_come_back_to_their_partition_and_the_read_model_sees_it() -> None:
    log, (sealer, record) = _log(), _sealed(lambda: START_MS)
    assert produce_again(b"t", record, sealer, log) == "replayed"
    (again,) = log.records(topics.STEPS)
    assert (again.key, again.value, again.partition) == (b"t", b"original", 1)
    merged = merge_all(fold(again))
    assert [row["replayed_ms"] for row in merged[QuarantineRow].values()] == [NOW_MS]
    assert [row["replayed_ms"] for row in merged[TrajectoryRow].values()] == [NOW_MS]
    assert b"original" not in b"".join(value for _, value in again.headers)


def test_what_is_older_than_its_key_is_gone_and_says_so() -> None:
    clock = iter([START_MS])
    log, (sealer, record) = _log(), _sealed(lambda: next(clock, START_MS + 30 * topics.DAY_MS))
    assert produce_again(b"t", record, sealer, log) == "key destroyed"
    assert log.records(topics.STEPS) == []


def test_sealed_bytes_that_were_changed_are_not_written_anywhere() -> None:
    log, (sealer, record) = _log(), _sealed(lambda: START_MS)
    changed = replace(record, sealed=(replace(record.sealed[0], data=b"other"),))
    assert produce_again(b"t", changed, sealer, log) == "unreadable"
    assert log.records(topics.STEPS) == []


def _sealed(clock_ms: Callable[[], int]) -> tuple[Sealer, QuarantineRecord]:
    """A sealer, and a step set aside by it with a day key of `START_MS`; opening asks the door anew."""
    door = MemoryKeyDoor("acme", clock_ms=clock_ms)
    sealed = Sealer(door).seal_quarantine("acme", "e", b"original", START_MS)
    return Sealer(door), replace(quarantined("acme", "t", 5), partition=1, sealed=sealed)
