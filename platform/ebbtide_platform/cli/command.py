"""What a command of ``ebbtide`` is: a line of help, its arguments, and a function from them to an exit code."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from ebbtide_platform.settings import Settings


@dataclass(frozen=True)
class Command:
    """One command, named by an entry point of the group ``ebbtide.commands``.

    ``run`` gets the arguments, among them the common ``json``, and the settings with the command line's overrides
    applied; it returns the exit code and raises `EbbtideError` for what the person at the terminal can mend.
    """

    help: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Settings], int]
