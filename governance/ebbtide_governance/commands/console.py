"""What commands say on standard output: lines for a person, one JSON value for a script."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

MS = 1000
LABEL_WIDTH = 13


def say(line: str = "") -> None:
    """One line, at once: it may be read through a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One value as one line of JSON."""
    say(msgspec.json.encode(value).decode())


def label(name: str, text: str) -> str:
    """``name`` in a column of its own, then ``text``."""
    return f"  {name:<{LABEL_WIDTH}} {text}"


def clock(moment_ms: int | None) -> str:
    """A moment in UTC, or a dash where there is none."""
    if moment_ms is None:
        return "-"
    return datetime.fromtimestamp(moment_ms / MS, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(length_ms: int) -> str:
    """A length of time in its natural unit."""
    if length_ms < MS:
        return f"{length_ms} ms"
    return f"{length_ms / MS:.1f} s"


def listed(counts: Mapping[str, int], empty: str = "none") -> str:
    """Counts in words, the largest first."""
    ordered: Sequence[tuple[str, int]] = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return joined((f"{name} {value}" for name, value in ordered), empty)


def joined(parts: Iterable[str], empty: str = "none") -> str:
    """Parts with commas between them, or the word for nothing."""
    return ", ".join(parts) or empty
