"""The doors in one process, over a key door and a log in memory and an outbox on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.codec import decode_any
from ebbtide_platform.doors.app import Doors, create_app
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import SHARED, Topic, curated
from ebbtide_schemas.records import LogRecord
from support.asgi import AppClient

NOW_MS = 1_773_480_000_000
DRAIN_S = 10.0


@dataclass
class KnownNewest:
    """A read model that knows what a test tells it."""

    offsets: dict[str, int] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def newest_offsets(self, tenant: str, samples: Sequence[str]) -> dict[str, int]:
        return {sample: self.offsets[sample] for sample in samples if sample in self.offsets}

    def group_state(self, tenant: str, group: str) -> str:
        return self.groups.get(group, "open")


@dataclass
class StandingDoors:
    """The application with all that stands behind it, and a key of each tenant."""

    client: AppClient
    door: MemoryKeyDoor
    sealer: Sealer
    log: MemoryLog
    outbox: Outbox
    index: KnownNewest
    keys: Mapping[str, str]
    app: Any

    def get(self, path: str, tenant: str = "acme", **headers: str) -> httpx.Response:
        return self.client.get(path, headers=self._headers(tenant, headers))

    def post(
        self, path: str, content: bytes | object, tenant: str = "acme", kind: str = "application/json", **headers: str
    ) -> httpx.Response:
        """POST bytes as they are, anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.client.request(
            "POST", path, headers=self._headers(tenant, {"content-type": kind, **headers}), content=body
        )

    def records(self, topic: Topic) -> list[LogRecord]:
        """All that has reached a topic, once everything has."""
        assert self.outbox.wait_drained(DRAIN_S)
        return [decode_any(record.value) for record in self.log.records(topic)]

    def _headers(self, tenant: str, more: Mapping[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"authorization": f"Bearer {self.keys[tenant]}", **named}


@contextmanager
def standing_doors(data_dir: Path, *tenants: str, outbox_bytes: int = 100_000_000) -> Iterator[StandingDoors]:
    """Doors for some tenants (by default acme and globex), at a receipt time that stands still."""
    names = tenants or ("acme", "globex")
    door, log, index = MemoryKeyDoor(*names, clock_ms=lambda: NOW_MS), MemoryLog(), KnownNewest()
    log.create_topics([*SHARED, *map(curated, names)])
    keys = {name: door.create_api_key(name, "test", ["ingest", "read", "govern"]) for name in names}
    sealer = Sealer(door)
    with Outbox(data_dir / "outbox", log, max_bytes=outbox_bytes) as outbox:
        doors = Doors(
            settings=Settings(data_dir=data_dir),
            door=door,
            authenticator=Authenticator(door),
            sealer=sealer,
            outbox=outbox,
            follow=log.follow,
            index=index,
            now_ms=lambda: NOW_MS,
        )
        app = create_app(doors)
        yield StandingDoors(AppClient(app), door, sealer, log, outbox, index, keys, app)
