"""Faulty workers as processes, what goes into them, and what came out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter, client_config
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.settings import Settings, child_environment
from ebbtide_platform.topics import QUARANTINE, REWARDS, ROUTED, partition_of
from ebbtide_schemas.records import QuarantineRecord, RewardRecord

PROGRAM = Path(__file__).with_name("faulty_worker.py")
STOP_S = 30.0
TRAJECTORIES = ("a", "t")
"""By partition, of two: a record on another partition than its key's is set aside."""
COORDINATOR_AWAY = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE})
"""Until the broker has made the topic that it keeps groups in."""


@contextmanager
def running_worker(settings: Settings, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker (``ours`` or ``plain``), killed with SIGKILL at the end if it still lives."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with settings.data_dir.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), kind], env=child_environment(settings), stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> int:
    """End it as an orchestrator would; its exit code."""
    process.terminate()
    return process.wait(STOP_S)


def reward(number: int, *, partition: int = 0, padding: int = 0) -> OutRecord:
    """A reward that names its trajectory, the one of ``partition``."""
    trajectory = TRAJECTORIES[partition]
    assert partition_of(trajectory.encode(), len(TRAJECTORIES)) == partition
    record = RewardRecord(
        event=f"reward-{number}",
        tenant="acme",
        alias=trajectory,
        value=float(number),
        name="reward" + "x" * padding,
        source="human",
        received_ms=1,
        trajectory=trajectory,
        digest="d",
    )
    return OutRecord(REWARDS.name, trajectory.encode(), encode(record), (("ce_tenant", b"acme"),), partition)


def write(settings: Settings, *records: OutRecord) -> None:
    """Append to the log."""
    with KafkaLogWriter(settings) as writer:
        writer.write(records)


def routed(settings: Settings) -> list[float]:
    """Values on the routed topic, sorted."""
    with Follower(settings, [ROUTED]) as follower:
        return sorted(decode(record.value, RewardRecord).value for record in follower.read_to_end())


def quarantined(settings: Settings) -> list[QuarantineRecord]:
    """What was set aside, by offset of the original."""
    with Follower(settings, [QUARANTINE]) as follower:
        records = [decode(record.value, QuarantineRecord) for record in follower.read_to_end()]
    return sorted(records, key=lambda record: record.offset)


def committed(settings: Settings, group: str) -> int:
    """The offset that a group has acknowledged on partition 0 of the rewards; 0 if none, or none is known yet."""
    consumer = Consumer(client_config(settings, **{"group.id": settings.topic(group)}))
    try:
        (place,) = consumer.committed([TopicPartition(settings.topic(REWARDS.name), 0)], timeout=10)
        return max(place.offset, 0)
    except KafkaException as error:
        if error.args[0].code() not in COORDINATOR_AWAY:
            raise
        return 0
    finally:
        consumer.close()
