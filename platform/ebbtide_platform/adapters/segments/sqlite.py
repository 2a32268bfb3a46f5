"""The segment store in SQLite: sealed bytes of one partition, written by one process and read by any."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

import msgspec

from ebbtide_schemas.records import FindingsRecord, SealedChunk, StepHeader

_SCHEMA = """
CREATE TABLE IF NOT EXISTS chunks (
    trajectory TEXT, space TEXT, segment TEXT, chunk INTEGER, sealed BLOB NOT NULL,
    PRIMARY KEY (trajectory, space, segment, chunk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS findings (
    trajectory TEXT, segment TEXT, redaction TEXT NOT NULL, findings BLOB NOT NULL,
    PRIMARY KEY (trajectory, segment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS headers (
    trajectory TEXT, event TEXT, header BLOB NOT NULL,
    PRIMARY KEY (trajectory, event)
) WITHOUT ROWID;
"""
BUSY_MS = 10_000
"""How long a reader waits for the writer's commit before it gives up."""

_encode = msgspec.msgpack.Encoder().encode
_chunk = msgspec.msgpack.Decoder(SealedChunk).decode
_header = msgspec.msgpack.Decoder(StepHeader).decode


class SqliteSegmentStore:
    """`SegmentStore` in one SQLite file; each put is one durable transaction."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def put_chunks(self, trajectory: str, space: str, chunks: Iterable[SealedChunk]) -> None:
        """Set by (trajectory, space, segment, chunk)."""
        rows = [(trajectory, space, chunk.segment, chunk.chunk, _encode(chunk)) for chunk in chunks]
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)", rows)

    def chunks(self, trajectory: str, space: str, segment: str) -> list[SealedChunk]:
        """The chunks of a segment in order; empty if it is not there."""
        with self._lock:
            rows = self._db.execute(
                "SELECT sealed FROM chunks WHERE trajectory = ? AND space = ? AND segment = ? ORDER BY chunk",
                (trajectory, space, segment),
            ).fetchall()
        return [_chunk(sealed) for (sealed,) in rows]

    def put_findings(self, record: FindingsRecord) -> None:
        """Set the step's header and the findings of each segment that was scanned (or erased)."""
        header = record.header
        found = [
            (header.trajectory, item.segment, record.redaction, _encode(item))
            for item in record.segments
            if item.state != "repeat"
        ]
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?)", found)
            self._db.execute(
                "INSERT OR REPLACE INTO headers VALUES (?, ?, ?)", (header.trajectory, header.event, _encode(header))
            )

    def findings(self, trajectory: str, segment: str) -> tuple[str, bytes] | None:
        """(redaction version, encoded `SegmentFindings`) or None."""
        with self._lock:
            row = self._db.execute(
                "SELECT redaction, findings FROM findings WHERE trajectory = ? AND segment = ?", (trajectory, segment)
            ).fetchone()
        return (row[0], row[1]) if row else None

    def header(self, trajectory: str, event: str) -> StepHeader | None:
        """The header that came with `put_findings`."""
        with self._lock:
            row = self._db.execute(
                "SELECT header FROM headers WHERE trajectory = ? AND event = ?", (trajectory, event)
            ).fetchone()
        return _header(row[0]) if row else None

    def drop_space(self, trajectory: str, space: str) -> None:
        """Forget what a superseded revision rendered."""
        with self._lock:
            self._db.execute("DELETE FROM chunks WHERE trajectory = ? AND space = ?", (trajectory, space))

    def close(self) -> None:
        """Release the file."""
        self._db.close()
