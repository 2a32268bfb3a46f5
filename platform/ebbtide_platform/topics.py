"""Every topic there is: who writes it, who reads it, by which key, and how long it stays.

Topics are created from this table and never by auto-creation. All co-partitioned topics have the same
number of partitions, and every writer names its partition by murmur2, so that what belongs together meets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ebbtide_platform.errors import InvalidInput

DAY_MS = 86_400_000
CURATED_PREFIX = "ebbtide.curated."
_CURATED_SUFFIX = ".v1"
TENANT_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True)
class Topic:
    """One topic's contract."""

    name: str
    writer: str
    readers: tuple[str, ...]
    key: str
    retention_ms: int | None
    """None keeps records for ever."""
    partitions: int | None = None
    """None: the shared partition count of this deployment."""
    cleanup: str = "delete"
    max_record_bytes: int | None = None
    """None: the broker's own limit."""


# Facts and their references outlive the longest reward window (90 days) with a margin for replays.
LOG_MS = 400 * DAY_MS
_BETWEEN_STAGES = 30 * DAY_MS

MAX_SAMPLE_BYTES = 8_388_608
"""A sample holds all the text of its chain in one record; the policy's limit of text lies far below."""

STEPS = Topic("ebbtide.steps.v1", "door", ("redact", "projector"), "trajectory", LOG_MS)
ALIASES = Topic("ebbtide.aliases.v1", "door", ("route",), "alias", LOG_MS)
REWARDS = Topic("ebbtide.rewards.v1", "door", ("route", "projector"), "alias", LOG_MS)
ROUTED = Topic("ebbtide.routed.v1", "route", ("settle",), "trajectory", LOG_MS)
FINDINGS = Topic("ebbtide.findings.v1", "redact", ("settle", "projector"), "trajectory", LOG_MS)
TRAJECTORIES = Topic("ebbtide.trajectories.v1", "settle", ("settle", "judge", "projector"), "trajectory", LOG_MS)
DECISIONS = Topic("ebbtide.decisions.v1", "judge", ("curator", "projector"), "trajectory", LOG_MS)
MEMBERS = Topic("ebbtide.members.v1", "judge", ("group",), "group", _BETWEEN_STAGES)
GROUPS = Topic("ebbtide.groups.v1", "group", ("projector", "feed"), "group", LOG_MS)
TICKS = Topic("ebbtide.ticks.v1", "ticker", ("settle", "judge", "group"), "explicit partition", 7 * DAY_MS)
FACTS = Topic("ebbtide.facts.v1", "door", ("every process",), "subject", None, partitions=1)
# What nobody is known to own is sealed under a day key that lives 21 days; the record has no use after it.
QUARANTINE = Topic("ebbtide.quarantine.v1", "every stage", ("projector", "replay"), "trajectory", 21 * DAY_MS)

SHARED: tuple[Topic, ...] = (
    STEPS,
    ALIASES,
    REWARDS,
    ROUTED,
    FINDINGS,
    TRAJECTORIES,
    DECISIONS,
    MEMBERS,
    GROUPS,
    TICKS,
    FACTS,
    QUARANTINE,
)


def check_tenant(tenant: str) -> str:
    """Return ``tenant`` if it may name a topic.

    Raises:
        InvalidInput: it is not 1 to 63 lower-case letters, digits and inner hyphens.
    """
    if not TENANT_PATTERN.match(tenant):
        raise InvalidInput("tenant", "must be 1 to 63 lower-case letters, digits or inner hyphens")
    return tenant


def curated(tenant: str) -> Topic:
    """The topic of one tenant's curated samples; partition i is written only from decisions partition i."""
    name = f"{CURATED_PREFIX}{check_tenant(tenant)}{_CURATED_SUFFIX}"
    return Topic(name, "curator", ("consumers", "projector"), "trajectory", LOG_MS, max_record_bytes=MAX_SAMPLE_BYTES)


def tenant_of(curated_topic: str) -> str:
    """The tenant that a curated topic (without deployment prefix) belongs to.

    Raises:
        InvalidInput: it is no curated topic.
    """
    if not (curated_topic.startswith(CURATED_PREFIX) and curated_topic.endswith(_CURATED_SUFFIX)):
        raise InvalidInput("topic", "is not a curated topic")
    return check_tenant(curated_topic[len(CURATED_PREFIX) : -len(_CURATED_SUFFIX)])


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of ``key`` by Kafka's murmur2, as Java, librdkafka (``murmur2_random``) and aiokafka choose it."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bit, seed 0x9747b28c: the default partitioner of Apache Kafka's Java producer."""
    length = len(data)
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & mask
        k ^= k >> 24
        k = (k * m) & mask
        h = ((h * m) & mask) ^ k
    rest = data[whole:]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    return h ^ (h >> 15)
