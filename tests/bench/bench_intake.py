"""What the door adds to a plain produce: HTTP, checks, ids, sealing and an outbox on disk, on the embedded broker."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import uvicorn
from confluent_kafka import Producer

from bench.timing import Row, rows
from ebbtide_platform.adapters.kafka import KafkaLogWriter, client_config
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.doors.app import Doors, create_app
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import LogWriter, OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from support.broker import fresh_topics, running_broker
from support.doors import KnownNewest
from support.scale.text import conversation
from support.waiting import wait_until

EVENTS = 2_000
TURNS = 20
"""Of a conversation: one trajectory, one subject."""
BATCH = 100
DEADLINE_S = 60.0


class _Recording:
    """Writes on, and remembers what."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.records: list[OutRecord] = []

    def write(self, records: Sequence[OutRecord]) -> None:
        """See `ports.LogWriter`."""
        self.records += records
        self._writer.write(records)

    def close(self) -> None:
        """See `ports.LogWriter`."""
        self._writer.close()


def bench() -> list[Row]:
    """Post events, and produce the same bytes plainly; client, API and producer share one Python process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(Path(folder) / "broker") as broker,
        fresh_topics(broker, Path(folder) / "data", "acme") as settings,
        closing(_Recording(KafkaLogWriter(settings))) as writer,
    ):
        accepted_s, delivered_s = _post(settings, writer)
        produced_s = _produce(settings, writer.records)
    rates = [
        ("plain produce of the same records", EVENTS / produced_s),
        ("POST /v1/events until the last 202", EVENTS / accepted_s),
        ("POST /v1/events until Kafka has all", EVENTS / delivered_s),
    ]
    return rows("intake", "events", rates)


def _post(settings: Settings, writer: LogWriter) -> tuple[float, float]:
    """(seconds until the last answer, seconds until the log has everything)."""
    events = [raw for _ in range(EVENTS // TURNS) for raw in conversation(TURNS)]
    bodies = [b"\n".join(events[start : start + BATCH]) for start in range(0, len(events), BATCH)]
    door = MemoryKeyDoor("acme")
    headers = {
        "authorization": f"Bearer {door.create_api_key('acme', 'bench', ['ingest'])}",
        "content-type": "application/x-ndjson",
    }
    with Outbox(settings.data_dir / "outbox", writer, max_bytes=1 << 30) as outbox:
        doors = Doors(
            settings=settings,
            door=door,
            authenticator=Authenticator(door),
            sealer=Sealer(door),
            outbox=outbox,
            follow=MemoryLog().follow,
            index=KnownNewest(),
        )
        with _served(doors) as url, httpx.Client(base_url=url, headers=headers) as client:
            start = time.perf_counter()
            for body in bodies:
                client.post("/v1/events", content=body).raise_for_status()
            accepted = time.perf_counter()
            assert outbox.wait_drained(DEADLINE_S)
            return accepted - start, time.perf_counter() - start


def _produce(settings: Settings, records: Sequence[OutRecord]) -> float:
    producer = Producer(client_config(settings, **{"acks": "all", "enable.idempotence": True, "linger.ms": 2}))
    producer.list_topics(timeout=DEADLINE_S)
    start = time.perf_counter()
    for record in records:
        producer.produce(settings.topic(record.topic), key=record.key, value=record.value, headers=list(record.headers))
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return time.perf_counter() - start


@contextmanager
def _served(doors: Doors) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(doors), port=0, access_log=False, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, "the API answers")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
