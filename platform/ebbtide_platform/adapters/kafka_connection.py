"""A client's connection to Kafka: its configuration, its errors in Ebbtide's words, and what topics there are."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from ebbtide_platform.errors import Unavailable
from ebbtide_platform.settings import Settings

ADMIN_S = 10.0
RETRY_S = 0.05
PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Errors of a broker that starts, moves a leader or is away for a moment: waited out."""


def client_config(settings: Settings, **more: Any) -> dict[str, Any]:
    """What every Kafka client of Ebbtide is given; ``more`` is added in librdkafka's own words."""
    return {
        "bootstrap.servers": settings.brokers,
        "client.id": "ebbtide",
        # The broker may be away for a while: come back soon, and do not fill the log meanwhile.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "log_level": 2,
        **more,
    }


def topic_leaders(client: AdminClient | Consumer, settings: Settings, name: str) -> dict[str, dict[int, int]]:
    """Leader by partition of the topic, empty while it is unknown. Raises `Unavailable`."""
    return {
        topic: {number: partition.leader for number, partition in found.partitions.items()}
        for topic, found in list_topics(client, settings, name).topics.items()
        if found.error is None
    }


def list_topics(
    client: AdminClient | Consumer | Producer, settings: Settings, name: str | None = None, timeout_s: float = ADMIN_S
) -> ClusterMetadata:
    """The cluster's brokers and topics, or one topic's. Raises `Unavailable` if no broker answers."""
    try:
        return client.list_topics(name, timeout=timeout_s) if name else client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise unavailable(settings, error.args[0]) from None


def unavailable(settings: Settings, error: KafkaError) -> Unavailable:
    """The error to raise, named by the error's code: librdkafka's texts may hold host names and keys."""
    return Unavailable(
        f"the Kafka broker at {settings.brokers} does not do what was asked ({error.name()})",
        try_this="`ebbtide doctor` says what is missing; `ebbtide up` starts an embedded broker",
    )
