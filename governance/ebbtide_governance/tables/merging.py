"""Pure rules of the read model: how partial rows meet, and what a row counts for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ebbtide_governance.tables.rows import (
    FactRow,
    GroupRow,
    Merge,
    QuarantineRow,
    RewardRow,
    SampleRow,
    StepRow,
    Table,
    TrajectoryRow,
)

Row = dict[str, Any]
"""Column values of one table; a column that is absent is unknown."""

Key = tuple[Any, ...]
CountKey = tuple[str, str, str]
"""(tenant, name, detail)."""


@dataclass(frozen=True)
class Change:
    """A partial row: what one record says about one key of one table."""

    table: type[Table]
    values: Row

    @property
    def key(self) -> Key:
        """The values of the table's key columns."""
        return tuple(self.values[column] for column in self.table.__merge__.key)


def merge(rule: Merge, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Row:
    """The one row that two partial rows of the same key make, whichever came first."""
    if old is None:
        return dict(new)
    row = {**old, **{column: value for column, value in new.items() if value is not None}}
    for column in rule.least:
        _choose(row, column, min, old, new)
    for column in rule.most:
        _choose(row, column, max, old, new)
    for ranked in rule.ranked:
        ours, theirs = old.get(ranked.rank), new.get(ranked.rank)
        if ours is None or theirs is None:
            winner = old if theirs is None else new
        else:
            winner = new if (theirs < ours if ranked.first else theirs > ours) else old
        for column in (ranked.rank, *ranked.columns):
            row[column] = winner.get(column)
    return row


def merge_all(changes: Iterable[Change]) -> dict[type[Table], dict[Key, Row]]:
    """Changes by table and key, those of one key merged."""
    merged: dict[type[Table], dict[Key, Row]] = {}
    for change in changes:
        rows = merged.setdefault(change.table, {})
        rows[change.key] = merge(change.table.__merge__, rows.get(change.key), change.values)
    return merged


def difference(table: type[Table], old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Counter[CountKey]:
    """By how much each count moves when ``old`` becomes ``new``."""
    moved = tally(table, new)
    moved.subtract(tally(table, old) if old is not None else {})
    return Counter({key: amount for key, amount in moved.items() if amount})


def state_of(row: Mapping[str, Any]) -> str:
    """A trajectory's state: its newest verdict, else ``quarantined`` or ``open``."""
    if verdict := row.get("verdict"):
        return str(verdict)
    quarantined, replayed = row.get("quarantined_ms"), row.get("replayed_ms")
    if quarantined is not None and (replayed is None or replayed < quarantined):
        return "quarantined"
    return "open"


def tally(table: type[Table], row: Mapping[str, Any]) -> Counter[CountKey]:
    """What one row adds to the counts; the counts are the sum of this over all rows."""
    counted: Counter[tuple[str, str]] = Counter()
    if table is TrajectoryRow:
        counted["trajectories", state_of(row)] += 1
        # A verdict on something that never came in would unbalance the account, so "in" is counted by itself.
        if row.get("first_received_ms") is not None or row.get("quarantined_ms") is not None:
            counted["trajectories", "in"] += 1
        for code in row.get("reasons") or ():
            counted["reasons", f"{row['verdict']}:{code}"] += 1
    elif table is StepRow:
        counted["steps", ""] += 1
        counted["segments", "scanned"] += row.get("scanned") or 0
        counted["segments", "erased"] += row.get("erased") or 0
        for kind, amount in (row.get("findings") or {}).items():
            counted["findings", kind] += amount
    elif table is SampleRow:
        counted["samples", "live" if row.get("live") else "withdrawn"] += 1
        if row.get("record_tenant") != row["tenant"]:
            counted["samples", "misplaced"] += 1
    elif table is RewardRow:
        counted["rewards", "parked" if row.get("routed_ms") is None else "routed"] += 1
    elif table is GroupRow:
        counted["groups", row.get("state") or "open"] += 1
    elif table is QuarantineRow:
        if row.get("reason"):
            waiting = row.get("replayed_ms") is None
            counted["quarantine" if waiting else "replayed", row["reason"]] += 1
    elif table is FactRow:
        counted["facts", row["kind"]] += 1
    tenant = row.get("tenant") or ""
    return Counter({(tenant, name, detail): amount for (name, detail), amount in counted.items() if amount})


def _choose(row: Row, column: str, pick: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    known = [value for value in (old.get(column), new.get(column)) if value is not None]
    row[column] = pick(known) if known else None
