"""``ebbtide rebuild``: throw the read model away and fold it anew from the log."""

from __future__ import annotations

import argparse

from ebbtide_governance.commands.console import say, say_json
from ebbtide_governance.commands.projector import kafka_projector
from ebbtide_governance.tables.database import connect, migrate
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.tables.writing import ReadModelWriter
from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.progress import Progress
from ebbtide_platform.settings import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose: the log says everything."""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Empty the tables and fold the log to its end; a running projector may help and does no harm."""
    engine = connect(settings)
    try:
        migrate(engine)
        writer = ReadModelWriter(engine)
        projector = kafka_projector(settings, writer)
        writer.clear()
        with Progress("rebuild", unit="records", quiet=arguments.json) as progress:

            def advance(done: int, total: int) -> None:
                progress.total = total
                progress.reach(done)

            projector.run_to_end(advance)
        account = ReadModel(engine).status(None).account
    finally:
        engine.dispose()
    if arguments.json:
        say_json({"records": progress.done, "trajectories": account.trajectories_in})
    else:
        say(f"the read model was folded anew: {progress.done} records, {account.trajectories_in} trajectories")
    return 0


command = Command(help="throw the read model away and fold it anew from the log", configure=configure, run=run)
