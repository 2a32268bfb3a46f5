"""The processors as a Faust application: the only file that knows Faust.

Faust is used for what it does well, which is membership, assignment, fetching and flow control. It keeps no
table and produces nothing, and an event is acknowledged only after its stage's outputs are: Faust's own way
acknowledges when an agent raises and when a delivery fails (`tests/integration/test_faust_traps.py`).
On assignment each partition resumes where the stage's *store* stands, ahead of or behind the group's offset.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, StreamT
from yarl import URL

from ebbtide_governance.redaction.pool import DetectorPool
from ebbtide_platform.adapters.kafka import KafkaLogWriter
from ebbtide_platform.codec import encode, headers
from ebbtide_platform.errors import FAULT, Misconfigured
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.sealing.identity import random_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import TICKS
from ebbtide_schemas.records import TickRecord
from ebbtide_streams.context import clock_ms
from ebbtide_streams.facts_reader import FactsReader
from ebbtide_streams.partitions import STAGES, Partitions, Stages

log = logging.getLogger(__name__)

BATCH = 256
"""Events of one batch of a stage: one transaction and one round of deliveries."""
LINGER_S = 0.05
"""How long the first event of a batch waits for company; longer makes SIGTERM slow."""
BUFFER = 512
"""Events that Faust holds for a stage; a full buffer pauses the fetch."""
REQUEST_TIMEOUT_S = 60.0
"""Faust refuses to start with one below the session timeout."""
SESSION_PER_HEARTBEAT = 10


class _StoreConsumer(driver.Consumer):
    """Faust's consumer, but positions come from the stages' stores."""

    async def perform_seek(self) -> None:
        await super().perform_seek()
        app = cast(Processors, self.app)
        for partition, offset in (await app.store_positions(self.assignment())).items():
            await self.seek(partition, offset)
            self._committed_offset[partition] = offset or None


class _StoreTransport(driver.Transport):
    Consumer = _StoreConsumer


class Processors(faust.App):
    """One Faust worker with the stages of ``partitions``."""

    def __init__(self, settings: Settings, partitions: Partitions) -> None:
        stages = partitions.stages
        super().__init__(
            settings.topic("ebbtide." + ("processors" if len(stages) == len(STAGES) else "-".join(stages))),
            broker=[URL(f"aiokafka://{address}") for address in settings.brokers.split(",")],
            datadir=str(settings.data_dir / "faust"),
            store="memory://",
            processing_guarantee="at_least_once",
            topic_disable_leader=True,
            topic_allow_declare=False,
            web_enabled=False,
            broker_commit_interval=1.0,
            broker_commit_every=2_000,
            broker_max_poll_records=500,
            broker_session_timeout=settings.session_timeout_s,
            broker_heartbeat_interval=settings.session_timeout_s / SESSION_PER_HEARTBEAT,
            broker_request_timeout=max(REQUEST_TIMEOUT_S, settings.session_timeout_s),
            broker_rebalance_timeout=max(REQUEST_TIMEOUT_S, settings.session_timeout_s),
            broker_max_poll_interval=600.0,
            consumer_auto_offset_reset="earliest",
            stream_buffer_maxsize=BUFFER,
            stream_wait_empty=False,
            worker_redirect_stdouts=False,
        )
        self.transport = _StoreTransport(self.conf.broker_consumer, self, self.loop)
        self._settings = settings
        self._stages = stages
        self._partitions = partitions
        self._names = {settings.topic(topic.name): topic.name for stage in stages.values() for topic in stage.inputs}
        for name in stages:
            self._add_agent(name)
        self.on_partitions_revoked.connect(self._close_revoked)
        self.on_rebalance_complete.connect(self._close_lost)

    async def store_positions(self, assigned: set[TP]) -> dict[TP, int]:
        """Open the assigned partitions of every stage; where each topic is to be read from."""
        owned = [(name, number) for name in self._stages for number in self._owned(name, assigned)]
        generation = self.consumer_generation_id
        positions = await asyncio.to_thread(self._partitions.own, owned, generation=generation)
        return {TP(self._settings.topic(topic), number): offset for (topic, number), offset in positions.items()}

    def owned_ticks(self) -> list[int]:
        """Partitions of the ticks topic that this worker is assigned."""
        ticks = self._settings.topic(TICKS.name)
        return sorted(partition.partition for partition in self.consumer.assignment() if partition.topic == ticks)

    def _owned(self, stage: str, assigned: set[TP]) -> list[int]:
        """Partition numbers of which all of the stage's topics are assigned."""
        numbers = [
            {number for topic, number in assigned if topic == self._settings.topic(wanted.name)}
            for wanted in self._stages[stage].inputs
        ]
        return sorted(set.intersection(*numbers))

    def _add_agent(self, stage: str) -> None:
        names = [self._settings.topic(topic.name) for topic in self._stages[stage].inputs]
        raw: dict[str, Any] = {
            "key_type": bytes,
            "value_type": bytes,
            "key_serializer": "raw",
            "value_serializer": "raw",
        }

        async def work(stream: StreamT[Any]) -> None:
            async for events in cast(faust.Stream[Any], stream).noack_take(BATCH, within=LINGER_S):
                await self._process(stage, events)
                for event in events:
                    await stream.ack(event)

        self.agent(self.topic(*names, **raw), name=f"ebbtide.{stage}", concurrency=1)(work)

    async def _process(self, stage: str, events: Sequence[Any]) -> None:
        """Run the batch in a thread, so that heartbeats go on; whatever is wrong ends the process unacknowledged."""
        try:
            # Faust looks at the generation when it takes an event; a rebalance may come before its batch does.
            for generation, of_one in groupby(events, key=lambda event: event.message.generation_id or 0):
                records = [self._record(event.message) for event in of_one]
                await asyncio.to_thread(self._partitions.run, stage, records, generation=generation)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Leaving the agent would let Faust acknowledge.
            _end(stage, error)

    def _record(self, message: Any) -> InRecord:
        return InRecord(
            topic=self._names[message.topic],
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
            headers=tuple(dict(message.headers or ()).items()),
            timestamp_ms=round((message.timestamp or 0) * 1000),
        )

    async def _close_revoked(self, sender: Any, /, *_: Any, **__: Any) -> None:
        await asyncio.to_thread(self._partitions.close)

    async def _close_lost(self, sender: Any, /, *_: Any, **__: Any) -> None:
        """A seek while the group was rebalancing may have opened again what is somebody else's now."""
        if not self.consumer.assignment():
            await asyncio.to_thread(self._partitions.close)


