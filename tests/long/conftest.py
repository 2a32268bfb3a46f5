"""What long tests share: the journal of figures, and the page that is written from it after each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.long_run import FIGURES, PAGE, Figure, Journal, page, source_revision

COST, ORDER = "Cost", "Order"
PROSE = {
    COST: "Counted at N / 10 and at N, never timed: rows of state, instructions of SQLite, calls of Python, bytes.",
    ORDER: "Random histories with fixed seeds; N is their number.",
}
Noting = Callable[[str, Callable[[], Figure]], Figure]


@pytest.fixture(scope="session")
def journal() -> Journal:
    """The figures of these sources that earlier runs have found."""
    return Journal(FIGURES, source_revision())


@pytest.fixture
def note(journal: Journal) -> Noting:
    """Find a figure, if it is not known, print it, and write the page anew."""

    def noted(key: str, measure: Callable[[], Figure]) -> Figure:
        figure = journal.figure(key, measure)
        print(f"\n{figure.verdict:>8}  {figure.says}, N = {figure.size:,}: {figure.found} ({figure.bar})")
        PAGE.write_text(page(journal.revision, journal.figures, PROSE))
        return figure

    return noted
