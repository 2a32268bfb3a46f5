"""``ebbtide replay``: produce quarantined records again, after what made them fail is mended."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from ebbtide_governance.commands.console import clock, listed, say, say_json
from ebbtide_governance.projection import replay_header
from ebbtide_governance.web.asking import opened
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.progress import Progress
from ebbtide_platform.codec import decode, headers
from ebbtide_platform.errors import Corrupt, Poison
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import Erased, InRecord, LogWriter, OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import QUARANTINE
from ebbtide_schemas.records import QuarantineRecord

Origin = tuple[str, str, int, int]
"""(stage, topic, partition, offset) of a record that was quarantined."""


@dataclass(frozen=True)
class Choice:
    """Which quarantined records are meant; None means any."""

    tenant: str | None = None
    stage: str | None = None
    reason: str | None = None
    offset: int | None = None
    """Of the original record, to name one."""

    def holds(self, record: QuarantineRecord) -> bool:
        """True if ``record`` is one of them."""
        return all(
            wanted in (None, found)
            for wanted, found in (
                (self.tenant, record.tenant),
                (self.stage, record.stage),
                (self.reason, record.reason),
                (self.offset, record.offset),
            )
        )


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--tenant", help="only this tenant's")
    parser.add_argument("--stage", help="only what this stage could not process")
    parser.add_argument("--reason", help="only those with this reason code")
    parser.add_argument("--offset", type=int, help="only the one that stood at this offset of its topic")
    parser.add_argument("--again", action="store_true", help="also those that were replayed before")
    parser.add_argument("--dry-run", action="store_true", help="say which they are and do nothing")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Reopen each chosen record and write it to the topic it came from; exit code 1 if one could not be opened."""
    choice = Choice(arguments.tenant, arguments.stage, arguments.reason, arguments.offset)
    with opened(settings) as model:
        done = set() if arguments.again else model.replayed()
    with Follower(settings, [QUARANTINE]) as follower:
        chosen = list(choose(follower.read_to_end(), choice, done))
    if arguments.dry_run:
        return _list(chosen, as_json=arguments.json)
    outcome: Counter[str] = Counter()
    with closing(RemoteKeyDoor(settings.socket_path, settings.token())) as door, KafkaLogWriter(settings) as writer:
        sealer = Sealer(door)
        with Progress("replay", total=len(chosen), unit="records", quiet=arguments.json) as progress:
            for key, record in chosen:
                outcome[produce_again(key, record, sealer, writer)] += 1
                progress.advance()
    if arguments.json:
        say_json({"chosen": len(chosen), **outcome})
    else:
        say(f"{len(chosen)} records: {listed(outcome, 'nothing to do')}")
    return 1 if outcome["unreadable"] else 0


command = Command(help="process quarantined records again", configure=configure, run=run)


def choose(records: Iterable[InRecord], choice: Choice, done: set[Origin]) -> Iterator[tuple[bytes, QuarantineRecord]]:
    """Keys and records that ``choice`` means and that were not replayed yet, each original once."""
    seen = set(done)
    for record in records:
        try:
            found = decode(record.value, QuarantineRecord)
        except Poison:
            continue
        origin = (found.stage, found.topic, found.partition, found.offset)
        if origin not in seen and choice.holds(found):
            seen.add(origin)
            yield record.key or b"", found


def produce_again(key: bytes, record: QuarantineRecord, sealer: Sealer, writer: LogWriter) -> str:
    """Write the original record to its own partition; ``replayed``, or why not: ``key destroyed``, ``unreadable``."""
    try:
        plain = sealer.open(record.sealed)
    except Corrupt:
        return "unreadable"
    if isinstance(plain, Erased):
        return "key destroyed"
    stamped = headers(
        event=record.event or f"{record.topic}-{record.partition}-{record.offset}",
        kind="replay",
        source="replay",
        time_ms=record.quarantined_ms,
        tenant=record.tenant,
    )
    again = OutRecord(record.topic, key, plain, (*stamped, replay_header(record)), record.partition)
    writer.write([again])
    return "replayed"


def _list(chosen: list[tuple[bytes, QuarantineRecord]], *, as_json: bool) -> int:
    for _, record in chosen:
        where = f"{record.topic}[{record.partition}]@{record.offset}"
        if as_json:
            say_json({"stage": record.stage, "reason": record.reason, "record": where, "tenant": record.tenant})
        else:
            say(
                f"{clock(record.quarantined_ms)}  {record.stage:8} {record.reason:24} {record.tenant or '-':12} {where}"
            )
    if not as_json:
        say(f"{len(chosen)} records would be replayed")
    return 0
