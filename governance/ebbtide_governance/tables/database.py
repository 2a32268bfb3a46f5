"""The read model's database: connecting, and bringing its tables to today's form."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.settings import Settings

SQLITE_WAIT_S = 30
"""A reader or a second writer waits this long for the projector's transaction, which takes milliseconds."""


POSTGRES_LOCK = 0x0EBB71DE
"""Any number that no other program on the same database uses."""


def connect(settings: Settings) -> Engine:
    """An engine for the read model; SQLite's file is made on first use.

    Raises:
        Misconfigured: the URL names no database that can be used.
    """
    try:
        url = make_url(settings.read_model_url)
        local = url.get_backend_name() == "sqlite"
        if local and url.database and url.database != ":memory:":
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": SQLITE_WAIT_S} if local else {})
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError):
        raise Misconfigured(
            "the read model's database URL cannot be used",
            try_this="leave --database-url out for SQLite, or give one such as postgresql+psycopg://host/name",
        ) from None
    if local:
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def migrate(engine: Engine) -> None:
    """Bring the tables to today's form; a database that has it already is left as it is.

    Raises:
        Unavailable: the database does not answer.
    """
    try:
        with engine.begin() as connection:
            exclude_writers(connection)
            command.upgrade(alembic_config(connection), "head")
    except OperationalError:
        raise Unavailable(
            "the read model's database does not answer", try_this="check --database-url and that it is up"
        ) from None


def exclude_writers(connection: Connection) -> None:
    """Wait for, then keep out, every other writer until this transaction ends; call it first in one."""
    if connection.dialect.name == "sqlite":
        # A plain BEGIN takes the write lock at the first write, too late to have read under it.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({POSTGRES_LOCK})")


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration over an open connection, from a checkout as well as from a wheel."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    return config


def _scripts() -> Path:
    installed = Path(str(files("ebbtide_governance"))) / "migrations"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[3] / "migrations"


def _prepare_sqlite(connection: object, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # the driver's own connection has no common type
    # Write-ahead logging lets the API read while the projector writes. What a power cut takes is folded again.
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
