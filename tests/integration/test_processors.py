"""The Faust application on the real broker: a stage resumes where its state stands, whatever was acknowledged."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from ebbtide_platform.errors import FAULT, Misconfigured
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import REWARDS, TICKS
from ebbtide_streams.app import choose_stages
from ebbtide_streams.partitions import STAGES
from support.faulty_worker import HANGS, RAISES_ONCE, Faults
from support.waiting import wait_until
from support.workers import TRAJECTORIES, committed, quarantined, reward, routed, running_worker, stop, write

COUNT = 10
ALL = [float(number) for number in range(COUNT)]
DEADLINE_S = 40.0


@pytest.fixture
def settings(broker_settings: Settings) -> Settings:
    """With the shortest session that the broker allows, so that a killed worker is soon forgotten."""
    return replace(broker_settings, session_timeout_s=6.0)


@pytest.mark.broker
def test_a_gap_in_acknowledgements_and_a_kill_lose_nothing(settings: Settings) -> None:
    """Offset 2 is slow and 5 raises at first; a commit in between, kill -9, and again."""
    faults = Faults(settings)
    faults.set(HANGS, "reward-2")
    faults.set(RAISES_ONCE, "reward-5")
    write(settings, *map(reward, range(2)))
    with running_worker(settings, "ours") as worker:
        wait_until(lambda: committed(settings, "ebbtide.route") == 2, "what is done is acknowledged", DEADLINE_S)
        write(settings, *map(reward, range(2, COUNT)))
        wait_until(lambda: faults.happened(HANGS, "reward-2"), "the slow one is in work", DEADLINE_S)
        worker.kill()
    assert committed(settings, "ebbtide.route") == 2
    (faults.folder / f"{HANGS}-reward-2").unlink()
    with running_worker(settings, "ours") as worker:
        assert worker.wait(DEADLINE_S) == FAULT
    assert faults.happened(RAISES_ONCE, "reward-5")
    with running_worker(settings, "ours") as worker:
        wait_until(lambda: len(routed(settings)) >= COUNT, "everything is done", DEADLINE_S)
        wait_until(lambda: committed(settings, "ebbtide.route") == COUNT, "and acknowledged", DEADLINE_S)
        assert stop(worker) == 0
    assert routed(settings) == ALL
    assert quarantined(settings) == []


@pytest.mark.broker
def test_null_and_garbage_are_set_aside_and_the_partition_goes_on(settings: Settings) -> None:
    key = TRAJECTORIES[0].encode()
    strange = [(key, None), (None, None), (key, b"null"), (key, b""), (key, b"\xc1")]
    write(
        settings,
        reward(0),
        *(OutRecord(REWARDS.name, key, value, partition=0) for key, value in strange),  # type: ignore[arg-type]
        reward(1),
    )
    with running_worker(settings, "ours"):
        wait_until(lambda: routed(settings) == [0.0, 1.0], "the partition goes on", DEADLINE_S)
        wait_until(lambda: committed(settings, "ebbtide.route") == len(strange) + 2, "each is acknowledged", DEADLINE_S)
    found = [(record.offset, record.reason) for record in quarantined(settings)]
    assert found == [(1, "null_value"), (2, "null_key"), (3, "undecodable"), (4, "undecodable"), (5, "undecodable")]


@pytest.mark.broker
def test_a_stage_whose_state_is_lost_begins_at_the_beginning(settings: Settings) -> None:
    write(settings, *map(reward, range(COUNT)))
    with running_worker(settings, "ours") as worker:
        wait_until(lambda: committed(settings, "ebbtide.route") == COUNT, "everything is acknowledged", DEADLINE_S)
        assert stop(worker) == 0
    assert routed(settings) == ALL
    shutil.rmtree(settings.data_dir / "state")
    with running_worker(settings, "ours"):
        wait_until(lambda: len(routed(settings)) >= 2 * COUNT, "it was all done again", DEADLINE_S)
    assert routed(settings) == sorted(2 * ALL)


@pytest.mark.broker
def test_workers_that_come_and_go_do_everything_once(settings: Settings) -> None:
    """Two partitions: the third worker waits until the first is killed."""
    numbers = iter(range(10_000))

    def publish(count: int) -> None:
        write(settings, *(reward(next(numbers), partition=number % 2) for number in range(count)))

    with running_worker(settings, "ours") as first:
        publish(100)
        wait_until(lambda: len(routed(settings)) >= 50, "the first works", DEADLINE_S)
        with running_worker(settings, "ours") as second, running_worker(settings, "ours"):
            publish(100)
            wait_until(lambda: len(routed(settings)) >= 150, "they share", DEADLINE_S)
            publish(100)
            first.kill()
            publish(100)
            wait_until(lambda: len(routed(settings)) >= 350, "the rest takes over", DEADLINE_S)
            publish(100)
            assert stop(second) == 0
            wait_until(lambda: len(routed(settings)) >= 500, "the last does it all", DEADLINE_S)
    assert routed(settings) == [float(number) for number in range(500)]


def test_the_stages_are_chosen_by_name_and_all_of_them_by_none() -> None:
    assert choose_stages("") == STAGES
    assert list(choose_stages("settle, route")) == ["route", "settle"]
    assert any(TICKS in stage.inputs for stage in choose_stages("judge").values())


def test_a_stage_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        choose_stages("route,rout")
