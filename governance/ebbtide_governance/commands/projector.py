"""The projector: follows the log and keeps the read model up to date, from wherever it was."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka.admin import AdminClient

from ebbtide_governance.projection import FOLLOWED
from ebbtide_governance.tables.database import connect, migrate
from ebbtide_governance.tables.writing import Moved, Positions, ReadModelWriter
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.adapters.kafka_connection import client_config, list_topics
from ebbtide_platform.errors import InvalidInput
from ebbtide_platform.ports import InRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import Topic, curated, tenant_of

log = logging.getLogger("ebbtide.projector")

POLL_S = 0.5
NEW_TENANTS_S = 1.0
"""How long a new tenant's topic may go unnoticed: its samples are only then seen to be there."""


class Reader(Protocol):
    """What the projector asks of a follower of the log."""

    def poll(self, timeout_s: float) -> list[InRecord]: ...
    def positions(self) -> dict[tuple[str, int], int]: ...
    def end_offsets(self) -> dict[tuple[str, int], int]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Projector:
    """Folds what ``follow`` reads into the tables; any number may run, one at a time gets its batch in."""

    def __init__(
        self,
        writer: ReadModelWriter,
        follow: Callable[[Sequence[Topic], Positions], Reader],
        curated_topics: Callable[[], list[Topic]],
    ) -> None:
        self._writer = writer
        self._follow = follow
        self._curated_topics = curated_topics

    def run(self, stopped: Callable[[], bool]) -> None:
        """Fold until ``stopped``, with topics of new tenants as they come.

        Raises:
            Unavailable: the broker does not answer; whoever supervises starts this again.
        """
        while not stopped():
            self._fold(stopped)

    def run_to_end(self, advance: Callable[[int, int], None]) -> None:
        """Fold up to the ends of this moment; ``advance`` hears (offsets done, offsets in all) as it goes."""
        with self._follow(self._topics(), self._writer.positions()) as reader:
            ends = reader.end_offsets()

        def reached() -> bool:
            stored = self._writer.positions()
            done = {place: min(stored.get(place, 0), end) for place, end in ends.items()}
            advance(sum(done.values()), sum(ends.values()))
            return done == ends

        while not reached():
            self._fold(reached)

    def _fold(self, stopped: Callable[[], bool]) -> None:
        """Fold until stopped, until the topics change, or until somebody else has moved the positions."""
        topics = self._topics()
        stored = self._writer.positions()
        looked = time.monotonic()
        with self._follow(topics, stored) as reader:
            while not stopped():
                records = reader.poll(POLL_S)
                reached = {**stored, **reader.positions()}
                try:
                    if reached != stored:
                        self._writer.apply(records, stored, reached)
                        stored = reached
                    elif self._writer.positions() != stored:
                        raise Moved
                except Moved:
                    log.info("the read model was moved by somebody else; going on from there")
                    return
                if time.monotonic() - looked > NEW_TENANTS_S:
                    looked = time.monotonic()
                    if self._topics() != topics:
                        return

    def _topics(self) -> list[Topic]:
        return [*FOLLOWED, *self._curated_topics()]


def kafka_projector(settings: Settings, writer: ReadModelWriter) -> Projector:
    """A projector over this deployment's broker."""
    admin = AdminClient(client_config(settings))
    return Projector(
        writer,
        lambda topics, start: Follower(settings, topics, start),
        lambda: curated_topics(settings, admin),
    )


def serve(settings: Settings) -> None:
    """Migrate the read model, then follow the log until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    engine = connect(settings)
    try:
        migrate(engine)
        kafka_projector(settings, ReadModelWriter(engine)).run(stop.is_set)
    finally:
        engine.dispose()


def curated_topics(settings: Settings, admin: AdminClient) -> list[Topic]:
    """The curated topics there are, in the order of their tenants. Raises `Unavailable`."""
    topics = []
    for deployed in sorted(list_topics(admin, settings).topics):
        try:
            topics.append(curated(tenant_of(deployed.removeprefix(settings.topic_prefix))))
        except InvalidInput:
            continue
    return topics
