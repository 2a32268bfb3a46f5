"""The durable outbox in front of the log: what is in it survives a kill -9, and reaches the log in order.

One thread commits, many requests to one fsync; another hands the oldest records to the log and then forgets
them. A broker that is away makes the outbox grow, up to its bound. A crash between the two makes records
come twice, never not at all: every reader drops repeats by id. It holds ciphertext and keyed ids only.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from ebbtide_platform.errors import EbbtideError, Misconfigured, Overloaded, Unavailable
from ebbtide_platform.ports import LogWriter, OutRecord

log = logging.getLogger("ebbtide.outbox")

REMEMBERED_MS = 30 * 86_400_000
"""How long a repeat is told apart at the door; after that the stages do it, by the same ids and digests."""
FORGET_EVERY_S = 3600.0
RETRY_AFTER_S = 5.0
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0
"""Waiting for a broker that is away doubles from the first to the last."""
DRAIN_RECORDS = 1000
DRAIN_BYTES = 8 * 1024 * 1024
COMMIT_EVENTS = 5000
"""Events of one transaction at most: those who wait for the next one should not wait long."""
STOP_S = 3.0
_LOCK_WAIT_S = 30.0
_ROW_BYTES = 100
"""What a row takes beside its value, roughly."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accepted (event TEXT PRIMARY KEY, digest TEXT NOT NULL, accepted_ms INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS accepted_by_time ON accepted (accepted_ms);
CREATE TABLE IF NOT EXISTS record (number INTEGER PRIMARY KEY AUTOINCREMENT, encoded BLOB NOT NULL);
"""

Outcome = Literal["accepted", "duplicate", "conflict"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OutRecord)


@dataclass(frozen=True)
class Entry:
    """One event: its id, the digest of its content, and all its records, which are appended together or not at all."""

    event: str
    digest: str
    records: tuple[OutRecord, ...]


@dataclass(frozen=True)
class _Submission:
    entries: Sequence[Entry]
    encoded: Sequence[Sequence[bytes]]
    answer: Future[list[Outcome]]


class Outbox:
    """Entries in, records out to ``writer``; safe from any thread.

    Raises:
        Misconfigured: another process has this outbox open.
    """

    def __init__(
        self,
        folder: Path,
        writer: LogWriter,
        *,
        max_bytes: int,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owner = _own(folder / "lock")
        self._path = folder / "outbox.sqlite"
        self._writer = writer
        self._max_bytes = max_bytes
        self._clock_ms = clock_ms
        self._write_turn = threading.Lock()
        self._read_turn = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[_Submission] = deque()
        self._closing = False
        self.commits = 0
        """Transactions so far; fewer than requests when these came together."""
        self._commits = self._connect("FULL")
        self._commits.executescript(_SCHEMA)
        self._reads = self._connect("NORMAL")
        # Forgetting need not be durable: what comes back after a power cut is only delivered again.
        self._drains = self._connect("NORMAL")
        count, size = self._reads.execute("SELECT count(*), coalesce(sum(length(encoded)), 0) FROM record").fetchone()
        self._pending_records: int = count
        self._pending_bytes: int = size + count * _ROW_BYTES
        self._committer = threading.Thread(target=self._commit_all, name="outbox-commit", daemon=True)
        self._drainer = threading.Thread(target=self._drain_all, name="outbox-drain", daemon=True)
        self._committer.start()
        self._drainer.start()

    # --- what requests ask ------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Refuse early what could not be taken. Raises `Overloaded` when the outbox is full."""
        if self._pending_bytes >= self._max_bytes:
            raise _full()

    def known(self, events: Sequence[str]) -> dict[str, str]:
        """The digest of each event that was accepted before."""
        found: dict[str, str] = {}
        with self._read_turn:
            for event in events:
                row = self._reads.execute("SELECT digest FROM accepted WHERE event = ?", (event,)).fetchone()
                if row is not None:
                    found[event] = row[0]
        return found

    def append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Return when all entries are on disk, with what became of each; a repeat or a conflict adds nothing.

        Raises:
            Overloaded: there is no room for them; none was taken.
            Unavailable: the disk does not take them; none was taken.
        """
        encoded = [[_encoder.encode(record) for record in entry.records] for entry in entries]
        submission = _Submission(entries, encoded, Future())
        with self._changed:
            if self._closing:
                raise Unavailable("the outbox is closing")
            self._waiting.append(submission)
            self._changed.notify_all()
        return submission.answer.result()

    def pending(self) -> int:
        """Records that the log has not acknowledged."""
        return self._pending_records

    def waiting(self) -> int:
        """Requests that the next transaction will take."""
        with self._changed:
            return len(self._waiting)

    def wait_drained(self, timeout_s: float) -> bool:
        """Wait until the log has everything; False if that took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending_records == 0 and not self._waiting, timeout_s)

    def close(self) -> None:
        """Commit what waits, stop both threads and give up the lock; the writer is its owner's to close."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._committer.join()
        self._commits.close()
        with self._read_turn:
            self._reads.close()
        # A write to a broker that is away may take long; the thread ends with the process.
        self._drainer.join(STOP_S)
        if not self._drainer.is_alive():
            self._drains.close()
        os.close(self._owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- committing -------------------------------------------------------------------------------------------

    def _commit_all(self) -> None:
        while submissions := self._next_submissions():
            answers: list[list[Outcome] | EbbtideError]
            try:
                with self._write_turn:
                    answers, records, size = self._commit(submissions)
            except Exception as error:  # whoever waits for an answer must get one
                log.error("the outbox cannot be written (%s)", type(error).__name__)
                trouble = Unavailable("the outbox cannot be written", try_this="look for room on the disk")
                answers, records, size = [trouble] * len(submissions), 0, 0
            with self._changed:
                self._pending_records += records
                self._pending_bytes += size
                self._changed.notify_all()
            for submission, answer in zip(submissions, answers, strict=True):
                if isinstance(answer, EbbtideError):
                    submission.answer.set_exception(answer)
                else:
                    submission.answer.set_result(answer)

    def _next_submissions(self) -> list[_Submission]:
        """All that came while the last ones were written; empty when there is nothing more to come."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closing)
            taken: list[_Submission] = []
            events = 0
            while self._waiting and events < COMMIT_EVENTS:
                taken.append(self._waiting.popleft())
                events += len(taken[-1].entries)
            return taken

    def _commit(self, submissions: Sequence[_Submission]) -> tuple[list[list[Outcome] | EbbtideError], int, int]:
        """(answers, records added, bytes added), all in one transaction."""
        answers: list[list[Outcome] | EbbtideError] = []
        records = size = 0
        self._commits.execute("BEGIN IMMEDIATE")
        try:
            for submission in submissions:
                self._commits.execute("SAVEPOINT submission")
                outcomes, added, grown = self._insert(submission)
                if added and self._pending_bytes + size + grown > self._max_bytes:
                    self._commits.execute("ROLLBACK TO submission")
                    answers.append(_full())
                else:
                    answers.append(outcomes)
                    records, size = records + added, size + grown
                self._commits.execute("RELEASE submission")
            self._commits.execute("COMMIT")
            self.commits += 1
        except BaseException:
            if self._commits.in_transaction:
                self._commits.execute("ROLLBACK")
            raise
        return answers, records, size

    def _insert(self, submission: _Submission) -> tuple[list[Outcome], int, int]:
        outcomes: list[Outcome] = []
        records = size = 0
        now = self._clock_ms()
        for entry, encoded in zip(submission.entries, submission.encoded, strict=True):
            known = self._commits.execute("SELECT digest FROM accepted WHERE event = ?", (entry.event,)).fetchone()
            if known is not None:
                outcomes.append("duplicate" if known[0] == entry.digest else "conflict")
                continue
            self._commits.execute("INSERT INTO accepted VALUES (?, ?, ?)", (entry.event, entry.digest, now))
            self._commits.executemany("INSERT INTO record (encoded) VALUES (?)", ((row,) for row in encoded))
            records += len(encoded)
            size += sum(len(row) + _ROW_BYTES for row in encoded)
            outcomes.append("accepted")
        return outcomes, records, size

    # --- draining ---------------------------------------------------------------------------------------------

    def _drain_all(self) -> None:
        wait_s = FIRST_RETRY_S
        forgot = float("-inf")
        while not self._closing:
            try:
                if time.monotonic() - forgot > FORGET_EVERY_S:
                    self._forget_old()
                    forgot = time.monotonic()
                if rows := self._oldest():
                    self._writer.write([_decoder.decode(encoded) for _, encoded in rows])
                    self._forget(rows)
            except Exception as error:
                # Whatever it is, the records are safe and come again: code or type only, a message may hold keys.
                if wait_s == FIRST_RETRY_S:
                    log.warning("the log does not take events (%s); they wait", getattr(error, "code", type(error)))
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, wait_s)
                wait_s = min(wait_s * 2, LAST_RETRY_S)
                continue
            if wait_s > FIRST_RETRY_S:
                log.info("the log takes events again")
                wait_s = FIRST_RETRY_S
            with self._changed:
                self._changed.wait_for(lambda: self._pending_records > 0 or self._closing, FORGET_EVERY_S)

    def _oldest(self) -> list[tuple[int, bytes]]:
        rows = self._drains.execute("SELECT number, encoded FROM record ORDER BY number LIMIT ?", (DRAIN_RECORDS,))
        taken: list[tuple[int, bytes]] = []
        size = 0
        for number, encoded in rows:
            size += len(encoded)
            if taken and size > DRAIN_BYTES:
                break
            taken.append((number, encoded))
        rows.close()
        return taken

    def _forget(self, rows: Sequence[tuple[int, bytes]]) -> None:
        with self._write_turn:
            self._drains.execute("DELETE FROM record WHERE number <= ?", (rows[-1][0],))
        with self._changed:
            self._pending_records -= len(rows)
            self._pending_bytes -= sum(len(encoded) + _ROW_BYTES for _, encoded in rows)
            self._changed.notify_all()

    def _forget_old(self) -> None:
        with self._write_turn:
            self._drains.execute("DELETE FROM accepted WHERE accepted_ms < ?", (self._clock_ms() - REMEMBERED_MS,))

    def _connect(self, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False, cached_statements=32
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection


def _own(lock: Path) -> int:
    """Hold ``lock`` until the process ends or the number is closed."""
    number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise Misconfigured(
            "another process has this data directory's outbox open",
            try_this="end the other `ebbtide up` or `ebbtide run api`, or set EBBTIDE_DATA_DIR",
        ) from None
    return number


def _full() -> Overloaded:
    return Overloaded(
        "the outbox is full", retry_after_s=RETRY_AFTER_S, try_this="is the broker up? `ebbtide doctor` tells"
    )
