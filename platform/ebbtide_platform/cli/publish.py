"""``ebbtide publish FILE``: ATDP events or chat transcripts, one JSON object a line."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import msgspec

from ebbtide.encoding import encode_event
from ebbtide.errors import RequestRefused
from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.connection import Connection, add_connection_options, connect
from ebbtide_platform.cli.progress import Progress
from ebbtide_platform.errors import InvalidInput, Unavailable
from ebbtide_platform.settings import Settings
from ebbtide_schemas.messages import parse_transcript_line, steps_of_transcript
from ebbtide_schemas.validation import EventError

BATCH_EVENTS = 100
BATCH_BYTES = 4 * 1024 * 1024
TRIES = 8
"""With doubling waits this bridges about a minute of a server that restarts."""
SHOWN_ERRORS = 20
"""Errors printed one by one; the rest is counted."""


@dataclass
class Report:
    """What became of a file."""

    lines: int = 0
    events: int = 0
    accepted: int = 0
    duplicates: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Defaults:
    """What a transcript that does not say so is given."""

    agent: str
    subject: str | None
    purpose: str
    reward: float | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", help="a file of JSON lines, or - for standard input")
    parser.add_argument(
        "--agent", default="transcript", help="agent of transcripts that name none (default: transcript)"
    )
    parser.add_argument(
        "--subject", help="data subject of transcripts that name none (default: one for each transcript)"
    )
    parser.add_argument("--purpose", default="training", help="purpose of transcripts (default: training)")
    parser.add_argument(
        "--reward", type=float, help="reward of transcripts that have none (default: none, so not eligible)"
    )
    add_connection_options(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Publish the file; exit code 1 if any line was refused."""
    defaults = _Defaults(arguments.agent, arguments.subject, arguments.purpose, arguments.reward)
    report = Report()
    with connect(arguments, settings) as connection, _opened(arguments.file) as file:
        size = Path(arguments.file).stat().st_size if arguments.file != "-" else None
        with Progress("publishing", total=size, unit="B", quiet=arguments.json) as progress:
            for batch in _batches(_events(file, defaults, report, progress)):
                _send(connection, batch, report)
    report.errors.sort(key=itemgetter("line"))
    if arguments.json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 1 if report.errors else 0


command = Command(help="publish a file of ATDP events or chat transcripts", configure=configure, run=run)


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise InvalidInput("file", f"cannot be read ({error.strerror})") from None


def _events(file: BinaryIO, defaults: _Defaults, report: Report, progress: Progress) -> Iterator[tuple[int, bytes]]:
    """(line number, event JSON) of each event; a line that is neither form is reported and passed over."""
    for number, line in enumerate(file, start=1):
        progress.advance(len(line))
        if not line.strip():
            continue
        report.lines += 1
        try:
            yield from ((number, event) for event in _events_of(line.strip(), defaults))
        except EventError as error:
            report.errors.append({"line": number, "code": error.code, "field": error.field, "rule": error.rule})


def _events_of(line: bytes, defaults: _Defaults) -> Iterable[bytes]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if not isinstance(value, dict) or "specversion" in value or "type" in value:
        return [line]  # the door validates events, and says what is wrong with what is none
    return _events_of_transcript(line, value, defaults)


def _events_of_transcript(line: bytes, value: dict[str, Any], defaults: _Defaults) -> list[bytes]:
    """Ids follow from the line's content, so that publishing a file twice changes nothing."""
    transcript = parse_transcript_line(value)
    if transcript.reward is None:
        transcript = replace(transcript, reward=defaults.reward)
    steps = steps_of_transcript(
        transcript,
        trajectory=f"transcript-{hashlib.sha256(line).hexdigest()[:32]}",
        agent=defaults.agent,
        subject=defaults.subject,
        purpose=defaults.purpose,
    )
    return [encode_event(step) for step in steps]


def _batches(events: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for item in events:
        if batch and (len(batch) == BATCH_EVENTS or size + len(item[1]) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item[1])
    if batch:
        yield batch


def _send(connection: Connection, batch: list[tuple[int, bytes]], report: Report) -> None:
    body = b"\n".join(event for _, event in batch) + b"\n"
    answer = _post(connection, body)
    report.events += len(batch)
    try:
        results = answer.json()["results"]
    except (ValueError, KeyError):
        raise RequestRefused.of(answer.status_code, answer.content) from None
    for (number, _), result in zip(batch, results, strict=True):
        if result["status"] == "error":
            error = {"line": number, **{name: result.get(name) for name in ("code", "field", "rule")}}
            report.errors.append(error)
        elif result["status"] == "duplicate":
            report.duplicates += 1
        else:
            report.accepted += 1


def _post(connection: Connection, body: bytes) -> httpx.Response:
    """The server's answer; waits while it is overloaded, restarting or away.

    Raises:
        Unavailable: it stayed so.
    """
    wait_s = 0.5
    for _ in range(TRIES):
        try:
            answer = connection.http.post("/v1/events", content=body, headers={"content-type": "application/x-ndjson"})
            if answer.status_code != 429 and answer.status_code < 500:
                return answer
            wait_s = max(wait_s, float(answer.headers.get("retry-after", 0)))
        except httpx.HTTPError:
            pass
        time.sleep(min(wait_s, 30.0))
        wait_s *= 2
    raise Unavailable(
        f"no answer from {connection.url}", try_this="start the platform with `ebbtide up`, or set EBBTIDE_URL"
    )


def _print(report: Report) -> None:
    for error in report.errors[:SHOWN_ERRORS]:
        print(f"line {error['line']}: {error['field']}: {error['rule']}", file=sys.stderr)
    if len(report.errors) > SHOWN_ERRORS:
        print(f"... and {len(report.errors) - SHOWN_ERRORS} more", file=sys.stderr)
    read = f"{_counted(report.lines, 'line')}, {_counted(report.events, 'event')}"
    became = f"{report.accepted} accepted, {report.duplicates} known already, {len(report.errors)} refused"
    print(f"{read}: {became}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
