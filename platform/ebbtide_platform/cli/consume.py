"""``ebbtide consume TENANT``: curated samples in their newest revision, as lines of JSON or for the eye."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.connection import add_connection_options, connect_client
from ebbtide_platform.settings import Settings
from ebbtide_schemas.samples import Curated, Sample, SampleMessage

SHOWN_CHARACTERS = 200
"""Of one message, when printed for the eye."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="TENANT", help="whose samples; the API key must be this tenant's")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument("--withdrawals", action="store_true", help="print withdrawals too (always with --follow)")
    parser.add_argument(
        "--cursor-file",
        metavar="FILE",
        type=Path,
        help="resume after what this file says was read, and keep it up to date",
    )
    parser.add_argument("--limit", metavar="N", type=int, help="stop after this many records")
    add_connection_options(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print each record; the cursor file is written after the record it covers."""
    arguments.tenant = arguments.tenant or (
        arguments.name if (settings.run_dir / f"{arguments.name}.key").exists() else None
    )
    file: Path | None = arguments.cursor_file
    cursor = file.read_text(encoding="ascii").strip() if file and file.exists() else None
    client = connect_client(arguments, settings)
    printed = 0
    try:
        withdrawals = arguments.withdrawals or arguments.follow
        for record in client.curated(
            arguments.name, follow=arguments.follow, cursor=cursor or None, withdrawals=withdrawals
        ):
            print(msgspec.json.encode(record).decode() if arguments.json else _for_the_eye(record), flush=True)
            if file:
                _replace(file, record.cursor)
            printed += 1
            if printed == arguments.limit:
                break
    finally:
        client.close()
    if not arguments.json:
        print(f"{printed} record{'' if printed == 1 else 's'}", file=sys.stderr)
    return 0


command = Command(help="read curated samples in their newest revision", configure=configure, run=run)


def _for_the_eye(record: Curated) -> str:
    if not isinstance(record, Sample):
        return f"withdrawn {record.id}: {', '.join(record.reasons)}"
    rewards = ", ".join(f"{reward.name}={reward.value:g}" for reward in record.rewards) or "none"
    head = f"sample {record.id}  revision {record.revision}  agent {record.agent}  rewards {rewards}"
    return "\n".join([head, *(f"  {_line(message)}" for message in record.messages), ""])


def _line(message: SampleMessage) -> str:
    mark = "*" if message.trained else " "
    if message.hole:
        return f"{mark} {message.role:9} (erased)"
    calls = " ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    content = message.content if isinstance(message.content, str) else ""
    if isinstance(message.content, list):
        content = msgspec.json.encode(message.content).decode()
    text = " ".join(f"{content} {calls}".split())
    return f"{mark} {message.role:9} {text[:SHOWN_CHARACTERS]}{'…' if len(text) > SHOWN_CHARACTERS else ''}"


def _replace(file: Path, cursor: str) -> None:
    new = file.with_name(file.name + ".new")
    new.write_text(cursor, encoding="ascii")
    new.replace(file)
