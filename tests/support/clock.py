"""A clock that tests can move."""

from __future__ import annotations

import time

DAY_MS = 86_400_000


class Clock:
    """Milliseconds since the epoch: this machine's now, and whatever was added."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def advance(self, *, days: float) -> None:
        """Let so many days pass."""
        self.ahead_ms += int(days * DAY_MS)
