"""Progress on the terminal: a bar where a person looks on, a line now and then where a log is kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

BAR_CELLS = 28
REDRAW_S = 0.1
"""A person sees no more than ten frames a second."""
LOG_EVERY_S = 10.0
"""A log wants to know that it goes on, and no more."""


class Progress:
    """Counts work towards ``total`` (None: unknown) on standard error; ``quiet`` shows nothing at all.

    ::

        with Progress("publish", total=lines, quiet=args.json) as progress:
            for line in file:
                ...
                progress.advance()
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        unit: str = "",
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self.total, self._unit = label, total, unit
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._quiet = quiet
        self._bar = self._stream.isatty()
        self._began = self._shown = clock()
        self.done = 0
        self._note = self._written = ""

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show()
        if self._bar and not self._quiet:
            self._stream.write("\n")
            self._stream.flush()

    def advance(self, count: int = 1, *, note: str | None = None) -> None:
        """Say that ``count`` more are done; ``note`` stands behind the bar until the next one."""
        self.reach(self.done + count, note=note)

    def reach(self, done: int, *, note: str | None = None) -> None:
        """Say that ``done`` are done in all."""
        self.done = done
        self._note = self._note if note is None else note
        if self._clock() - self._shown >= (REDRAW_S if self._bar else LOG_EVERY_S):
            self._show()

    def _show(self) -> None:
        self._shown = self._clock()
        if self._quiet:
            return
        text = render(self._label, self.done, self.total, self._unit, self._shown - self._began, self._note, self._bar)
        if text == self._written:
            return
        self._written = text
        self._stream.write(f"\r{text}\x1b[K" if self._bar else f"{text}\n")
        self._stream.flush()


def render(label: str, done: int, total: int | None, unit: str, elapsed_s: float, note: str, bar: bool) -> str:
    """One line that says how far it is: ``publish [=====     ]  50 %  10/20 lines  5/s``."""
    parts = [label]
    if total and bar:
        filled = min(BAR_CELLS, BAR_CELLS * done // total)
        parts.append(f"[{'=' * filled}{' ' * (BAR_CELLS - filled)}]")
    if total:
        parts.append(f"{min(100, 100 * done // total):3d} %")
    if total is not None or done:
        parts.append(f"{done}/{total}" if total is not None else str(done))
        parts[-1] += f" {unit}" if unit else ""
    if elapsed_s >= 1 and done:
        parts.append(f"{done / elapsed_s:,.0f}/s")
    if note:
        parts.append(note)
    return "  ".join(parts)
