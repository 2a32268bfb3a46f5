"""The tables: made by migrations, written in one transaction with the positions, and foldable anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine, text

from ebbtide_governance.tables.database import alembic_config, connect, migrate
from ebbtide_governance.tables.writing import Moved, ReadModelWriter
from ebbtide_platform import topics
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.ports import InRecord
from ebbtide_platform.settings import Settings
from support.governed_log import governed_log
from support.read_model import dump, fill, fresh_read_model, projector_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with fresh_read_model(tmp_path) as engine:
        yield engine


def test_the_migrations_make_exactly_the_tables_that_the_code_declares(engine: Engine) -> None:
    with engine.connect() as connection:
        command.check(alembic_config(connection))


def test_the_migrations_can_be_undone(engine: Engine) -> None:
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "base")
        left = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
    assert left == ["alembic_version"]


def test_migrating_twice_changes_nothing(engine: Engine) -> None:
    fill(governed_log(), engine)
    before = dump(engine)
    migrate(engine)
    assert dump(engine) == before


def test_a_database_url_that_cannot_be_used_says_so() -> None:
    with pytest.raises(Misconfigured, match="database URL"):
        connect(Settings(database_url="nonsense"))


def test_a_read_model_folded_anew_equals_the_one_that_grew_with_the_log(tmp_path: Path) -> None:
    source, grown = governed_log(), governed_log()
    with fresh_read_model(tmp_path / "live") as live, fresh_read_model(tmp_path / "new") as new:
        # The log grows topic by topic in pieces of three, as a projector that is always early would see it.
        writer = ReadModelWriter(live)
        for topic in (*topics.SHARED, topics.curated("acme"), topics.curated("globex")):
            if topic is not topics.TICKS:
                _fold_in_pieces(writer, source.records(topic), 3)
        fill(grown, new)
        assert _without_positions(dump(live)) == _without_positions(dump(new))


def test_a_rebuild_gives_the_same_rows_counts_and_positions(engine: Engine) -> None:
    log = governed_log()
    fill(log, engine)
    before = dump(engine)
    ReadModelWriter(engine).clear()
    assert not any(dump(engine).values())
    fill(log, engine)
    assert dump(engine) == before


def test_a_batch_is_refused_when_somebody_else_has_moved_the_positions(engine: Engine) -> None:
    log = governed_log()
    writer = ReadModelWriter(engine)
    stale = writer.positions()
    fill(log, engine)
    before = dump(engine)
    with pytest.raises(Moved):
        writer.apply(log.records(topics.STEPS), stale, {(topics.STEPS.name, 0): 1})
    assert dump(engine) == before


def test_a_projector_goes_on_after_a_rebuild_under_its_feet(engine: Engine) -> None:
    log = governed_log()
    fill(log, engine)
    before = dump(engine)
    writer = ReadModelWriter(engine)
    passes = iter(range(40))

    def stopped() -> bool:
        turn = next(passes)
        if turn == 2:
            writer.clear()
        return dump(engine) == before if turn > 2 else False

    projector_of(log, engine).run(stopped)
    assert dump(engine) == before


def test_a_batch_that_cannot_be_written_leaves_nothing_behind(engine: Engine) -> None:
    writer = ReadModelWriter(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE counts"))
    with pytest.raises(Exception, match="counts"):
        writer.apply(governed_log().records(topics.STEPS), {}, {(topics.STEPS.name, 0): 9})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM steps")).scalar() == 0
    assert writer.positions() == {}


def _fold_in_pieces(writer: ReadModelWriter, records: list[InRecord], size: int) -> None:
    for start in range(0, len(records), size):
        piece = records[start : start + size]
        stored = writer.positions()
        reached = {**stored, **{(record.topic, record.partition): record.offset + 1 for record in piece}}
        writer.apply(piece, stored, reached)


def _without_positions(rows: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    return {table: of for table, of in rows.items() if table != "positions"}
