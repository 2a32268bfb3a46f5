"""The one exact writer of curated topics: decisions in, samples and withdrawals out, each exactly once.

One transactional id per input partition fences every predecessor; the input offsets travel in the same
transaction as the samples. Sealed bytes are copied from the segment store and never opened: the process asks
the key door for nothing but the seal of what it sets aside.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ebbtide_platform.adapters.kafka import Follower, client_config, create_topics
from ebbtide_platform.adapters.kafka_connection import PASSING, list_topics, unavailable
from ebbtide_platform.adapters.segments_sqlite import SqliteSegmentStore
from ebbtide_platform.codec import decode, decode_any, encode, headers
from ebbtide_platform.errors import InvalidInput, Poison
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import InRecord, OutRecord, SegmentStore
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import DECISIONS, MAX_SAMPLE_BYTES, curated, tenant_of
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    DecisionRecord,
    SealedChunk,
    WithdrawalRecord,
)
from ebbtide_streams.context import clock_ms
from ebbtide_streams.curated_index import CuratedIndex
from ebbtide_streams.curation import Curation, Entry, curate, replay
from ebbtide_streams.facts_reader import FactsReader
from ebbtide_streams.paths import segments_path, state_path
from ebbtide_streams.quarantine import Quarantine

log = logging.getLogger(__name__)

NAME = "curator"
BATCH = 200
"""Decisions of one transaction."""
POLL_S = 0.5
TRANSACTION_S = 60.0
ENVELOPE_BYTES = 65_536
"""Room for key, headers and batch around a record's value."""


def _nowhere(point: str) -> None:
    """The crash hook of every day."""


@dataclass
class _Written:
    """What one transaction will have changed, known before it commits."""

    entries: dict[tuple[str, str], Entry]
    positions: dict[str, int]


