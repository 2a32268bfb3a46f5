"""Runs the read model's migrations: over a connection that was passed in, or over the settings' database."""

from alembic import context
from sqlalchemy import Connection

from ebbtide_governance.tables.database import connect
from ebbtide_governance.tables.rows import Table
from ebbtide_platform.settings import read_settings


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=Table.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


passed = context.config.attributes.get("connection")
if passed is not None:
    _run(passed)
else:
    engine = connect(read_settings())
    with engine.connect() as opened:
        _run(opened)
        opened.commit()
    engine.dispose()
