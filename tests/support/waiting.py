"""Waiting for a condition with a deadline, and whether a process lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 30.0


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return as soon as ``condition`` holds; fail, saying ``what`` was awaited, when the deadline has passed."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s:.0f} s in vain until {what}")
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
