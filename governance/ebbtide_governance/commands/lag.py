"""How far each stage is behind: end offsets of its input topics less what it has acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ebbtide_governance.projection import FOLLOWED
from ebbtide_platform.adapters.kafka_connection import client_config, list_topics, unavailable
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import CURATED_PREFIX, SHARED, TICKS

Offsets = Mapping[tuple[str, int], int]

ANSWER_S = 5.0
GROUPS = "ebbtide"
"""What every consumer group of ours is called first, behind the deployment's prefix."""
PROJECTOR = "projector"
_FOLLOWERS = frozenset({PROJECTOR, "replay", "every process", "feed"})
"""Readers that keep no consumer group."""


def read_lag(settings: Settings, projected: Offsets) -> dict[str, int]:
    """Records that each stage has yet to take; ``projected`` are the read model's positions.

    Raises:
        Unavailable: the broker does not answer.
    """
    admin = AdminClient(client_config(settings))
    return lag_by_stage(_ends(admin, settings), _acknowledged(admin, settings), projected)


def lag_by_stage(ends: Offsets, acknowledged: Offsets, projected: Offsets) -> dict[str, int]:
    """Lag by stage name, from offsets by (topic without prefix, partition)."""
    lag = {PROJECTOR: 0}
    # Ticks are written for ever and read by three stages: they say when, not how much there is to do.
    stages = {topic.name: topic.readers for topic in SHARED if topic is not TICKS}
    followed = {topic.name for topic in FOLLOWED}
    for (topic, partition), end in ends.items():
        for stage in stages.get(topic, ()):
            if stage not in _FOLLOWERS:
                lag[stage] = lag.get(stage, 0) + max(0, end - acknowledged.get((topic, partition), 0))
        if topic in followed or topic.startswith(CURATED_PREFIX):
            lag[PROJECTOR] += max(0, end - projected.get((topic, partition), 0))
    return lag


def _ends(admin: AdminClient, settings: Settings) -> dict[tuple[str, int], int]:
    wanted = {}
    for name, topic in list_topics(admin, settings).topics.items():
        plain = name.removeprefix(settings.topic_prefix)
        if name.startswith(settings.topic_prefix) and plain.startswith("ebbtide."):
            wanted.update({TopicPartition(name, number): OffsetSpec.latest() for number in topic.partitions})
    return {
        (asked.topic.removeprefix(settings.topic_prefix), asked.partition): _answer(future, settings).offset
        for asked, future in admin.list_offsets(wanted, request_timeout=ANSWER_S).items()
    }


def _acknowledged(admin: AdminClient, settings: Settings) -> dict[tuple[str, int], int]:
    listed = _answer(admin.list_consumer_groups(request_timeout=ANSWER_S), settings).valid
    groups = [group.group_id for group in listed if group.group_id.startswith(settings.topic(GROUPS))]
    acknowledged: dict[tuple[str, int], int] = {}
    for group in groups:
        asked = [ConsumerGroupTopicPartitions(group)]
        for future in admin.list_consumer_group_offsets(asked, request_timeout=ANSWER_S).values():
            for place in _answer(future, settings).topic_partitions or ():
                where = (place.topic.removeprefix(settings.topic_prefix), place.partition)
                acknowledged[where] = max(acknowledged.get(where, 0), place.offset)
    return acknowledged


def _answer(future: Future[Any], settings: Settings) -> Any:
    try:
        return future.result(timeout=ANSWER_S)
    except KafkaException as error:
        raise unavailable(settings, error.args[0]) from None
