"""The log on Apache Kafka through confluent-kafka: create topics, append durably, read what is committed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ebbtide_platform.adapters.kafka_connection import (
    ADMIN_S,
    PASSING,
    RETRY_S,
    client_config,
    list_topics,
    topic_leaders,
    unavailable,
)
from ebbtide_platform.errors import Misconfigured, TooLarge, Unavailable
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import Topic

__all__ = ["Follower", "KafkaLogWriter", "Position", "client_config", "create_topics"]

Position = tuple[str, int]
"""Topic name without the deployment's prefix, and partition."""

PARTITIONER = "murmur2_random"
"""Java's and aiokafka's choice; librdkafka's own default is CRC32 and would break every co-partitioned join."""

BY_KEY = -1
"""librdkafka's way to say that the partitioner chooses."""
DELIVERY_S = 30.0
"""A record that is not acknowledged by then is reported, and written again by the caller."""
SETTLE_S = 20.0
"""How long a new topic may take until its partitions have leaders."""
STALL_S = 30.0
"""Reading to the end fails when nothing at all has come for so long."""
QUEUE_KB = 16_384
"""Fetched ahead per follower; librdkafka's default of 64 MB is meant for one consumer a process."""
BATCH = 500


def create_topics(settings: Settings, topics: Sequence[Topic]) -> None:
    """Create what is missing and return when every partition has a leader; harmless when repeated.

    Raises:
        Misconfigured: a topic exists with another number of partitions.
        Unavailable: the broker does not answer.
    """
    wanted = {settings.topic(topic.name): topic.partitions or settings.partitions for topic in topics}
    admin = AdminClient(client_config(settings))
    fresh = [
        NewTopic(
            settings.topic(topic.name),
            num_partitions=wanted[settings.topic(topic.name)],
            replication_factor=settings.replication,
            config={
                "cleanup.policy": topic.cleanup,
                "retention.ms": str(-1 if topic.retention_ms is None else topic.retention_ms),
                # Retention counts from receipt: a wrong clock at a writer neither keeps nor drops records.
                "message.timestamp.type": "LogAppendTime",
                "min.insync.replicas": str(min(2, settings.replication)),
                **({} if topic.max_record_bytes is None else {"max.message.bytes": str(topic.max_record_bytes)}),
            },
        )
        for topic in topics
    ]
    if not fresh:
        return
    for future in admin.create_topics(fresh, request_timeout=ADMIN_S).values():
        try:
            future.result(timeout=ADMIN_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise unavailable(settings, error.args[0]) from None
    _await_leaders(admin, settings, wanted)


def _await_leaders(admin: AdminClient, settings: Settings, wanted: Mapping[str, int]) -> None:
    deadline = time.monotonic() + SETTLE_S
    missing = dict(wanted)
    while missing:
        for name, partitions in list(missing.items()):
            found = topic_leaders(admin, settings, name).get(name, {})
            if len(found) > 0 and len(found) != partitions:
                raise Misconfigured(
                    f"topic {name} has {len(found)} partitions, the settings say {partitions}",
                    try_this=f"set EBBTIDE_PARTITIONS={len(found)}; the number cannot change without moving keys",
                )
            if len(found) == partitions and all(leader >= 0 for leader in found.values()):
                del missing[name]
        if missing and time.monotonic() > deadline:
            raise Unavailable(f"topics have no leader: {', '.join(sorted(missing))}", try_this="ebbtide doctor")
        if missing:
            time.sleep(RETRY_S)


class KafkaLogWriter:
    """`LogWriter` on Kafka: acks=all, idempotent, murmur2. Safe from any thread; one batch at a time.

    A producer that failed is thrown away with all that it still held, so that nothing of a batch that was
    reported as lost arrives after the batch's second try.
    """

    def __init__(self, settings: Settings, *, delivery_s: float = DELIVERY_S) -> None:
        self._settings = settings
        self._delivery_s = delivery_s
        self._lock = Lock()
        self._producer: Producer | None = None

    def write(self, records: Sequence[OutRecord]) -> None:
        """Return when every record is acknowledged.

        Raises:
            Unavailable: at least one was not; write all of them again.
            TooLarge: a record is larger than the broker takes.
        """
        with self._lock:
            if self._producer is None:
                self._producer = self._connect()
            failed = self._deliver(self._producer, records)
            if failed is not None:
                self._discard()
                raise unavailable(self._settings, failed)

    def close(self) -> None:
        """Release the connection; nothing is pending by then."""
        with self._lock:
            self._discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> Producer:
        producer = Producer(
            client_config(
                self._settings,
                **{
                    "acks": "all",
                    "enable.idempotence": True,
                    "partitioner": PARTITIONER,
                    "linger.ms": 2,
                    "delivery.timeout.ms": int(self._delivery_s * 1000),
                },
            )
        )
        # Connect first: the idempotent producer's id, asked for too early, is asked for again only a second later.
        list_topics(producer, self._settings, timeout_s=min(self._delivery_s, ADMIN_S))
        return producer

    def _deliver(self, producer: Producer, records: Sequence[OutRecord]) -> KafkaError | None:
        """The first failure, None when all were acknowledged."""
        failures: list[KafkaError] = []
        acknowledged = 0

        def note(error: KafkaError | None, _: Message) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if error is not None:
                failures.append(error)

        for record in records:
            self._produce(producer, record, note)
            if failures:
                return failures[0]
        deadline = time.monotonic() + self._delivery_s + 1
        while acknowledged < len(records) and not failures and time.monotonic() < deadline:
            producer.poll(0.05)
        if not failures and acknowledged < len(records):
            return KafkaError(KafkaError._MSG_TIMED_OUT)
        return failures[0] if failures else None

    def _produce(self, producer: Producer, record: OutRecord, note: Any) -> None:
        while True:
            try:
                producer.produce(
                    self._settings.topic(record.topic),
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=BY_KEY if record.partition is None else record.partition,
                    on_delivery=note,
                )
            except BufferError:
                producer.poll(0.05)
            except KafkaException as error:
                self._discard()
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise TooLarge("record", f"{len(record.value)} bytes do not fit a Kafka record") from None
                raise unavailable(self._settings, error.args[0]) from None
            else:
                return

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)


