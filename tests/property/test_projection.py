"""The fold is a function of the set of records: no order and no repetition shows in the read model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide_governance.projection import fold
from ebbtide_governance.tables.merging import CountKey, Key, Row, difference, merge, merge_all, tally
from ebbtide_governance.tables.rows import Table
from ebbtide_platform.ports import InRecord
from support.governed_log import all_records, governed_log

RECORDS = all_records(governed_log())
Rows = dict[type[Table], dict[Key, Row]]


def _fold_all(records: Sequence[InRecord]) -> Rows:
    return merge_all(change for record in records for change in fold(record))


def _known(rows: Rows) -> Rows:
    """Rows without columns that are unknown: absent and null say the same."""
    return {
        table: {key: {name: value for name, value in row.items() if value is not None} for key, row in of.items()}
        for table, of in rows.items()
    }


EXPECTED = _known(_fold_all(RECORDS))
_any_order_with_repeats = st.tuples(st.permutations(RECORDS), st.lists(st.sampled_from(RECORDS))).map(
    lambda drawn: [*drawn[0], *drawn[1]]
)


@given(_any_order_with_repeats)
def test_any_order_and_repetition_gives_the_same_rows(records: list[InRecord]) -> None:
    assert _known(_fold_all(records)) == EXPECTED


@given(_any_order_with_repeats, st.integers(1, 20))
@settings(deadline=None)
def test_counts_moved_batch_by_batch_are_the_sum_over_the_rows(records: list[InRecord], size: int) -> None:
    rows: Rows = {}
    counts: Counter[CountKey] = Counter()
    for start in range(0, len(records), size):
        for table, partial in _fold_all(records[start : start + size]).items():
            known = rows.setdefault(table, {})
            for key, values in partial.items():
                new = merge(table.__merge__, known.get(key), values)
                counts.update(difference(table, known.get(key), new))
                known[key] = new
    summed: Counter[CountKey] = Counter()
    for table, of in rows.items():
        for row in of.values():
            summed.update(tally(table, row))
    assert {key: value for key, value in counts.items() if value} == dict(summed)
    assert _known(rows) == EXPECTED
