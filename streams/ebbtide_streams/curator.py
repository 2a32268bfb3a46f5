"""The one exact writer of curated topics: decisions in, samples and withdrawals out, each exactly once.

One transactional id per input partition fences every predecessor; the input offsets travel in the same
transaction as the samples. Sealed bytes are copied from the segment store and never opened: the process asks
the key door for nothing but the seal of what it sets aside.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ebbtide_platform.adapters.kafka import client_config
from ebbtide_platform.adapters.kafka_connection import PASSING, unavailable
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import DECISIONS
from ebbtide_streams.context import clock_ms
from ebbtide_streams.curation.lane import NAME, Lane
from ebbtide_streams.facts_reader import FactsReader
from ebbtide_streams.quarantine import Quarantine

log = logging.getLogger(__name__)

BATCH = 200
"""Decisions of one transaction."""
POLL_S = 0.5


def _nowhere(point: str) -> None:
    """The crash hook of every day."""


class Curator:
    """The curator process: a lane for each assigned partition of the decisions."""

    def __init__(
        self, settings: Settings, facts: FactsReader, sealer: Sealer, crash: Callable[[str], None] = _nowhere
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._quarantine = Quarantine(NAME, sealer, clock_ms)
        self._crash = crash
        self._lanes: dict[int, Lane] = {}
        self._consumer = Consumer(
            client_config(
                settings,
                **{
                    "group.id": settings.topic(f"ebbtide.{NAME}"),
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "partition.assignment.strategy": "range",
                    "session.timeout.ms": int(settings.session_timeout_s * 1000),
                    "heartbeat.interval.ms": int(settings.session_timeout_s * 100),
                    "fetch.wait.max.ms": 50,
                },
            )
        )
        self._consumer.subscribe(
            [settings.topic(DECISIONS.name)], on_assign=self._open, on_revoke=self._close, on_lost=self._close
        )

    def run(self, stopping: threading.Event) -> None:
        """Curate until ``stopping`` is set.

        Raises:
            KafkaException, Unavailable: the process should end and start anew; nothing is half done.
        """
        while not stopping.is_set():
            self.turn(POLL_S)

    def turn(self, timeout_s: float) -> int:
        """Curate what has come, waiting up to ``timeout_s`` for the first; how many decisions it was."""
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(BATCH - 1, 0)]
        by_partition: dict[int, list[InRecord]] = {}
        for message in messages:
            failure = message.error()
            if failure is None:
                record = self._record(message)
                by_partition.setdefault(record.partition, []).append(record)
            elif failure.code() not in PASSING:
                raise unavailable(self._settings, failure)
        for partition, records in by_partition.items():
            # Taken away while the batch was read: it is the new owner's, from the committed offset on.
            if (lane := self._lanes.get(partition)) is not None:
                lane.curate(records, self._consumer)
        return sum(map(len, by_partition.values()))

    def close(self) -> None:
        """Leave the group and release everything."""
        self._consumer.close()
        self._close(self._consumer, [TopicPartition(DECISIONS.name, number) for number in self._lanes])

    def _open(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            self._lanes[where.partition] = Lane(
                self._settings, where.partition, self._facts, self._quarantine, self._crash
            )
        log.info("curating partitions %s", sorted(self._lanes))

    def _close(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            if (lane := self._lanes.pop(where.partition, None)) is not None:
                lane.close()

    def _record(self, message: Message) -> InRecord:
        partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
        assert partition is not None and offset is not None
        headers = message.headers() or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        return InRecord(
            topic=DECISIONS.name,
            partition=partition,
            offset=offset,
            key=key if isinstance(key, bytes) else None,
            value=value if isinstance(value, bytes) else None,
            headers=tuple((name, item) for name, item in pairs if isinstance(item, bytes)),
            timestamp_ms=message.timestamp()[1],
        )


def serve(settings: Settings) -> None:
    """Curate until SIGTERM.

    Raises:
        Unavailable: broker or key door do not answer.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    facts = FactsReader(settings)
    with RemoteKeyDoor(settings.socket_path, settings.token()) as door:
        curator = Curator(settings, facts, Sealer(door))
        try:
            curator.run(stopping)
        except KafkaException as error:
            raise unavailable(settings, error.args[0]) from None
        finally:
            curator.close()
            facts.close()
