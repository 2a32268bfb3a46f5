"""The embedded broker comes back with all its data, however it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter, create_topics
from ebbtide_platform.local.broker import Broker
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.settings import Settings, read_settings

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(
        read_settings(),
        data_dir=tmp_path,
        broker_port=free_ports(2),
        bootstrap_servers="",
        topic_prefix="",
        partitions=2,
    )


@pytest.mark.parametrize("end", [Broker.kill, Broker.stop], ids=["kill -9", "clean stop"])
def test_every_acknowledged_record_is_there_after_the_broker_ended(
    settings: Settings, end: Callable[[Broker], None]
) -> None:
    broker = Broker(settings)
    broker.start()
    create_topics(settings, [topics.STEPS])
    with KafkaLogWriter(settings) as writer:
        writer.write([OutRecord(topics.STEPS.name, b"k%d" % n, b"v%d" % n) for n in range(1_000)])
    end(broker)

    broker = Broker(settings)
    broker.start()
    try:
        with Follower(settings, [topics.STEPS]) as follower:
            assert sorted(record.value or b"" for record in follower.read_to_end()) == sorted(
                b"v%d" % n for n in range(1_000)
            )
    finally:
        broker.stop()
    assert broker.log_file.exists()
