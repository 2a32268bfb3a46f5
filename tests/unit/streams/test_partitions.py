"""Which partitions a process has open: exactly those it owns, each from where its state stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.stage.sqlite import SqliteStageStore
from ebbtide_platform.codec import encode
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import MEMBERS, TICKS, TRAJECTORIES
from ebbtide_schemas.records import TickRecord
from ebbtide_streams.app import choose_stages
from ebbtide_streams.partitions import Partitions
from ebbtide_streams.state.paths import state_path

JUDGE, GROUP = ("judge", 0), ("group", 0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def partitions(settings: Settings) -> Iterator[Partitions]:
    sealer = Sealer(MemoryKeyDoor("acme"))
    made = Partitions(settings, choose_stages("judge,group"), sealer, FactsState(), None, MemoryLog())
    yield made
    made.close()


def _ticks(count: int, partition: int = 0) -> list[InRecord]:
    return [InRecord(TICKS.name, partition, number, b"", encode(TickRecord(tick_ms=number))) for number in range(count)]


def _is_locked(settings: Settings, stage: str, partition: int) -> bool:
    try:
        SqliteStageStore(state_path(settings, stage, partition)).close()
    except Unavailable:
        return True
    return False


def test_a_new_partition_begins_at_the_beginning(partitions: Partitions) -> None:
    assert partitions.own([JUDGE]) == {(TRAJECTORIES.name, 0): 0, (TICKS.name, 0): 0}


def test_a_partition_goes_on_where_its_state_stands(partitions: Partitions) -> None:
    partitions.own([JUDGE])
    partitions.run("judge", _ticks(3))
    partitions.close()
    assert partitions.own([JUDGE])[TICKS.name, 0] == 3


def test_a_topic_of_several_stages_begins_where_the_hindmost_stands(partitions: Partitions) -> None:
    partitions.own([JUDGE, GROUP])
    partitions.run("judge", _ticks(3))
    partitions.run("group", _ticks(2))
    assert partitions.own([JUDGE, GROUP]) == {
        (TRAJECTORIES.name, 0): 0,
        (MEMBERS.name, 0): 0,
        (TICKS.name, 0): 2,
    }


def test_what_is_owned_no_longer_is_given_up_for_the_next_owner(partitions: Partitions, settings: Settings) -> None:
    partitions.own([JUDGE, ("judge", 1)])
    partitions.own([JUDGE])
    assert (_is_locked(settings, "judge", 0), _is_locked(settings, "judge", 1)) == (True, False)


def test_a_late_batch_of_a_lost_partition_is_left_to_its_new_owner(partitions: Partitions, settings: Settings) -> None:
    partitions.own([JUDGE])
    partitions.run("judge", [*_ticks(1), *_ticks(5, partition=1)])
    assert not state_path(settings, "judge", 1).exists()
    assert partitions.own([JUDGE, ("judge", 1)])[TICKS.name, 1] == 0
