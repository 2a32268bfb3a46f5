"""The outbox keeps its promise: on disk before the answer, in order on the log, never lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.doors.outbox import REMEMBERED_MS, Entry, Outbox
from ebbtide_platform.errors import Misconfigured, Overloaded
from ebbtide_platform.ports import OutRecord
from support.waiting import wait_until

DRAIN_S = 10.0
ROOMY = 10_000_000

KILLED = """
import os, signal, sys
from pathlib import Path
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.doors.outbox import Entry, Outbox
from ebbtide_platform.ports import OutRecord
log = MemoryLog()
log.available = False
outbox = Outbox(Path(sys.argv[1]), log, max_bytes=10_000_000)
outbox.append([Entry("event-1", "digest", (OutRecord("steps", b"key", b"sealed", (("ce_id", b"event-1"),)),))])
os.kill(os.getpid(), signal.SIGKILL)
"""


def _entry(event: str, *values: bytes, digest: str = "digest") -> Entry:
    records = tuple(OutRecord("steps", b"key", value) for value in values or (event.encode(),))
    return Entry(event, digest, records)


def _values(log: MemoryLog) -> list[bytes | None]:
    return [record.value for record in log.records("steps")]


def test_what_was_accepted_survives_a_kill_9(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        assert outbox.wait_drained(DRAIN_S)
        assert outbox.append([_entry("event-1")]) == ["duplicate"]
    (record,) = log.records("steps")
    assert (record.key, record.value, record.headers) == (b"key", b"sealed", (("ce_id", b"event-1"),))


def test_records_reach_the_log_in_the_order_of_their_acceptance(tmp_path: Path) -> None:
    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        for number in range(50):
            outbox.append([_entry(f"e-{number}", b"%d-a" % number, b"%d-b" % number)])
        assert outbox.wait_drained(DRAIN_S)
        assert outbox.pending() == 0
    assert _values(log) == [b"%d-%s" % (number, part) for number in range(50) for part in (b"a", b"b")]


def test_a_broker_that_is_away_delays_and_loses_nothing(tmp_path: Path) -> None:
    log = MemoryLog()
    log.available = False
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        assert outbox.append([_entry("e-1"), _entry("e-2")]) == ["accepted", "accepted"]
        assert outbox.pending() == 2
        log.available = True
        assert outbox.wait_drained(DRAIN_S)
    assert _values(log) == [b"e-1", b"e-2"]


def test_a_crash_after_delivery_delivers_again(tmp_path: Path) -> None:
    class Crashing(MemoryLog):
        crashes = 1

        def write(self, records: Sequence[OutRecord]) -> None:
            super().write(records)
            if self.crashes:
                self.crashes -= 1
                raise RuntimeError("after the acknowledgement")

    log = Crashing()
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        outbox.append([_entry("e-1")])
        assert outbox.wait_drained(DRAIN_S)
    assert _values(log) == [b"e-1", b"e-1"]


def test_the_same_event_again_is_a_duplicate_and_with_other_content_a_conflict(tmp_path: Path) -> None:
    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        assert outbox.append([_entry("e-1"), _entry("e-1"), _entry("e-1", digest="other")]) == [
            "accepted",
            "duplicate",
            "conflict",
        ]
        assert outbox.wait_drained(DRAIN_S)
        assert outbox.append([_entry("e-1")]) == ["duplicate"]
        assert outbox.known(["e-1", "e-2"]) == {"e-1": "digest"}
    with Outbox(tmp_path, log, max_bytes=ROOMY) as outbox:
        assert outbox.append([_entry("e-1"), _entry("e-1", digest="other")]) == ["duplicate", "conflict"]
    assert _values(log) == [b"e-1"]


def test_a_full_outbox_takes_all_of_a_batch_or_nothing_and_has_room_again_later(tmp_path: Path) -> None:
    log = MemoryLog()
    log.available = False
    with Outbox(tmp_path, log, max_bytes=2000) as outbox:
        outbox.append([_entry("e-1", bytes(1000))])
        with pytest.raises(Overloaded) as refused:
            outbox.append([_entry("small"), _entry("e-2", bytes(1000))])
        assert refused.value.retry_after_s > 0
        assert outbox.known(["small", "e-2"]) == {}
        assert outbox.append([_entry("e-1", bytes(1000))]) == ["duplicate"]
        log.available = True
        assert outbox.wait_drained(DRAIN_S)
        assert outbox.append([_entry("small"), _entry("e-2", bytes(1000))]) == ["accepted", "accepted"]
        log.available = False


def test_a_full_outbox_is_known_before_a_body_is_read(tmp_path: Path) -> None:
    log = MemoryLog()
    log.available = False
    with Outbox(tmp_path, log, max_bytes=1000) as outbox:
        outbox.check_room()
        outbox.append([_entry("e-1", bytes(700))])
    with Outbox(tmp_path, log, max_bytes=700) as outbox, pytest.raises(Overloaded):
        outbox.check_room()


def test_requests_that_come_together_share_a_commit(tmp_path: Path) -> None:
    first_is_in, everybody_waits = threading.Event(), threading.Event()

    def clock_ms() -> int:
        if threading.current_thread().name == "outbox-commit":
            first_is_in.set()
            everybody_waits.wait(DRAIN_S)
        return 1

    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY, clock_ms=clock_ms) as outbox, ThreadPoolExecutor(8) as pool:
        first = pool.submit(outbox.append, [_entry("e-0")])
        assert first_is_in.wait(DRAIN_S)
        others = [pool.submit(outbox.append, [_entry(f"e-{number}")]) for number in range(1, 8)]
        wait_until(lambda: outbox.waiting() == len(others), "all others wait")
        everybody_waits.set()
        assert [future.result(DRAIN_S) for future in (first, *others)] == [["accepted"]] * 8
        assert outbox.commits == 2


def test_a_repeat_is_told_apart_for_a_month(tmp_path: Path) -> None:
    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY, clock_ms=lambda: 0) as outbox:
        outbox.append([_entry("e-1")])
    with Outbox(tmp_path, log, max_bytes=ROOMY, clock_ms=lambda: REMEMBERED_MS) as outbox:
        assert outbox.append([_entry("e-1")]) == ["duplicate"]
    with Outbox(tmp_path, log, max_bytes=ROOMY, clock_ms=lambda: REMEMBERED_MS + 1) as outbox:
        wait_until(lambda: not outbox.known(["e-1"]), "the id is forgotten")


def test_two_processes_cannot_have_one_outbox(tmp_path: Path) -> None:
    log = MemoryLog()
    with Outbox(tmp_path, log, max_bytes=ROOMY), pytest.raises(Misconfigured):
        Outbox(tmp_path, log, max_bytes=ROOMY)
    Outbox(tmp_path, log, max_bytes=ROOMY).close()