class Follower:
    """Reads topics by assignment, committed records only, from where it is told; it commits nothing itself.

    ``start`` is ``"beginning"``, ``"end"`` or the next offset by (topic, partition), where a partition that is
    not named is read from its beginning. ``partitions`` narrows every topic to these numbers. One thread at a time.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[Topic | str],
        start: Mapping[Position, int] | Literal["beginning", "end"] = "beginning",
        *,
        partitions: Collection[int] | None = None,
    ) -> None:
        self._settings = settings
        self._names = {settings.topic(name): name for name in map(_name, topics)}
        self._consumer = Consumer(
            client_config(
                settings,
                **{
                    # A group id is demanded even of who assigns by hand; no offset is ever committed under it.
                    "group.id": settings.topic("ebbtide.follower"),
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "queued.max.messages.kbytes": QUEUE_KB,
                    "fetch.wait.max.ms": 100,
                    "fetch.error.backoff.ms": 100,
                },
            )
        )
        try:
            self._positions = self._resolve(start, partitions)
        except BaseException:
            self._consumer.close()
            raise
        self._consumer.assign(
            [TopicPartition(settings.topic(topic), number, at) for (topic, number), at in self._positions.items()]
        )

    def positions(self) -> dict[Position, int]:
        """The next offset of every partition, after all that was handed out (and the markers behind it)."""
        return dict(self._positions)

    def end_offsets(self) -> dict[Position, int]:
        """The offset behind the last committed record (or marker) of every partition, now."""
        return {where: self._watermarks(where)[1] for where in self._positions}

    def poll(self, timeout_s: float, limit: int = BATCH) -> list[InRecord]:
        """What has come, at most ``limit`` records; waits up to ``timeout_s`` for the first.

        Raises:
            Unavailable: the broker reported an error that will not pass by itself.
        """
        records = []
        try:
            # `consume` by itself would wait until ``limit`` records are there or the time is up.
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first, *self._consumer.consume(limit - 1, 0)]
        except KafkaException as error:
            raise unavailable(self._settings, error.args[0]) from None
        for message in messages:
            where, offset = self._place(message)
            failure = message.error()
            if failure is None:
                self._positions[where] = offset + 1
                records.append(self._record(message, where, offset))
            elif failure.code() == KafkaError._PARTITION_EOF:
                self._positions[where] = max(self._positions[where], offset)
            elif failure.code() not in PASSING:
                raise unavailable(self._settings, failure)
        return records

    def read_to_end(self, *, stall_s: float = STALL_S) -> Iterator[InRecord]:
        """Every record up to the end offsets of this moment.

        Raises:
            Unavailable: nothing came for ``stall_s`` seconds although the end is not reached.
        """
        ends = self.end_offsets()
        heard = time.monotonic()
        while any(self._positions[where] < end for where, end in ends.items()):
            before = dict(self._positions)
            yield from self.poll(0.1)
            if self._positions != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > stall_s:
                raise Unavailable(f"the log stopped before its end for {stall_s:.0f} s", try_this="ebbtide doctor")

    def __iter__(self) -> Iterator[InRecord]:
        """Every record, for ever; waits for the next one."""
        while True:
            yield from self.poll(1.0)

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _resolve(
        self, start: Mapping[Position, int] | Literal["beginning", "end"], partitions: Collection[int] | None
    ) -> dict[Position, int]:
        places = [
            (topic, number)
            for deployed, topic in self._names.items()
            for number in self._partitions(deployed)
            if partitions is None or number in partitions
        ]
        if isinstance(start, str):
            side = 0 if start == "beginning" else 1
            return {where: self._watermarks(where)[side] for where in places}
        return {where: start[where] if where in start else self._watermarks(where)[0] for where in places}

    def _partitions(self, deployed: str) -> list[int]:
        found = topic_leaders(self._consumer, self._settings, deployed).get(deployed)
        if not found:
            raise Misconfigured(f"topic {deployed} does not exist", try_this="`ebbtide up` creates the topics")
        return sorted(found)

    def _watermarks(self, where: Position) -> tuple[int, int]:
        partition = TopicPartition(self._settings.topic(where[0]), where[1])
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                marks = self._consumer.get_watermark_offsets(partition, timeout=ADMIN_S)
            except KafkaException as error:
                if error.args[0].code() not in PASSING or time.monotonic() > deadline:
                    raise unavailable(self._settings, error.args[0]) from None
            else:
                if marks is not None:
                    return marks
            time.sleep(RETRY_S)

    def _place(self, message: Message) -> tuple[Position, int]:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            raise unavailable(self._settings, message.error() or KafkaError(KafkaError._UNKNOWN_PARTITION))
        return (self._names[topic], partition), offset

    def _record(self, message: Message, where: Position, offset: int) -> InRecord:
        return InRecord(
            topic=where[0],
            partition=where[1],
            offset=offset,
            key=_raw(message.key()),
            value=_raw(message.value()),
            headers=_headers(message),
            timestamp_ms=message.timestamp()[1],
        )


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, _raw(value) or b"") for name, value in pairs)


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _name(topic: Topic | str) -> str:
    return topic if isinstance(topic, str) else topic.name
