"""Stage state in SQLite: one file per stage and partition, one owner at a time, one transaction per batch."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import OutRecord, StageTransaction

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (topic TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (number INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS owner (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL);
"""
CACHE_KIB = 8_192
"""SQLite's page cache per store; the working set of a partition, not its state."""
SCAN_PAGE = 500
"""Rows fetched at once by `scan`, so that a transaction may write between two pages."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OutRecord).decode


class SqliteStageStore:
    """`StageStore` in one SQLite file under an exclusive lock.

    A process that lost the file to a newer owner cannot commit any more: each transaction checks the epoch.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            Unavailable: another process owns it.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Unavailable(f"state {path.name} is owned by another process") from None
        # One thread uses it at a time, though not always the same one.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.executescript(_SCHEMA)
        self._db.execute("INSERT INTO owner VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1")
        self._epoch = self._read_epoch()

    def offsets(self) -> dict[str, int]:
        """The next offset to process, by topic name."""
        return dict(self._db.execute("SELECT topic, next FROM positions").fetchall())

    @contextmanager
    def transaction(self, positions: dict[str, int]) -> Iterator[StageTransaction]:
        """Commit everything done inside together with ``positions``; roll back if it raises.

        Raises:
            Unavailable: another process has become the owner.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if self._read_epoch() != self._epoch:
                raise Unavailable("this stage's state has a newer owner")
            yield _Transaction(self._db)
            self._db.executemany(
                "INSERT INTO positions VALUES (?, ?) ON CONFLICT (topic) DO UPDATE SET next = excluded.next",
                list(positions.items()),
            )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def pending(self) -> list[tuple[int, OutRecord]]:
        """Outputs that are committed and not yet known to be delivered, oldest first, with their numbers."""
        rows = self._db.execute("SELECT number, record FROM pending ORDER BY number").fetchall()
        return [(number, _decode(record)) for number, record in rows]

    def delivered(self, up_to: int) -> None:
        """Forget pending outputs numbered ``up_to`` or less."""
        self._db.execute("DELETE FROM pending WHERE number <= ?", (up_to,))

    def close(self) -> None:
        """Give up the lock."""
        self._db.close()
        os.close(self._lock)

    def _read_epoch(self) -> int:
        (epoch,) = self._db.execute("SELECT epoch FROM owner").fetchone()
        return int(epoch)


class _Transaction:
    """`StageTransaction` over the open SQLite transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._depth = 0

    def get(self, key: bytes) -> bytes | None:
        row = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: bytes, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def delete(self, key: bytes) -> None:
        self._db.execute("DELETE FROM state WHERE key = ?", (key,))

    def scan(self, prefix: bytes, *, start: bytes = b"", limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        lower, comparison = max(prefix, start), ">="
        # Without an upper bound every search would read a whole page of other rows behind its own.
        beyond = _successor(prefix)
        bound, bounds = ("", ()) if beyond is None else (" AND key < ?", (beyond,))
        left = limit
        while left is None or left > 0:
            size = SCAN_PAGE if left is None else min(SCAN_PAGE, left)
            rows = self._db.execute(
                f"SELECT key, value FROM state WHERE key {comparison} ?{bound} ORDER BY key LIMIT ?",  # noqa: S608 - fixed parts
                (lower, *bounds, size),
            ).fetchall()
            yield from rows
            if len(rows) < size:
                return
            lower, comparison = rows[-1][0], ">"
            left = None if left is None else left - size

    def emit(self, record: OutRecord) -> None:
        self._db.execute("INSERT INTO pending (record) VALUES (?)", (_encode(record),))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._depth += 1
        name = f"s{self._depth}"
        self._db.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            self._db.execute(f"ROLLBACK TO {name}")
            raise
        finally:
            self._db.execute(f"RELEASE {name}")
            self._depth -= 1


def _successor(prefix: bytes) -> bytes | None:
    """The first key behind all that have ``prefix``; None if there can be none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
