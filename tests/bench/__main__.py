"""`make bench`: every figure as a rate, and as a cost relative to a baseline of the same run.

Rates belong to this machine; the cost (times as long as the first row of its bench) carries over to others.
``--write`` keeps the table in docs/speed.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench import bench_intake, bench_redaction, bench_sealing, bench_stages, bench_types
from bench.timing import MICRO, Row, table
from support.long_run import machine, source_revision


def types() -> list[Row]:
    """msgspec, pydantic and the door's own checks."""
    return [
        Row(f"{'encode' if what.endswith('encode') else 'decode'} {event}", what, MICRO / spent, "events", cost)
        for event, what, spent, cost in bench_types.rows()
    ]


BENCHES: tuple[Callable[[], list[Row]], ...] = (
    types,
    bench_sealing.bench,
    bench_redaction.bench,
    bench_stages.bench,
    bench_intake.bench,
)


DOCUMENT = Path(__file__).parents[2] / "docs/speed.md"
_HEAD = """# Speed

Written by `make bench WRITE=--write`; edits are lost. Rates belong to the machine that is named; the cost (times as
long as the first row of the same bench, in the same run) carries over to others.

"""


def main() -> None:
    """Run all, print the table, and keep it if that was asked for."""
    found: list[Row] = []
    for number, bench in enumerate(BENCHES, 1):
        print(f"bench {number} of {len(BENCHES)}", file=sys.stderr, flush=True)
        found += bench()
    report = f"{machine()}\ncommit {source_revision()}\n\n{table(found)}"
    print(f"{report}\n\ncost: times as long as the first row of the same bench")
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(f"{_HEAD}```\n{report}\n```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
