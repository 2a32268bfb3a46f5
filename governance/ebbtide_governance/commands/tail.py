"""``ebbtide tail``: what passes each stage, live; ids, codes and counts only."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from ebbtide_governance.commands.console import clock, say, say_json
from ebbtide_governance.commands.projector import curated_topics
from ebbtide_governance.projection import FOLLOWED
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.adapters.kafka_connection import client_config
from ebbtide_platform.cli.command import Command
from ebbtide_platform.codec import decode_any
from ebbtide_platform.errors import InvalidInput, Poison
from ebbtide_platform.ports import InRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import CURATED_PREFIX, Topic
from ebbtide_schemas.records import (
    AliasRecord,
    ChunkRecord,
    CuratedRecord,
    DecisionRecord,
    FactRecord,
    FindingsRecord,
    GroupRecord,
    LogRecord,
    MemberRecord,
    QuarantineRecord,
    RewardRecord,
    SettledRecord,
    StepRecord,
    WithdrawalRecord,
)

STAGES: Mapping[str, Topic] = {topic.name.removeprefix("ebbtide.").removesuffix(".v1"): topic for topic in FOLLOWED}
CURATED = "curated"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "topics", metavar="TOPIC", nargs="*", help=f"of {', '.join((*STAGES, CURATED))} (default: all of them)"
    )
    parser.add_argument("--from-beginning", action="store_true", help="begin with the oldest record that is kept")
    parser.add_argument("--until-end", action="store_true", help="stop at the end instead of waiting for more")
    parser.add_argument("--tenant", help="show this tenant's records only")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print one line a record until Ctrl-C."""
    wanted = set(arguments.topics or (*STAGES, CURATED))
    if wanted - {*STAGES, CURATED}:
        raise InvalidInput("TOPIC", "is none of the topics", try_this=f"one of {', '.join((*STAGES, CURATED))}")
    topics = [topic for name, topic in STAGES.items() if name in wanted]
    if CURATED in wanted:
        topics += curated_topics(settings, AdminClient(client_config(settings)))
    with Follower(settings, topics, "beginning" if arguments.from_beginning else "end") as follower:
        records: Iterator[InRecord] = follower.read_to_end() if arguments.until_end else iter(follower)
        for record in records:
            seen = describe(record)
            if arguments.tenant not in (None, seen["tenant"]):
                continue
            if arguments.json:
                say_json(seen)
            else:
                say(line(seen))
    return 0


command = Command(help="live events by stage: ids, codes and counts", configure=configure, run=run)


def describe(record: InRecord) -> dict[str, Any]:
    """What may be shown of a record: where it stands, whose it is, and its ids."""
    topic = CURATED if record.topic.startswith(CURATED_PREFIX) else record.topic
    where = {
        "time_ms": record.timestamp_ms,
        "topic": topic.removeprefix("ebbtide.").removesuffix(".v1"),
        "partition": record.partition,
        "offset": record.offset,
    }
    try:
        read = decode_any(record.value)
    except Poison as error:
        return {**where, "kind": "unreadable", "tenant": None, "detail": error.reason}
    tenant, trajectory, detail = _facts(read)
    kind = str(type(read).__struct_config__.tag)
    return {**where, "kind": kind, "tenant": tenant, "trajectory": trajectory, "detail": detail}


def line(seen: Mapping[str, Any]) -> str:
    """A described record as one line in columns."""
    place = f"{seen['topic']}[{seen['partition']}]@{seen['offset']}"
    whose = f"{seen['tenant'] or '-'}"
    return f"{clock(seen['time_ms'])}  {place:24} {whose:12} {seen.get('trajectory') or '-':36}  {seen['detail']}"


def _facts(read: LogRecord) -> tuple[str | None, str | None, str]:
    """(tenant, trajectory, a few words without text of anybody)."""
    match read:
        case StepRecord(header=header):
            end = f", end {header.end}" if header.end else ""
            return header.tenant, header.trajectory, f"step {header.ordinal} {header.event}{end}"
        case ChunkRecord():
            return read.tenant, read.trajectory, f"chunk {read.sealed.chunk + 1} of {read.sealed.chunks}"
        case AliasRecord():
            return read.tenant, read.trajectory, f"alias {read.alias}"
        case RewardRecord():
            return read.tenant, read.trajectory, f"reward {read.name}={read.value:g} {read.event}"
        case FindingsRecord(header=header):
            found = sum(len(segment.findings) for segment in read.segments)
            return (
                header.tenant,
                header.trajectory,
                f"{found} findings in {len(read.segments)} segments of {header.event}",
            )
        case SettledRecord():
            return (
                read.tenant,
                read.trajectory,
                f"revision {read.revision}, {len(read.chains)} chains, ended {read.end}",
            )
        case DecisionRecord(settled=settled):
            why = f": {', '.join(read.reasons)}" if read.reasons else ""
            return settled.tenant, settled.trajectory, f"revision {settled.revision} {read.verdict}{why}"
        case CuratedRecord():
            return read.tenant, read.trajectory, f"sample {read.sample} revision {read.revision}"
        case WithdrawalRecord():
            return read.tenant, read.trajectory, f"withdrawn {read.sample}: {', '.join(read.reasons)}"
        case MemberRecord():
            return read.tenant, read.trajectory, f"member of {read.group.id}: {read.verdict}"
        case GroupRecord():
            return read.tenant, None, f"group {read.group.id} {read.state}, {len(read.members)} of {read.group.size}"
        case FactRecord():
            return read.tenant, read.trajectory, f"{read.kind} {read.state or ''}".rstrip()
        case QuarantineRecord():
            where = f"{read.topic}[{read.partition}]@{read.offset}"
            return read.tenant, read.trajectory, f"quarantined by {read.stage}: {read.reason} ({where})"
        case _:
            return None, None, ""
