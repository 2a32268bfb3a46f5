"""What was read before a rebalance never leaps over what comes again after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import REWARDS, ROUTED
from ebbtide_schemas.records import RewardRecord
from ebbtide_streams.app import choose_stages
from ebbtide_streams.partitions import Partitions

ROUTE = ("route", 0)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=1)


@pytest.fixture
def partitions(tmp_path: Path, log: MemoryLog) -> Iterator[Partitions]:
    settings = Settings(data_dir=tmp_path, partitions=1)
    made = Partitions(settings, choose_stages("route"), Sealer(MemoryKeyDoor("acme")), FactsState(), None, log)
    yield made
    made.close()


def _rewards(*numbers: int) -> list[InRecord]:
    return [InRecord(REWARDS.name, 0, number, b"t", encode(_reward(number))) for number in numbers]


def _reward(number: int) -> RewardRecord:
    return RewardRecord(
        event=f"reward-{number}",
        tenant="acme",
        alias="t",
        value=float(number),
        name="reward",
        source="human",
        received_ms=0,
        trajectory="t",
        digest="d",
    )


def _routed(log: MemoryLog) -> list[float]:
    return [decode(record.value, RewardRecord).value for record in log.records(ROUTED)]


def test_an_event_that_was_on_its_way_when_its_batch_was_left_is_left_too(
    partitions: Partitions, log: MemoryLog
) -> None:
    """The partition is taken away before the batch, and comes back before the event behind it."""
    partitions.own([ROUTE], generation=1)
    partitions.close()
    partitions.run("route", _rewards(0, 1), generation=1)
    partitions.own([ROUTE], generation=2)
    partitions.run("route", _rewards(2), generation=1)
    partitions.run("route", _rewards(0, 1, 2), generation=2)
    assert _routed(log) == [0.0, 1.0, 2.0]


def test_a_rebalance_that_moved_nothing_holds_nothing_up(partitions: Partitions, log: MemoryLog) -> None:
    """What a newer assignment brings is taken, although nobody asked where to begin."""
    partitions.own([ROUTE], generation=1)
    partitions.run("route", _rewards(0), generation=2)
    assert _routed(log) == [0.0]
