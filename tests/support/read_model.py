"""A migrated read model in a file of the test's own, filled from a log in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from ebbtide_governance.commands.projector import Projector
from ebbtide_governance.tables.database import connect, migrate
from ebbtide_governance.tables.rows import ALL_TABLES, CountRow
from ebbtide_governance.tables.writing import ReadModelWriter
from ebbtide_platform import topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.settings import Settings


@contextmanager
def fresh_read_model(data_dir: Path) -> Iterator[Engine]:
    """An engine over an empty, migrated read model."""
    engine = connect(Settings(data_dir=data_dir))
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()


def projector_of(log: MemoryLog, engine: Engine, *tenants: str) -> Projector:
    """A projector that follows a log in memory."""
    curated = [topics.curated(tenant) for tenant in tenants or ("acme", "globex")]
    return Projector(ReadModelWriter(engine), log.follow, lambda: curated)


def fill(log: MemoryLog, engine: Engine) -> None:
    """Fold the whole log."""
    projector_of(log, engine).run_to_end(lambda done, total: None)


def dump(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, in an order of its own; a count of nothing is no count."""
    with engine.connect() as connection:
        return {
            str(table.__tablename__): sorted(
                (
                    dict(row)
                    for row in connection.execute(select(table.metadata.tables[str(table.__tablename__)])).mappings()
                    if table is not CountRow or row["value"]
                ),
                key=repr,
            )
            for table in ALL_TABLES
        }
