"""``ebbtide run NAME``: one process of the platform, as the supervisor or an orchestrator starts it."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from importlib.metadata import entry_points

from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import FAULT, EbbtideError, InvalidInput
from ebbtide_platform.settings import Settings

PROCESSES_GROUP = "ebbtide.processes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", choices=sorted(entry_points(group=PROCESSES_GROUP).names), help="which process")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM.

    Raises:
        InvalidInput: there is no such process.
        EbbtideError: what the process itself raised.
    """
    found = {point.name: point for point in entry_points(group=PROCESSES_GROUP)}.get(arguments.name)
    if found is None:
        raise InvalidInput("name", "is no process of the platform", try_this="ebbtide run --help")
    # Not to standard output, which belongs to answers; the supervisor puts the process's name before each line.
    logging.basicConfig(level=settings.log_level, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    # Migrations report every plugin and context at INFO; of what they do, only trouble is news.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    serve = found.load()
    try:
        serve(settings)
    except EbbtideError:
        raise
    except Exception as error:
        print(describe(error), file=sys.stderr)
        return FAULT
    return 0


def describe(error: BaseException) -> str:
    """Where an unexpected error arose, without its message: messages repeat input, and a log must hold none."""
    lines = [f"{type(error).__name__} (its message is left out: it may repeat personal data)"]
    lines += [
        f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join([*lines, *(["caused by", describe(cause)] if cause is not None else [])])


command = Command("Run one process of the platform in the foreground, until SIGTERM.", configure, run)