class Lane:
    """One input partition: its transactional producer, its index, and the rendered segments it copies from."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        facts: FactsReader,
        quarantine: Quarantine,
        crash: Callable[[str], None],
    ) -> None:
        """Fence every predecessor, then read what it has written.

        Raises:
            KafkaException: the broker does not answer, or a newer curator has taken over.
        """
        self._settings = settings
        self._partition = partition
        self._facts = facts
        self._quarantine = quarantine
        self._crash = crash
        self._producer = Producer(
            client_config(
                settings,
                **{
                    "transactional.id": settings.topic(f"ebbtide.{NAME}-{partition}"),
                    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                    "message.max.bytes": MAX_SAMPLE_BYTES,
                    "linger.ms": 2,
                },
            )
        )
        self._producer.init_transactions(TRANSACTION_S)
        self._rendered: SegmentStore = SqliteSegmentStore(segments_path(settings, "rendered", partition))
        self._index = CuratedIndex(state_path(settings, NAME, partition))
        self._topics = self._known_topics()
        self._catch_up()

    def curate(self, records: Sequence[InRecord], consumer: Consumer) -> None:
        """Write what ``records`` change and their offsets in one transaction.

        Raises:
            KafkaException, Unavailable: nothing of it was written.
        """
        self._facts.catch_up()
        self._ensure_topics(records)
        self._producer.begin_transaction()
        try:
            written = self._produce(records)
            self._crash("produced")
            end = TopicPartition(self._settings.topic(DECISIONS.name), self._partition, records[-1].offset + 1)
            self._producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata(), TRANSACTION_S)
            self._crash("offsets sent")
            self._producer.commit_transaction(TRANSACTION_S)
        except KafkaException:
            self._abort()
            raise
        self._crash("committed")
        self._index.update(written.entries, written.positions)

    def close(self) -> None:
        """Release files and connection; an open transaction is aborted by its successor."""
        self._index.close()
        self._rendered.close()

    # --- writing ------------------------------------------------------------------------------------------------

    def _produce(self, records: Sequence[InRecord]) -> _Written:
        written = _Written({}, {})
        facts = self._facts.state.view()
        for record in records:
            try:
                decision = decode(record.value, DecisionRecord)
                key = (decision.settled.tenant, decision.settled.trajectory)
                entry = written.entries.get(key) or self._index.entry(*key)
                curation = curate(decision, entry, facts)
                outputs = [] if curation is None else self._outputs(decision, curation)
            except Poison as poison:
                self._send(self._quarantine.output(record, poison), written)
                continue
            for output in outputs:
                self._send(output, written)
            if curation is not None:
                written.entries[key] = curation.entry
        self._producer.flush(TRANSACTION_S)
        return written

    def _outputs(self, decision: DecisionRecord, curation: Curation) -> list[OutRecord]:
        samples = [self._sample(decision, chain) for chain in curation.chains]
        return [self._output(record, decision.decided_ms) for record in (*samples, *curation.withdrawals)]

    def _sample(self, decision: DecisionRecord, chain: Chain) -> CuratedRecord:
        settled = decision.settled
        sealed: list[SealedChunk] = []
        for ref in chain.segments:
            if not ref.hole:
                chunks = self._rendered.chunks(settled.trajectory, f"rendered:{settled.revision}", ref.segment)
                if not chunks:
                    raise Poison("rendering_missing")
                sealed += chunks
        return CuratedRecord(
            sample=chain.sample,
            tenant=settled.tenant,
            trajectory=settled.trajectory,
            revision=settled.revision,
            supersedes=settled.supersedes,
            facts_offset=decision.facts_offset,
            policy=decision.policy,
            chain=chain,
            sealed=tuple(sealed),
            settled=msgspec.structs.replace(settled, chains=()),
        )

    def _output(self, record: CuratedRecord | WithdrawalRecord, time_ms: int) -> OutRecord:
        kind = "sample" if isinstance(record, CuratedRecord) else "withdrawal"
        value = encode(record)
        if len(value) > MAX_SAMPLE_BYTES - ENVELOPE_BYTES:
            raise Poison("sample_too_large")
        event = f"{record.sample}/{record.revision}/{record.facts_offset}"
        stamped = headers(event=event, kind=kind, source=NAME, time_ms=time_ms, tenant=record.tenant)
        name = curated(record.tenant).name
        return OutRecord(name, record.trajectory.encode(), value, tuple(stamped), partition=self._partition)

    def _send(self, output: OutRecord, written: _Written) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and output.partition is not None and offset is not None:
                written.positions[output.topic] = offset + 1

        self._producer.produce(
            self._settings.topic(output.topic),
            key=output.key,
            value=output.value,
            headers=list(output.headers),
            partition=-1 if output.partition is None else output.partition,
            on_delivery=note,
        )
        self._producer.poll(0)

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(TRANSACTION_S)
        except KafkaException as error:
            log.warning("a transaction could not be aborted (%s); its successor does", error.args[0].name())

    # --- what stands already --------------------------------------------------------------------------------------

    def _known_topics(self) -> set[str]:
        """Names of the curated topics there are, without the deployment's prefix."""
        prefix = self._settings.topic_prefix
        found = set()
        for name in list_topics(self._producer, self._settings).topics:
            if name.startswith(prefix):
                try:
                    tenant_of(name[len(prefix) :])
                except InvalidInput:
                    continue
                found.add(name[len(prefix) :])
        return found

    def _ensure_topics(self, records: Sequence[InRecord]) -> None:
        for record in records:
            tenant = dict(record.headers).get("ce_tenant", b"").decode("ascii", "replace")
            try:
                topic = curated(tenant)
            except InvalidInput:
                continue  # the record itself says whose it is; what has no such tenant is poison later
            if topic.name not in self._topics:
                create_topics(self._settings, [topic])
                self._topics.add(topic.name)

    def _catch_up(self) -> None:
        """Take in what was committed and not indexed, from each curated topic's own partition."""
        if not self._topics:
            return
        known = self._index.positions()
        start = {(topic, self._partition): offset for topic, offset in known.items()}
        with Follower(self._settings, sorted(self._topics), start, partitions=[self._partition]) as follower:
            entries: dict[tuple[str, str], Entry] = {}
            for record in follower.read_to_end():
                found = decode_any(record.value)
                if isinstance(found, CuratedRecord | WithdrawalRecord):
                    key = (found.tenant, found.trajectory)
                    entries[key] = replay(entries.get(key) or self._index.entry(*key), found)
            positions = {topic: offset for (topic, _), offset in follower.positions().items()}
        self._index.update(entries, positions)


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
            self._lanes[partition].curate(records, self._consumer)
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
        assert partition is not None and offset is not None  # noqa: PT018 - a record without error has both
        found = message.headers() or []
        return InRecord(
            topic=DECISIONS.name,
            partition=partition,
            offset=offset,
            key=key if isinstance(key, bytes) else None,
            value=value if isinstance(value, bytes) else None,
            headers=tuple((name, item) for name, item in found if isinstance(item, bytes)),
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
