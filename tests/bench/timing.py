"""How a bench is timed and shown: as a rate, and as how many times as long as the baseline of the same run it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

ROUND_S = 0.25
ROUNDS = 3
MICRO = 1e6


@dataclass(frozen=True)
class Row:
    """One way to do one piece of work."""

    bench: str
    what: str
    rate: float
    unit: str
    """Of ``rate``, per second."""
    cost: float
    """Times as long as the bench's first row."""


def rate(work: Callable[[], object], *, amount: float = 1.0, clock: Callable[[], float] = time.perf_counter) -> float:
    """How much of ``amount`` is done a second by repeating ``work``, in the best of some rounds; one call warms it."""
    work()
    best = 0.0
    for _ in range(ROUNDS):
        count, start = 0, clock()
        while (spent := clock() - start) < ROUND_S:
            work()
            count += 1
        best = max(best, count * amount / spent)
    return best


def rows(bench: str, unit: str, rates: Iterable[tuple[str, float]]) -> list[Row]:
    """The first rate is the baseline of the others."""
    found = list(rates)
    return [Row(bench, what, value, unit, found[0][1] / value) for what, value in found]


def table(found: Iterable[Row]) -> str:
    """The rows as text, a blank line between two benches."""
    lines = [f"{'bench':<34} {'what':<36} {'per second':>12} {'':<14} {'cost':>7}"]
    last = ""
    for row in found:
        lines += [""] if row.bench != last else []
        name = row.bench if row.bench != last else ""
        lines.append(f"{name:<34} {row.what:<36} {row.rate:>12,.0f} {row.unit:<14} {row.cost:>7.2f}")
        last = row.bench
    return "\n".join(lines)
