"""The command ``ebbtide``: finds the asked command by its entry point, imports only that one, and explains failures."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import EbbtideError, InvalidInput, Misconfigured
from ebbtide_platform.settings import read_settings

COMMANDS_GROUP = "ebbtide.commands"
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""

# The list that `ebbtide --help` shows without importing any command.
SUMMARY: Mapping[str, Mapping[str, str]] = {
    "Run the platform": {
        "up": "run the whole platform in the foreground",
        "demo": "run the main job on a generated workload, then say what happened",
        "run": "run one process of the platform (for several machines)",
        "doctor": "check what this machine has and lacks",
    },
    "Send and read": {
        "publish": "send a file of ATDP events or chat transcripts",
        "reward": "reward an answer, now or days later",
        "consume": "read curated samples",
    },
    "See what happens": {
        "status": "lag, counts and last errors",
        "tail": "live events, stage by stage",
        "why": "every decision on a trajectory, its reasons and what would change it",
    },
    "Govern and mend": {
        "tenant": "create and list tenants",
        "key": "create, list and revoke API keys",
        "replay": "process quarantined records again",
        "rebuild": "make the read model anew from the log",
    },
}

# Which extra brings a module that may be missing.
EXTRAS: Mapping[str, frozenset[str]] = {
    "server": frozenset(
        {"alembic", "confluent_kafka", "cryptography", "fastapi", "sqlalchemy", "sqlmodel", "starlette", "uvicorn"}
        | {"pydantic", "zstandard"}
    ),
    "streams": frozenset({"aiokafka", "faust", "mode", "presidio_analyzer", "spacy", "tldextract"}),
    "trainer": frozenset({"peft", "torch", "transformers", "vllm"}),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a person's mistake never shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        print(_rendered(explained, as_json="--json" in arguments), file=sys.stderr)
        return explained.exit_code


def explain(error: Exception) -> EbbtideError | None:
    """The error as one that explains itself; None for a fault of the program, whose traceback is wanted."""
    if isinstance(error, EbbtideError):
        return error
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "").partition(".")[0]
        for extra, modules in EXTRAS.items():
            if missing in modules:
                return Misconfigured(
                    f"this command needs {missing}, which is not installed",
                    try_this=f"pip install 'ebbtide[{extra}]'",
                )
        return None
    if isinstance(error, (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return Misconfigured(
            f"{error.filename or 'a file'}: {error.strerror}", try_this="name another path, or mend its rights"
        )
    from ebbtide.errors import EbbtideSDKError  # imports httpx, so only when something has failed

    return EbbtideError(str(error)) if isinstance(error, EbbtideSDKError) else None


def _rendered(error: EbbtideError, *, as_json: bool) -> str:
    if not as_json:
        return f"ebbtide: {error.diagnostics()}"
    return json.dumps({"error": {"code": error.code, "message": error.happened, "try": error.try_this}})


def _run(arguments: list[str]) -> int:
    top = _parser()
    common = top.parse_args(arguments)
    if common.command is None:
        top.print_help()
        return 0
    command = _load(common.command)
    parser = argparse.ArgumentParser(
        prog=f"ebbtide {common.command}", description=command.help, parents=[_common(argparse.SUPPRESS)]
    )
    command.configure(parser)
    # Taken out first, so that they may also stand behind the action of a command that has actions.
    given, rest = _common(argparse.SUPPRESS).parse_known_args(common.rest, argparse.Namespace(**vars(common)))
    given = parser.parse_args(rest, given)
    settings = read_settings(
        data_dir=None if given.data_dir is None else given.data_dir.absolute(),
        bootstrap_servers=given.bootstrap_servers,
        database_url=given.database_url,
    )
    return command.run(given, settings)


def _common(default: object = None) -> argparse.ArgumentParser:
    """The options of every command, which may stand before or after its name."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("common options")
    group.add_argument("--data-dir", metavar="DIR", type=Path, default=default, help="everything that must survive")
    group.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", default=default, help="a Kafka cluster, not the embedded broker"
    )
    group.add_argument(
        "--database-url", metavar="URL", default=default, help="a database for the read model, not SQLite"
    )
    group.add_argument("--json", action="store_true", default=default or False, help="answer in JSON, for scripts")
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebbtide",
        description="Sealed events in, governed samples out, people out again.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    parser.add_argument("--version", action="version", version=f"ebbtide {version('ebbtide')}")
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="one of the commands below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="`ebbtide COMMAND --help` lists them")
    return parser


def _listing() -> str:
    listed = {name for commands in SUMMARY.values() for name in commands}
    others = dict.fromkeys(sorted(_entry_points().keys() - listed), "")
    groups = {**SUMMARY, **({"Others": others} if others else {})}
    width = max(len(name) for commands in groups.values() for name in commands)
    return "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {text}".rstrip() for name, text in commands.items())])
        for title, commands in groups.items()
    )


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMANDS_GROUP)}


def _load(name: str) -> Command:
    found = _entry_points().get(name)
    if found is None:
        raise InvalidInput("command", f"there is no `ebbtide {name}`", try_this="ebbtide --help")
    command = found.load()
    if not isinstance(command, Command):
        raise TypeError(f"{found.value} is no Command")
    return command


if __name__ == "__main__":
    sys.exit(main())
