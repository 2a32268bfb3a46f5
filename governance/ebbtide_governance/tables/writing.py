"""Writes folded records: rows, counts and positions in one transaction, so that a repeat finds itself done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Engine, Table, bindparam, delete, insert, select, tuple_, update

from ebbtide_governance.projection import fold
from ebbtide_governance.tables import rows
from ebbtide_governance.tables.database import exclude_writers
from ebbtide_governance.tables.merging import CountKey, Key, Row, difference, merge, merge_all
from ebbtide_governance.tables.rows import ALL_TABLES, CountRow, PositionRow
from ebbtide_platform.ports import InRecord

Positions = Mapping[tuple[str, int], int]
"""The next offset to fold, by topic (without prefix) and partition."""

KEYS_PER_QUERY = 200
"""Keys asked for at once: four columns each stay below SQLite's least limit of 999 parameters."""


class Moved(Exception):
    """Somebody else has written to this read model since: read the positions again and go on from there."""


class ReadModelWriter:
    """The one way into the read model's tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def positions(self) -> Positions:
        """Where to go on, for each partition that was ever folded."""
        with self._engine.connect() as connection:
            return _positions(connection)

    def apply(self, records: Sequence[InRecord], expected: Positions, reached: Positions) -> None:
        """Fold ``records`` and move the positions to ``reached``, where whoever read them stands now.

        Raises:
            Moved: the stored positions are not ``expected``, so a rebuild or another projector is at work.
        """
        with self._engine.begin() as connection:
            exclude_writers(connection)
            stored = _positions(connection)
            if stored != expected:
                raise Moved
            moved: Counter[CountKey] = Counter()
            changes = (change for record in records for change in fold(record))
            for table, partial in merge_all(changes).items():
                moved.update(_write(connection, table, partial))
            _count(connection, moved)
            _store_positions(connection, stored, reached)

    def clear(self) -> None:
        """Empty every table and go back to the log's beginning."""
        with self._engine.begin() as connection:
            exclude_writers(connection)
            for table in ALL_TABLES:
                connection.execute(delete(_sql(table)))


def _sql(table: type[rows.Table]) -> Table:
    return table.metadata.tables[str(table.__tablename__)]


def _positions(connection: Connection) -> dict[tuple[str, int], int]:
    stored = connection.execute(select(_sql(PositionRow)))
    return {(row.topic, row.partition): row.next_offset for row in stored}


def _store_positions(connection: Connection, stored: Positions, reached: Positions) -> None:
    rows_by_key: dict[Key, Row] = {
        place: {"topic": place[0], "partition": place[1], "next_offset": offset}
        for place, offset in reached.items()
        if stored.get(place) != offset
    }
    _save(connection, PositionRow, ("topic", "partition"), rows_by_key, set(stored))


def _write(connection: Connection, table: type[rows.Table], partial: dict[Key, Row]) -> Counter[CountKey]:
    rule = table.__merge__
    known = _load(connection, table, rule.key, partial)
    moved: Counter[CountKey] = Counter()
    changed: dict[Key, Row] = {}
    for key, values in partial.items():
        old = known.get(key)
        new = merge(rule, old, values)
        if new != old:
            moved.update(difference(table, old, new))
            changed[key] = new
    _save(connection, table, rule.key, changed, set(known))
    return moved


def _count(connection: Connection, moved: Mapping[CountKey, int]) -> None:
    key = ("tenant", "name", "detail")
    wanted = {place: amount for place, amount in moved.items() if amount}
    known = _load(connection, CountRow, key, wanted)
    changed: dict[Key, Row] = {
        place: {
            **dict(zip(key, place, strict=True)),
            "value": (known[place]["value"] if place in known else 0) + amount,
        }
        for place, amount in wanted.items()
    }
    _save(connection, CountRow, key, changed, set(known))


def _load(
    connection: Connection, table: type[rows.Table], key: tuple[str, ...], wanted: Mapping[Any, Any]
) -> dict[Key, Row]:
    target = _sql(table)
    columns = tuple_(*(target.c[name] for name in key))
    known: dict[Key, Row] = {}
    for keys in _pieces(list(wanted)):
        for row in connection.execute(select(target).where(columns.in_(keys))).mappings():
            known[tuple(row[name] for name in key)] = dict(row)
    return known


def _save(
    connection: Connection, table: type[rows.Table], key: tuple[str, ...], changed: dict[Key, Row], known: set[Any]
) -> None:
    """Insert what is new and update what is known; plain SQL that every database speaks."""
    target = _sql(table)
    complete = {place: {column.name: row.get(column.name) for column in target.c} for place, row in changed.items()}
    if new := [row for place, row in complete.items() if place not in known]:
        connection.execute(insert(target), new)
    if old := [row for place, row in complete.items() if place in known]:
        where = [target.c[name] == bindparam(f"key_{name}") for name in key]
        settable: dict[str, Any] = {
            column.name: bindparam(column.name) for column in target.c if column.name not in key
        }
        statement = update(target).where(*where).values(settable)
        connection.execute(statement, [{**row, **{f"key_{name}": row[name] for name in key}} for row in old])


def _pieces(keys: list[Any]) -> Iterator[list[Any]]:
    rest = iter(keys)
    while piece := list(islice(rest, KEYS_PER_QUERY)):
        yield piece
