"""Faust workers that fail as they are told, run as processes: ``python faulty_worker.py ours|plain``.

Both carry the rewards topic to the routed topic, *ours* through the route stage and *plain* as the Faust manual
writes an agent. What must go wrong lies as files in ``data_dir/faults``; each fault's happening is marked there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import faust
from faust.types import StreamT

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.kafka import KafkaLogWriter
from ebbtide_platform.codec import decode
from ebbtide_platform.errors import Poison
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord, StageTransaction
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings, read_settings
from ebbtide_platform.topics import REWARDS, ROUTED
from ebbtide_schemas.records import RewardRecord
from ebbtide_streams.app import work
from ebbtide_streams.partitions import Partitions
from ebbtide_streams.route import RouteStage

RAISES, RAISES_ONCE, HANGS = "raises", "raises-once", "hangs"


class FirstTryFailed(Exception):
    """What an agent raises that meets something unforeseen."""


class Faults:
    """Files ``<fault>-<event>``; one that happened is ``<fault>-<event>.happened``."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.data_dir / "faults"

    def happen(self, event: str) -> None:
        """Fail if that is what this event is for."""
        if self._due(HANGS, event):
            self._mark(HANGS, event)
            threading.Event().wait()
        if self._due(RAISES, event) or (self._due(RAISES_ONCE, event) and not self._path(RAISES_ONCE, event).exists()):
            self._mark(RAISES, event)
            self._mark(RAISES_ONCE, event)
            raise FirstTryFailed

    def set(self, fault: str, event: str) -> None:
        """Let it happen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{fault}-{event}").touch()

    def clear(self) -> None:
        """Let nothing happen any more."""
        for path in self.folder.glob("*"):
            path.unlink()

    def happened(self, fault: str, event: str) -> bool:
        """Whether it has."""
        return self._path(fault, event).exists()

    def _due(self, fault: str, event: str) -> bool:
        return (self.folder / f"{fault}-{event}").exists()

    def _mark(self, fault: str, event: str) -> None:
        self._path(fault, event).touch()

    def _path(self, fault: str, event: str) -> Path:
        return self.folder / f"{fault}-{event}.happened"


def run_ours(settings: Settings) -> None:
    """The route stage under the shared primitive."""
    faults = Faults(settings)

    class FaultyRoute(RouteStage):
        """The route stage, with faults."""

        def process(self, record: InRecord, tx: StageTransaction) -> None:
            super().process(record, tx)
            faults.happen(decode(record.value, RewardRecord).event)

    with KafkaLogWriter(settings) as writer:
        sealer = Sealer(MemoryKeyDoor("acme"))
        partitions = Partitions(settings, {"route": FaultyRoute}, sealer, FactsState(), None, writer)
        asyncio.run(work(settings, partitions))


def run_plain(settings: Settings) -> None:
    """The same as an agent of the Faust manual: at least once, so it is said."""
    faults = Faults(settings)
    app = faust.App(
        settings.topic("plain"),
        broker=f"aiokafka://{settings.brokers}",
        store="memory://",
        processing_guarantee="at_least_once",
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        broker_commit_interval=0.5,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / 10,
        consumer_auto_offset_reset="earliest",
    )
    source = app.topic(settings.topic(REWARDS.name), value_type=bytes, value_serializer="raw")
    output = app.topic(settings.topic(ROUTED.name), value_type=bytes, value_serializer="raw")

    @app.agent(source)
    async def route(stream: StreamT[Any]) -> None:
        async for value in stream:
            try:
                faults.happen(decode(value, RewardRecord).event)
            except Poison:
                continue
            await output.send(value=value)

    asyncio.run(_serve(app))


async def _serve(app: faust.App) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    app.finalize()
    await app.start()
    await app.wait(stopping.wait())
    await app.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    {"ours": run_ours, "plain": run_plain}[sys.argv[1]](read_settings())
