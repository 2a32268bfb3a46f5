"""The key store: a database of its own, opened by one process, changed in one transaction at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.keydoor.keystore import tables

FORMAT = 1
"""Of the tables; a store of another format is not touched."""

STORE_FILE = "keystore.sqlite"
SUPPRESSION_FILE = "suppression.sqlite"


class KeyStore:
    """Both files in ``folder``, as one database.

    Raises:
        Misconfigured: the store was written by another version of this software.
        Unavailable: its files cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.RLock()
        for name in (STORE_FILE, SUPPRESSION_FILE):
            (folder / name).touch(mode=0o600)
        self._engine = _connect(folder / STORE_FILE, folder / SUPPRESSION_FILE)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One atomic change of both files; threads take turns. Raises `Unavailable` if the database fails."""
        try:
            with self._lock, self._engine.begin() as connection:
                yield connection
        except (DBAPIError, sqlite3.Error, OSError):
            # The original error repeats parameters, and those are keys.
            raise Unavailable(
                "the key store cannot be read or written", try_this="see that the disk has room and `keys/` is writable"
            ) from None

    def close(self) -> None:
        """Close the files."""
        self._engine.dispose()

    def _prepare(self) -> None:
        with self.transaction() as connection:
            tables.metadata.create_all(connection)
            name, number = tables.facts.c.name, tables.facts.c.number
            found = connection.scalar(select(number).where(name == "format"))
            if found is None:
                connection.execute(tables.facts.insert(), [_fact("format", FORMAT), _fact("fence", 0)])
            elif found != FORMAT:
                raise Misconfigured(f"the key store has format {found}, this version reads {FORMAT}")


def _fact(name: str, number: int) -> dict[str, str | int]:
    return {"name": name, "number": number}


def _connect(store: Path, suppression: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{store}",
        poolclass=StaticPool,
        connect_args={"check_same_thread": False},
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # SQLAlchemy begins transactions; sqlite3's own habit of beginning late would split ours.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"ATTACH ? AS {tables.SUPPRESSION}", (str(suppression),))
        for schema in ("main", tables.SUPPRESSION):
            # A rollback journal commits both files as one, which write-ahead logs do not.
            cursor.execute(f"PRAGMA {schema}.journal_mode = TRUNCATE")
            cursor.execute(f"PRAGMA {schema}.synchronous = FULL")
            cursor.execute(f"PRAGMA {schema}.secure_delete = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Not IMMEDIATE: nobody else has the files, and a call that only reads then writes no journal.
        connection.exec_driver_sql("BEGIN")

    return engine
