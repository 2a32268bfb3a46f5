"""One partition's way into the curated topics: samples, withdrawals and input offsets in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ebbtide_platform.adapters.kafka import Follower, client_config, create_topics
from ebbtide_platform.adapters.kafka_connection import list_topics
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.codec import decode, decode_any, encode, headers
from ebbtide_platform.errors import InvalidInput, Poison
from ebbtide_platform.ports import InRecord, OutRecord, SegmentStore, rendered_space
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import DECISIONS, MAX_SAMPLE_BYTES, curated, tenant_of
from ebbtide_schemas.records import Chain, CuratedRecord, DecisionRecord, WithdrawalRecord
from ebbtide_streams.curation.change import Curation, Entry, assemble, curate, replay
from ebbtide_streams.curation.index import CuratedIndex
from ebbtide_streams.facts_reader import FactsReader
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.state.paths import segments_path, state_path

log = logging.getLogger(__name__)

NAME = "curator"
TRANSACTION_S = 60.0
FULL_S = 0.05
QUEUE_KB = 65_536
"""Written and not yet acknowledged; a transaction may be larger."""
ENVELOPE_BYTES = 65_536
"""Room for key, headers and batch around a record's value."""


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
                    "queue.buffering.max.kbytes": QUEUE_KB,
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
        decisions = [self._read(record) for record in records]
        self._producer.begin_transaction()
        try:
            written = self._produce(records, decisions)
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

    def _read(self, record: InRecord) -> DecisionRecord | Poison:
        """The decision, with a topic for its tenant's samples."""
        try:
            decision = decode(record.value, DecisionRecord)
            topic = curated(decision.settled.tenant)
        except Poison as poison:
            return poison
        except InvalidInput:
            return Poison("invalid_tenant")
        if topic.name not in self._topics:
            create_topics(self._settings, [topic])
            self._topics.add(topic.name)
        return decision

    def _produce(self, records: Sequence[InRecord], decisions: Sequence[DecisionRecord | Poison]) -> _Written:
        written = _Written({}, {})
        facts = self._facts.state.view()
        for record, decision in zip(records, decisions, strict=True):
            try:
                if isinstance(decision, Poison):
                    raise decision
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
        samples = [self._output(self._sample(decision, chain), decision.decided_ms) for chain in curation.chains]
        return [*samples, *(self._output(withdrawal, decision.decided_ms) for withdrawal in curation.withdrawals)]

    def _sample(self, decision: DecisionRecord, chain: Chain) -> CuratedRecord:
        settled = decision.settled
        space = rendered_space(settled.revision)
        return assemble(decision, chain, lambda segment: self._rendered.chunks(settled.trajectory, space, segment))

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

        while True:
            try:
                self._producer.produce(
                    self._settings.topic(output.topic),
                    key=output.key,
                    value=output.value,
                    headers=list(output.headers),
                    partition=-1 if output.partition is None else output.partition,
                    on_delivery=note,
                )
            except BufferError:
                self._producer.poll(FULL_S)
            else:
                self._producer.poll(0)
                return

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

    def _catch_up(self) -> None:
        """Take in what was committed and not indexed, from each curated topic's own partition."""
        if not self._topics:
            return
        known = self._index.positions()
        start = {(topic, self._partition): offset for topic, offset in known.items()}
        with Follower(self._settings, sorted(self._topics), start, partitions=[self._partition]) as follower:
            entries: dict[tuple[str, str], Entry] = {}
            for record in follower.read_to_end():
                found = _curated_record(record)
                if found is not None:
                    key = (found.tenant, found.trajectory)
                    entries[key] = replay(entries.get(key) or self._index.entry(*key), found)
            positions = {topic: offset for (topic, _), offset in follower.positions().items()}
        self._index.update(entries, positions)


def _curated_record(record: InRecord) -> CuratedRecord | WithdrawalRecord | None:
    """What a curator wrote; None for what somebody else put there, which no consumer reads either."""
    try:
        found = decode_any(record.value)
    except Poison:
        return None
    return found if isinstance(found, CuratedRecord | WithdrawalRecord) else None
