"""The topic table: every topic once, its key, and murmur2 as Apache Kafka computes it."""

from __future__ import annotations

import pytest

from ebbtide_platform.errors import InvalidInput
from ebbtide_platform.topics import DECISIONS, FACTS, SHARED, curated, partition_of, tenant_of

# From Apache Kafka's own UtilsTest.testMurmur2, as signed 32-bit integers.
KAFKA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
MANY = 1 << 31


@pytest.mark.parametrize(("key", "hashed"), KAFKA_MURMUR2.items(), ids=lambda value: repr(value)[:20])
def test_a_key_has_the_partition_that_kafka_gives_it(key: bytes, hashed: int) -> None:
    assert partition_of(key, MANY) == hashed & 0x7FFFFFFF


def test_every_topic_stands_in_the_table_once() -> None:
    names = [topic.name for topic in SHARED]
    assert len(set(names)) == len(names)
    assert all(topic.name.startswith("ebbtide.") and topic.readers for topic in SHARED)


def test_facts_are_kept_for_ever_in_one_order() -> None:
    assert (FACTS.retention_ms, FACTS.partitions) == (None, 1)


def test_a_curated_topic_has_the_partitions_of_the_decisions_it_is_made_from() -> None:
    assert curated("acme").partitions == DECISIONS.partitions


def test_the_tenant_of_a_curated_topic_is_its_own() -> None:
    assert tenant_of(curated("acme-2").name) == "acme-2"


@pytest.mark.parametrize("tenant", ["", "Acme", "a.b", "-a", "a-", "a" * 64, "../x", "a\n", "ä"])
def test_a_name_that_could_mean_another_topic_is_refused(tenant: str) -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        curated(tenant)


@pytest.mark.parametrize("topic", ["ebbtide.facts.v1", "ebbtide.curated.v1", "ebbtide.curated.acme.v2", "acme"])
def test_what_is_no_curated_topic_has_no_tenant(topic: str) -> None:
    with pytest.raises(InvalidInput):
        tenant_of(topic)
