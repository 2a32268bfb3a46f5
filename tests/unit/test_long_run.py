"""A long run that was ended goes on where it stopped, and never shows figures of other sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.long_run import Figure, Journal, machine, page, source_revision

MET = Figure("Cost", "a tick is cheap", 100_000, "10 rows", "slope at most 1.1", True)
MISSED = Figure("Cost", "a row is small", 1_000, "392 bytes", "at most 256", False)


def fail() -> Figure:
    raise AssertionError("measured twice")


def test_a_figure_that_is_known_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "long" / "figures.json"
    Journal(path, "abc").figure("tick", lambda: MET)
    assert Journal(path, "abc").figure("tick", fail) == MET


def test_a_part_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    Journal(path, "abc").once("block 1", lambda: None)
    Journal(path, "abc").once("block 1", fail)


def test_a_part_that_fails_is_tried_again(tmp_path: Path) -> None:
    journal, tried = Journal(tmp_path / "figures.json", "abc"), []
    with pytest.raises(AssertionError):
        journal.once("block 1", fail)
    journal.once("block 1", lambda: tried.append(1))
    assert tried


def test_figures_of_other_sources_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    Journal(path, "abc").figure("tick", lambda: MET)
    assert Journal(path, "def").figures == ()


def test_the_page_names_commit_machine_n_and_what_was_not_met() -> None:
    text = page("abc", [MET, MISSED], {"Cost": "Counted."})
    assert "- commit: abc" in text
    assert machine() in text
    assert "| a tick is cheap | 100,000 | 10 rows | slope at most 1.1 | met |" in text
    assert "| a row is small | 1,000 | 392 bytes | at most 256 | NOT MET |" in text
    assert "- bars: 2, not met: 1" in text


def test_the_same_sources_have_the_same_revision() -> None:
    assert source_revision() == source_revision()
