"""The Kafka adapters on the real broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter, client_config, create_topics
from ebbtide_platform.errors import Misconfigured, TooLarge, Unavailable
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.settings import Settings

pytestmark = pytest.mark.broker


def _record(number: int, topic: str = topics.STEPS.name) -> OutRecord:
    return OutRecord(topic, f"key-{number}".encode(), f"value-{number}".encode(), (("ce_id", b"x"),))


def test_topics_can_be_created_again_and_are_as_the_table_says(broker_settings: Settings) -> None:
    create_topics(broker_settings, topics.SHARED)
    with Follower(broker_settings, [topics.FACTS, topics.STEPS]) as follower:
        assert Counter(topic for topic, _ in follower.positions()) == {topics.FACTS.name: 1, topics.STEPS.name: 2}


def test_another_partition_count_is_refused_because_keys_would_move(broker_settings: Settings) -> None:
    with pytest.raises(Misconfigured, match="has 2 partitions, the settings say 3"):
        create_topics(replace(broker_settings, partitions=3), [topics.STEPS])


def test_a_topic_that_nobody_created_is_not_created_by_reading(broker_settings: Settings) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        Follower(broker_settings, [topics.curated("nobody")])


def test_what_is_written_is_read_with_key_headers_and_receipt_time(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer, Follower(broker_settings, [topics.STEPS]) as follower:
        writer.write([_record(number) for number in range(20)])
        read = list(follower.read_to_end())
    assert {record.value for record in read} == {f"value-{number}".encode() for number in range(20)}
    assert {record.topic for record in read} == {topics.STEPS.name}
    assert all(record.headers == (("ce_id", b"x"),) and record.timestamp_ms > 0 for record in read)


def test_the_partition_of_a_key_is_the_one_that_murmur2_says(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer, Follower(broker_settings, [topics.STEPS]) as follower:
        writer.write([_record(number) for number in range(64)])
        placed = {record.key: record.partition for record in follower.read_to_end()}
    assert placed == {key: topics.partition_of(key or b"", broker_settings.partitions) for key in placed}
    assert set(placed.values()) == {0, 1}


def test_an_explicit_partition_wins_over_the_key(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer, Follower(broker_settings, [topics.TICKS]) as follower:
        writer.write([OutRecord(topics.TICKS.name, b"same", b"v", partition=number) for number in (0, 1)])
        assert sorted(record.partition for record in follower.read_to_end()) == [0, 1]


def test_an_aborted_transaction_is_never_seen_and_does_not_hide_the_end(broker_settings: Settings) -> None:
    name = broker_settings.topic(topics.STEPS.name)
    producer = Producer(client_config(broker_settings, **{"transactional.id": f"{broker_settings.topic_prefix}t"}))
    producer.init_transactions(10)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)) * 2:
        producer.begin_transaction()
        producer.produce(name, key=b"k", value=value, partition=0)
        producer.flush(10)
        end(10)
    with Follower(broker_settings, [topics.STEPS]) as follower:
        assert [record.value for record in follower.read_to_end()] == [b"committed", b"committed"]
        assert follower.positions() == follower.end_offsets()


def test_a_follower_resumes_where_it_is_told(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer:
        writer.write([_record(number) for number in range(10)])
        with Follower(broker_settings, [topics.STEPS]) as follower:
            first = len(list(follower.read_to_end()))
            stored = follower.positions()
        writer.write([_record(99)])
        with Follower(broker_settings, [topics.STEPS], stored) as follower:
            assert [record.value for record in follower.read_to_end()] == [b"value-99"]
    assert first == 10


def test_a_follower_from_the_end_sees_only_what_comes_after(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer:
        writer.write([_record(1)])
        with Follower(broker_settings, [topics.STEPS], "end") as follower:
            writer.write([_record(2)])
            assert next(iter(follower)).value == b"value-2"


def test_a_follower_of_one_partition_reads_only_that_one(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer:
        writer.write([OutRecord(topics.STEPS.name, b"k", bytes([number]), partition=number) for number in (0, 1)])
    with Follower(broker_settings, [topics.STEPS], partitions=[1]) as follower:
        assert [record.value for record in follower.read_to_end()] == [b"\x01"]


def test_a_record_that_kafka_does_not_take_is_named_as_too_large(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer:
        with pytest.raises(TooLarge):
            writer.write([OutRecord(topics.STEPS.name, b"k", bytes(2_000_000))])
        writer.write([_record(1)])


def test_a_broker_that_is_away_is_unavailable_and_the_batch_can_be_written_again(broker_settings: Settings) -> None:
    away = replace(broker_settings, bootstrap_servers="127.0.0.1:1")
    with KafkaLogWriter(away, delivery_s=0.3) as writer:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
                writer.write([_record(1)])
