"""The two traps that plain Faust falls into, shown on plain Faust, and how the shared primitive avoids them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from ebbtide_platform.adapters.kafka import client_config
from ebbtide_platform.errors import FAULT
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ROUTED
from support.faulty_worker import RAISES_ONCE, Faults
from support.waiting import wait_until
from support.workers import committed, reward, routed, running_worker, stop, write

pytestmark = pytest.mark.broker

COUNT = 10
FAILING = 5
ALL = [float(number) for number in range(COUNT)]
ALL_BUT_ONE = [value for value in ALL if value != FAILING]
EXIT_S = 40.0
LARGE = 200_000
SMALL_LIMIT = 100_000


@pytest.fixture
def settings(broker_settings: Settings) -> Settings:
    """With the shortest session that the broker allows, so that a killed worker is soon forgotten."""
    return replace(broker_settings, session_timeout_s=6.0)


def _limit_output(settings: Settings, limit: int) -> None:
    """Make the broker refuse records above ``limit`` bytes: a delivery that fails, with nothing simulated."""
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, settings.topic(ROUTED.name), incremental_configs=[entry])
    admin = AdminClient(client_config(settings))
    for done in admin.incremental_alter_configs([topic]).values():
        done.result(timeout=10)


def test_plain_faust_acknowledges_an_event_whose_agent_raised(settings: Settings) -> None:
    Faults(settings).set(RAISES_ONCE, f"reward-{FAILING}")
    write(settings, *map(reward, range(COUNT)))
    with running_worker(settings, "plain") as worker:
        wait_until(lambda: committed(settings, "plain") == COUNT, "everything is acknowledged")
        stop(worker)
    with running_worker(settings, "plain"):
        write(settings, reward(COUNT))
        wait_until(lambda: COUNT in routed(settings), "the next life has caught up")
        assert routed(settings) == [*ALL_BUT_ONE, COUNT]


def test_the_primitive_does_not_lose_an_event_whose_stage_raised(settings: Settings) -> None:
    Faults(settings).set(RAISES_ONCE, f"reward-{FAILING}")
    write(settings, *map(reward, range(COUNT)))
    with running_worker(settings, "ours") as worker:
        assert worker.wait(EXIT_S) == FAULT
        assert routed(settings) == []
    with running_worker(settings, "ours"):
        wait_until(lambda: len(routed(settings)) >= COUNT, "the next life has done everything", EXIT_S)
        assert routed(settings) == ALL


def test_plain_faust_acknowledges_an_event_whose_delivery_failed(settings: Settings) -> None:
    _limit_output(settings, SMALL_LIMIT)
    write(settings, *(reward(number, padding=LARGE if number == FAILING else 0) for number in range(COUNT)))
    with running_worker(settings, "plain") as worker:
        wait_until(lambda: committed(settings, "plain") == COUNT, "everything is acknowledged")
        stop(worker)
    _limit_output(settings, 2 * LARGE)
    with running_worker(settings, "plain"):
        write(settings, reward(COUNT))
        wait_until(lambda: COUNT in routed(settings), "the next life has caught up")
        assert routed(settings) == [*ALL_BUT_ONE, COUNT]


def test_the_primitive_does_not_lose_an_event_whose_delivery_failed(settings: Settings) -> None:
    _limit_output(settings, SMALL_LIMIT)
    write(settings, *(reward(number, padding=LARGE if number == FAILING else 0) for number in range(COUNT)))
    with running_worker(settings, "ours") as worker:
        assert worker.wait(EXIT_S) == FAULT
        assert committed(settings, "ebbtide.route") == 0
    with running_worker(settings, "ours") as worker:
        # What is pending goes first, and while it cannot be delivered nothing else is taken.
        assert worker.wait(EXIT_S) == FAULT
        assert committed(settings, "ebbtide.route") == 0
    _limit_output(settings, 2 * LARGE)
    with running_worker(settings, "ours"):
        wait_until(lambda: set(routed(settings)) == set(ALL), "the next life has delivered everything", EXIT_S)
