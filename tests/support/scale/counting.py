"""Counting what work costs: rows of stage state, instructions of SQLite, calls of Python. Never time."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from ebbtide_governance.redaction.detector import Span
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_platform.adapters.stage.sqlite import SqliteStageStore
from ebbtide_platform.codec import encode
from ebbtide_platform.ports import InRecord, OutRecord, StageStore, StageTransaction
from ebbtide_platform.topics import Topic
from ebbtide_schemas.records import LogRecord, TickRecord
from ebbtide_streams.stage import Stage


class CountingStore:
    """A `StageStore` that counts the rows its transactions read and write."""

    def __init__(self, store: StageStore) -> None:
        self._store = store
        self.rows = 0

    def offsets(self) -> dict[str, int]:
        """See `ports.StageStore`."""
        return self._store.offsets()

    @contextmanager
    def transaction(self, positions: dict[str, int]) -> Iterator[StageTransaction]:
        """See `ports.StageStore`."""
        with self._store.transaction(positions) as tx:
            yield _CountingTransaction(tx, self)

    def pending(self) -> list[tuple[int, OutRecord]]:
        """See `ports.StageStore`."""
        return self._store.pending()

    def delivered(self, up_to: int) -> None:
        """See `ports.StageStore`."""
        self._store.delivered(up_to)

    def close(self) -> None:
        """See `ports.StageStore`."""
        self._store.close()


class _CountingTransaction:
    def __init__(self, tx: StageTransaction, counted: CountingStore) -> None:
        self._tx = tx
        self._counted = counted

    def get(self, key: bytes) -> bytes | None:
        self._counted.rows += 1
        return self._tx.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._counted.rows += 1
        self._tx.put(key, value)

    def delete(self, key: bytes) -> None:
        self._counted.rows += 1
        self._tx.delete(key)

    def scan(self, prefix: bytes, *, start: bytes = b"", limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        for pair in self._tx.scan(prefix, start=start, limit=limit):
            self._counted.rows += 1
            yield pair

    def emit(self, record: OutRecord) -> None:
        self._counted.rows += 1
        self._tx.emit(record)

    def savepoint(self) -> AbstractContextManager[None]:
        return self._tx.savepoint()


class CountedStage:
    """A stage over state in SQLite, fed any number of records in one transaction."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._stage = stage
        self._store = CountingStore(SqliteStageStore(folder / "state.sqlite"))
        self._offsets = count()

    def __enter__(self) -> CountedStage:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def feed(self, topic: Topic, records: Sequence[LogRecord]) -> list[OutRecord]:
        """What the stage emits for ``records``, in order."""
        found = [
            InRecord(topic.name, 0, next(self._offsets), _key(record), encode(record), timestamp_ms=_receipt_ms(record))
            for record in records
        ]
        self._stage.prepare(found)
        with self._store.transaction({topic.name: found[-1].offset + 1}) as tx:
            for record in found:
                self._stage.process(record, tx)
        pending = self._store.pending()
        if pending:
            self._store.delivered(pending[-1][0])
        return [output for _, output in pending]

    def rows(self, topic: Topic, record: LogRecord) -> int:
        """How many rows of state the stage reads and writes for one record."""
        before = self._store.rows
        self.feed(topic, [record])
        return self._store.rows - before

    def row_bytes(self) -> list[int]:
        """The size of every row of state: its key and its value."""
        with self._store.transaction({}) as tx:
            return [len(key) + len(value) for key, value in tx.scan(b"")]


def _key(record: LogRecord) -> bytes | None:
    """The trajectory it is about, which is the key of what redaction reads."""
    name = getattr(getattr(record, "header", record), "trajectory", None)
    return None if name is None else name.encode()


class CountingDetector(PatternDetector):
    """Counts the texts that it looked at."""

    texts = 0

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        self.texts += len(texts)
        return super().detect(texts)


class SqliteMeter:
    """Counts the instructions of SQLite's virtual machine on the connections it made.

    Unlike a number of statements it tells a search from a scan.
    """

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []
        self._instructions = 0

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Every connection that is opened inside is one to be measured."""
        connect = sqlite3.connect

        def opened(*arguments: Any, **options: Any) -> sqlite3.Connection:
            self._connections.append(connect(*arguments, **options))
            return self._connections[-1]

        with patch("sqlite3.connect", opened), patch("sqlite3.dbapi2.connect", opened):
            yield

    def count(self, work: Callable[[], object]) -> int:
        """How many instructions ``work`` takes."""
        self._instructions = 0
        self._watch(self._one_more)
        try:
            work()
        finally:
            self._watch(None)
        return self._instructions

    def _one_more(self) -> int:
        self._instructions += 1
        return 0

    def _watch(self, handler: Callable[[], int] | None) -> None:
        for connection in self._connections:
            connection.set_progress_handler(handler, 1)


def count_calls(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls, Python's own included."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def _receipt_ms(record: LogRecord) -> int:
    """When the broker takes the record: a tick tells it."""
    return record.tick_ms if isinstance(record, TickRecord) else 0
