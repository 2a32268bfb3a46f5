"""Detectors in processes: what happens to texts, workers and the parent when something dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ebbtide_governance.redaction import pool as pools
from ebbtide_governance.redaction.detector import PIECE_CHARS, Span
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_governance.redaction.pool import DetectorPool
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.settings import Settings
from support.redaction import FrailDetector, PidDetector, refuse
from support.waiting import lives, wait_until

MAIL = "mail a@example.org"
FOUND = [Span(5, 18, "EMAIL", 1.0)]
TESTS = Path(__file__).resolve().parents[2]


@contextmanager
def frail(timeout_s: float = 30.0) -> Iterator[DetectorPool]:
    with closing(DetectorPool(Settings(redact_timeout_s=timeout_s), FrailDetector)) as pool:
        yield pool


def test_a_pool_finds_what_its_detector_finds() -> None:
    with closing(DetectorPool(Settings(redact_processes=2), PatternDetector)) as pool:
        assert pool.version == PatternDetector.version
        assert pool.detect([MAIL, "nothing", MAIL, ""]) == [FOUND, [], FOUND, []]
        assert pool.detect([]) == []


def test_without_another_detector_a_pool_runs_presidio_with_the_model_of_the_settings() -> None:
    with closing(DetectorPool(Settings())) as pool:
        assert f"/{Settings().spacy_model}-" in pool.version
        (spans,) = pool.detect(["Yesterday Priya Nair wrote."])
        assert spans is not None
        assert [(span.start, span.end, span.type) for span in spans] == [(10, 20, "PERSON")]


def test_a_find_deep_in_a_long_text_has_the_offset_of_the_whole() -> None:
    filler = "word " * PIECE_CHARS
    with frail() as pool:
        assert pool.detect([filler + MAIL]) == [[Span(len(filler) + 5, len(filler) + 18, "EMAIL", 1.0)]]


@pytest.mark.parametrize("fatal", ["die", "raise"])
def test_a_text_that_kills_its_worker_is_given_up_and_the_others_are_not(fatal: str) -> None:
    with frail() as pool:
        assert pool.detect([MAIL, fatal, MAIL]) == [FOUND, None, FOUND]
        assert pool.detect([MAIL]) == [FOUND]


def test_a_text_that_takes_too_long_is_given_up() -> None:
    with frail(timeout_s=0.2) as pool:
        assert pool.detect(["hang"]) == [None]


def test_a_detector_that_cannot_be_made_says_so_at_once() -> None:
    with pytest.raises(Misconfigured, match="no model of that name"):
        DetectorPool(Settings(), refuse)


def test_a_worker_is_replaced_after_so_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CHUNKS_PER_WORKER", 1)
    with closing(DetectorPool(Settings(), PidDetector)) as pool:
        pids = {span.end for _ in range(3) for span in (pool.detect(["x"])[0] or [])}
        assert len(pids) == 3
        wait_until(lambda: sum(map(lives, pids)) == 0, "replaced workers have ended")


def test_workers_die_with_a_parent_that_is_killed() -> None:
    script = (
        "import sys; from support.redaction import PidDetector\n"
        "from ebbtide_governance.redaction.pool import DetectorPool\n"
        "from ebbtide_platform.settings import Settings\n"
        "if __name__ == '__main__':\n"
        "    pool = DetectorPool(Settings(redact_processes=2), PidDetector)\n"
        "    print(*[worker._process.pid for worker in (pool._idle.get(), pool._idle.get())], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    with parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        assert all(map(lives, children))
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(lives, children)), "the workers are gone")
