"""One suite for every log: Kafka's writer and follower, and the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.adapters.log_memory import MemoryFollower, MemoryLog
from ebbtide_platform.ports import InRecord, LogWriter, OutRecord
from ebbtide_platform.settings import Settings

PARTITIONS = 2


class Log:
    """A writer, and how to follow what it wrote."""

    def __init__(self, writer: LogWriter, follow: Callable[..., Follower | MemoryFollower]) -> None:
        self.write = writer.write
        self.follow = follow


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    if request.param == "memory":
        memory = MemoryLog(PARTITIONS)
        yield Log(memory, memory.follow)
        return
    settings: Settings = request.getfixturevalue("broker_settings")
    with ExitStack() as open_followers, KafkaLogWriter(settings) as writer:

        def follow(*arguments: object, **more: object) -> Follower:
            return open_followers.enter_context(Follower(settings, *arguments, **more))  # type: ignore[arg-type]

        yield Log(writer, follow)


def _records(count: int, topic: str = topics.STEPS.name) -> list[OutRecord]:
    return [OutRecord(topic, f"key-{n % 7}".encode(), str(n).encode(), (("ce_id", b"e"),)) for n in range(count)]


def test_every_record_comes_back_once_with_its_key_and_headers(log: Log) -> None:
    log.write(_records(50))
    read = list(log.follow([topics.STEPS]).read_to_end())
    assert sorted(int(record.value or b"") for record in read) == list(range(50))
    assert {record.headers for record in read} == {(("ce_id", b"e"),)}
    assert all(record.timestamp_ms > 0 for record in read)


def test_the_order_of_a_partition_is_the_order_of_writing(log: Log) -> None:
    log.write(_records(20))
    log.write(_records(40)[20:])
    seen: dict[int, list[int]] = {}
    for record in log.follow([topics.STEPS]).read_to_end():
        seen.setdefault(record.partition, []).append(int(record.value or b""))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_key_has_the_partition_that_murmur2_says(log: Log) -> None:
    log.write(_records(14))
    for record in log.follow([topics.STEPS]).read_to_end():
        assert record.partition == topics.partition_of(record.key or b"", PARTITIONS)


def test_a_topic_of_one_partition_has_one(log: Log) -> None:
    log.write([OutRecord(topics.FACTS.name, b"subject", b"fact", partition=0)])
    follower = log.follow([topics.FACTS])
    assert [record.offset for record in follower.read_to_end()] == [0]
    assert follower.positions() == follower.end_offsets() == {(topics.FACTS.name, 0): 1}


def test_reading_resumes_at_the_positions_of_an_earlier_reader(log: Log) -> None:
    log.write(_records(10))
    first = log.follow([topics.STEPS])
    assert len(list(first.read_to_end())) == 10
    log.write(_records(3))
    assert len(list(log.follow([topics.STEPS], first.positions()).read_to_end())) == 3


def test_from_the_end_there_is_nothing_until_something_is_written(log: Log) -> None:
    log.write(_records(10))
    follower = log.follow([topics.STEPS], "end")
    assert follower.poll(0.05) == []
    log.write(_records(1))
    assert [record.value for record in next_batch(follower)] == [b"0"]


def test_a_batch_is_never_longer_than_its_limit(log: Log) -> None:
    log.write(_records(10))
    assert 1 <= len(next_batch(log.follow([topics.STEPS]), limit=3)) <= 3


def test_one_partition_can_be_followed_by_itself(log: Log) -> None:
    log.write([OutRecord(topics.STEPS.name, b"k", bytes([number]), partition=number) for number in range(PARTITIONS)])
    assert [record.value for record in log.follow([topics.STEPS], partitions=[1]).read_to_end()] == [b"\x01"]


def next_batch(follower: Follower | MemoryFollower, limit: int = 500) -> list[InRecord]:
    """The next records, however many polls they take."""
    for _ in range(100):
        if records := follower.poll(0.1, limit):
            return list(records)
    raise AssertionError("nothing came")
