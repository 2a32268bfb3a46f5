"""Any order, duplication or delay gives the same newest revision: many histories, in blocks that are kept when done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from property import test_settlement as promises
from support.long_run import Figure, Journal

pytestmark = pytest.mark.long

HISTORIES = 1_000
"""In one block: some ten seconds."""
BLOCKS = range(10)
PROMISES = (
    promises.test_any_order_duplication_or_delay_gives_the_newest_revision_of_the_batch,
    promises.test_revisions_rise_by_one_and_each_names_the_one_it_supersedes,
    promises.test_a_reward_that_comes_after_revision_0_gives_what_revision_0_would_have_been,
    promises.test_holes_never_add_training_and_never_lose_a_place,
)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_settlement_keeps_its_promises_in_many_histories(
    promise: Any, journal: Journal, note: Callable[[str, Callable[[], Figure]], Figure]
) -> None:
    says = promise.__name__.removeprefix("test_").replace("_", " ")
    for block in BLOCKS:
        journal.once(f"{says} {block}", partial(_try, promise, block))
    size = HISTORIES * len(BLOCKS)
    note(says, lambda: Figure("Order", says, size, "no counterexample", "no counterexample", True))


def _try(promise: Any, block: int) -> None:
    """Run the promise over one block of histories, the same every time."""
    tried = seed(block)(given(st.data())(promise.hypothesis.inner_test))
    settings(max_examples=HISTORIES, deadline=None, database=None)(tried)()