def serve(settings: Settings) -> None:
    """Run the stages named by ``settings.stages`` (all of them if it is empty) until SIGTERM.

    Raises:
        Misconfigured: a stage has no such name.
        Unavailable: broker or key door do not answer.
    """
    for noisy in ("faust", "mode", "aiokafka"):
        # Their warnings show keys and values of messages.
        logging.getLogger(noisy).setLevel(logging.ERROR)
    stages = choose_stages(settings.stages)
    facts = FactsReader(settings)
    with RemoteKeyDoor(settings.socket_path, settings.token()) as door, KafkaLogWriter(settings) as writer:
        detector = DetectorPool(settings) if "redact" in stages else None
        try:
            facts.catch_up()
            facts.follow()
            asyncio.run(work(settings, Partitions(settings, stages, Sealer(door), facts.state, detector, writer)))
        finally:
            facts.close()
            if detector is not None:
                detector.close()


def choose_stages(names: str) -> Stages:
    """The stages of a list with commas; all of them if it is empty.

    Raises:
        Misconfigured: a stage has no such name.
    """
    chosen = [name for name in names.replace(" ", "").split(",") if name]
    if not set(chosen) <= set(STAGES):
        raise Misconfigured(
            "EBBTIDE_STAGES names a stage that does not exist", try_this=f"use some of {', '.join(STAGES)}"
        )
    return {name: stage for name, stage in STAGES.items() if not chosen or name in chosen}


async def work(settings: Settings, partitions: Partitions) -> None:
    """Process what comes until SIGTERM; whatever goes wrong ends the process with `FAULT`."""
    app = Processors(settings, partitions)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    app.finalize()
    await app.start()
    ticking = asyncio.create_task(_tick(settings, app))
    log.info("processors run: %s", ", ".join(partitions.stages))
    try:
        # Faust marks itself crashed when it cannot seek or fetch any more, and otherwise goes on doing nothing.
        if (await app.wait(stopping.wait())).stopped:
            _end("Faust", app.crash_reason)
    finally:
        ticking.cancel()
        await app.stop()
        await asyncio.to_thread(partitions.close)


async def _tick(settings: Settings, app: Processors) -> None:
    """Write receipt time to every owned partition, so that a replay of the log closes the same windows."""
    with KafkaLogWriter(settings) as writer:
        while True:
            try:
                if ticks := [_tick_record(number, clock_ms()) for number in app.owned_ticks()]:
                    await asyncio.to_thread(writer.write, ticks)
            except Exception as error:
                log.warning("no tick was written (%s); the next one makes up for it", type(error).__name__)
            await asyncio.sleep(settings.tick_s)


def _tick_record(partition: int, now_ms: int) -> OutRecord:
    stamped = headers(event=random_id(), kind="tick", source="ticker", time_ms=now_ms, tenant=None)
    return OutRecord(TICKS.name, b"", encode(TickRecord(tick_ms=now_ms)), tuple(stamped), partition)


def _end(what: str, error: BaseException | None) -> NoReturn:
    """End the process at once, so that nothing is acknowledged; whoever supervises it starts it again."""
    # The message is left out: it may repeat personal data.
    log.critical("%s failed (%s at %s); it is started again", what, type(error).__name__, _place(error))
    os._exit(FAULT)


def _place(error: BaseException | None) -> str:
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "an unknown place"  # noqa: PTH119
