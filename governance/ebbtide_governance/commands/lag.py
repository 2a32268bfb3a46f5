"""How far each stage is behind: end offsets of its input topics less what it has acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from ebbtide_governance.commands.projector import curated_topics
from ebbtide_governance.projection import FOLLOWED
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.adapters.kafka_connection import client_config, list_topics, unavailable
from ebbtide_platform.settings import Settings

Offsets = Mapping[tuple[str, int], int]

ANSWER_S = 5.0
REACH_S = 2.0
"""A broker that is not there is noticed in this time: the person at the terminal waits."""
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
    list_topics(admin, settings, timeout_s=REACH_S)
    with Follower(settings, [*FOLLOWED, *curated_topics(settings, admin)], "end") as follower:
        ends = follower.positions()
    return lag_by_stage(ends, _acknowledged(admin, settings), projected)


def lag_by_stage(ends: Offsets, acknowledged: Offsets, projected: Offsets) -> dict[str, int]:
    """Lag by stage name, from offsets by (topic without prefix, partition)."""
    lag = {PROJECTOR: 0}
    stages = {topic.name: topic.readers for topic in FOLLOWED}
    for (topic, partition), end in ends.items():
        for stage in stages.get(topic, ()):
            if stage not in _FOLLOWERS:
                lag[stage] = lag.get(stage, 0) + max(0, end - acknowledged.get((topic, partition), 0))
        lag[PROJECTOR] += max(0, end - projected.get((topic, partition), 0))
    return lag


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
