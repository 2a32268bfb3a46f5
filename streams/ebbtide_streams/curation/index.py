"""The curator's index on disk: what stands in the curated topics, by trajectory; rebuildable from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ebbtide_streams.curation.change import Entry

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    tenant TEXT, trajectory TEXT, entry BLOB NOT NULL, PRIMARY KEY (tenant, trajectory)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (topic TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class CuratedIndex:
    """Entries of one partition, and how far each curated topic has been taken in.

    It is written after the transaction on the log, never before: what a crash keeps out of it is read from
    the topic when the partition is assigned again.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def entry(self, tenant: str, trajectory: str) -> Entry | None:
        """What stands for the trajectory, None if nothing ever did."""
        row = self._db.execute(
            "SELECT entry FROM entries WHERE tenant = ? AND trajectory = ?", (tenant, trajectory)
        ).fetchone()
        return _decode(row[0]) if row else None

    def positions(self) -> dict[str, int]:
        """The next offset to take in, by curated topic."""
        return dict(self._db.execute("SELECT topic, next FROM positions").fetchall())

    def update(self, entries: Mapping[tuple[str, str], Entry], positions: Mapping[str, int]) -> None:
        """Set entries by (tenant, trajectory) and positions, together."""
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
            [(*key, _encode(entry)) for key, entry in entries.items()],
        )
        self._db.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", list(positions.items()))
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Release the file."""
        self._db.close()
