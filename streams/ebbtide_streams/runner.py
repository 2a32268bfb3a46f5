"""The one way in which every stage runs: state, offsets and outputs in one write, acknowledged last.

::

    deliver what is pending -> skip what the store has seen -> prepare the batch
    -> one transaction, a savepoint per record -> commit -> deliver -> forget -> (the caller acknowledges)

A crash anywhere repeats work and loses none: before the commit nothing happened, after it the outputs are in
the store and are delivered first when it is opened again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, LogWriter, StageStore
from ebbtide_platform.topics import TICKS, partition_of
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.stage import Stage


class StageRunner:
    """One stage over one partition, its store and its writer. One thread at a time."""

    def __init__(
        self,
        stage: Stage,
        store: StageStore,
        writer: LogWriter,
        quarantine: Quarantine,
        *,
        partitions: int | None = None,
    ) -> None:
        """Deliver what an earlier life left pending.

        Given the number of ``partitions``, a record that stands on another than its key's is poison: what
        belongs to it would never be met here.

        Raises:
            Unavailable: it could not be delivered.
        """
        self._stage = stage
        self._store = store
        self._writer = writer
        self._quarantine = quarantine
        self._partitions = partitions
        self._offsets = store.offsets()
        self._deliver()

    def position(self, topic: str) -> int:
        """The next offset of ``topic`` that this stage wants; 0 for one that it has never read."""
        return self._offsets.get(topic, 0)

    def run(self, records: Sequence[InRecord]) -> None:
        """Process records of this partition in order; when it returns they may be acknowledged.

        Raises:
            Exception: whatever the stage or the writer raised; nothing may be acknowledged then.
        """
        fresh = [record for record in records if record.offset >= self.position(record.topic)]
        if not fresh:
            return
        self._stage.prepare(fresh)
        positions = dict(self._offsets)
        with self._store.transaction(positions) as tx:
            for record in fresh:
                try:
                    with tx.savepoint():
                        self._check_place(record)
                        self._stage.process(record, tx)
                except Poison as poison:
                    tx.emit(self._quarantine.output(record, poison))
                positions[record.topic] = record.offset + 1
        self._offsets = positions
        self._deliver()

    def close(self) -> None:
        """Give the store up."""
        self._store.close()

    def _check_place(self, record: InRecord) -> None:
        if self._partitions is None or record.topic == TICKS.name:
            return
        if record.key is None:
            raise Poison("null_key")
        if partition_of(record.key, self._partitions) != record.partition:
            raise Poison("misplaced")

    def _deliver(self) -> None:
        pending = self._store.pending()
        if pending:
            self._writer.write([record for _, record in pending])
            self._store.delivered(pending[-1][0])
