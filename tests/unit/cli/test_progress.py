"""Progress: a bar for a person, a line now and then for a log, nothing for a script."""

from __future__ import annotations

import io
from itertools import count

from ebbtide_platform.cli.progress import Progress, render


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_that_grows_on_one_line() -> None:
    stream, clock = Terminal(), count()
    with Progress("publish", 4, unit="lines", stream=stream, clock=lambda: float(next(clock))) as progress:
        for _ in range(4):
            progress.advance()
    frames = stream.getvalue().split("\r")
    assert "100 %  4/4 lines" in frames[-1]
    assert stream.getvalue().count("\n") == 1


def test_a_log_gets_no_control_characters_and_few_lines() -> None:
    stream = io.StringIO()
    with Progress("publish", 1000, stream=stream, clock=lambda: 0.0) as progress:
        for _ in range(1000):
            progress.advance()
    assert stream.getvalue().splitlines() == ["publish    0 %  0/1000", "publish  100 %  1000/1000"]


def test_a_log_is_not_told_the_same_twice() -> None:
    stream = io.StringIO()
    with Progress("starting", stream=stream):
        pass
    assert stream.getvalue() == "starting\n"


def test_quiet_shows_nothing() -> None:
    stream = Terminal()
    with Progress("publish", 2, quiet=True, stream=stream) as progress:
        progress.advance(2, note="done")
    assert stream.getvalue() == ""


def test_an_unknown_total_is_counted_and_an_empty_one_does_not_divide_by_zero() -> None:
    assert render("rebuild", 12, None, "records", 2.0, "", True) == "rebuild  12 records  6/s"
    assert render("rebuild", 0, 0, "", 0.0, "nothing to do", True) == "rebuild  0/0  nothing to do"
