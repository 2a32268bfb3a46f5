"""``ebbtide tenant create|list``: tenants of a running platform."""

from __future__ import annotations

import argparse
import json
import time
import uuid

from ebbtide_platform import codec, topics
from ebbtide_platform.adapters.kafka import KafkaLogWriter, create_topics
from ebbtide_platform.cli.command import Command
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import KeyDoor, LogWriter, OutRecord
from ebbtide_platform.settings import Settings
from ebbtide_schemas.records import FactRecord

# Fixed, so that the fact of a tenant has the same id however often it is written.
_FACTS_NAMESPACE = uuid.UUID("6f1d1c52-3a3f-5d0e-9d0a-5f1b7c1d2e90")


def ensure_tenant(settings: Settings, door: KeyDoor, writer: LogWriter, tenant: str) -> bool:
    """Make a tenant's topic, fact and keys, in this order, so that a crash in between is mended by the next call.

    Returns False if the tenant was there already.

    Raises:
        InvalidInput: the name cannot be a tenant's.
        Unavailable: broker or key door do not answer.
    """
    create_topics(settings, [topics.curated(tenant)])
    if tenant in door.tenants():
        return False
    writer.write([_fact(tenant, time.time_ns() // 1_000_000)])
    return door.create_tenant(tenant)


def _fact(tenant: str, now_ms: int) -> OutRecord:
    event = str(uuid.uuid5(_FACTS_NAMESPACE, tenant))
    return OutRecord(
        topic=topics.FACTS.name,
        key=tenant.encode(),
        value=codec.encode(FactRecord(kind="tenant", tenant=tenant, fact_ms=now_ms)),
        headers=tuple(codec.headers(event=event, kind="fact", source="admin", time_ms=now_ms, tenant=tenant)),
    )


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a tenant: its keys and its curated topic")
    create.add_argument("tenant", help="1 to 63 lower-case letters, digits and inner hyphens")
    actions.add_parser("list", help="every tenant")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Create a tenant, or list them.

    Raises:
        InvalidInput: the name cannot be a tenant's.
        Misconfigured: no platform runs on this data directory.
        Unavailable: broker or key door do not answer.
    """
    door = RemoteKeyDoor(settings.socket_path, settings.token())
    try:
        if arguments.action == "list":
            names = door.tenants()
            print(json.dumps({"tenants": names}) if arguments.json else "\n".join(names))
            return 0
        topics.check_tenant(arguments.tenant)
        with KafkaLogWriter(settings) as writer:
            made = ensure_tenant(settings, door, writer, arguments.tenant)
    finally:
        door.close()
    if arguments.json:
        print(json.dumps({"tenant": arguments.tenant, "created": made}))
    else:
        print(f"tenant {arguments.tenant} {'created' if made else 'was there already'}")
        print(f"  next: ebbtide key create {arguments.tenant}")
    return 0


command = Command("Create and list tenants of a running platform.", configure, run)
