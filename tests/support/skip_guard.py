"""A skipped test fails the run unless its reason stands, letter for letter, in tests/allowed_skips.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

ALLOWED = Path(__file__).parents[1] / "allowed_skips.txt"


class SkipGuard:
    """A pytest plugin that collects the reasons of skips and turns an unlisted one into a failure."""

    def __init__(self) -> None:
        self._unlisted: dict[str, str] = {}
        self._allowed = {line.strip() for line in ALLOWED.read_text().splitlines() if line.strip() and line[0] != "#"}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a skip whose reason nobody has agreed to."""
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            if reason not in self._allowed:
                self._unlisted[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run for what was skipped without leave."""
        if self._unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each skip and what to do about it."""
        for test, reason in self._unlisted.items():
            terminalreporter.write_line(
                f"SKIPPED WITHOUT LEAVE {test}: {reason} (run it, or list the reason in {ALLOWED.name})", red=True
            )
