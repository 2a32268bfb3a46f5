"""Reads the facts to their end before any work is taken, and goes on reading while there is work."""

from __future__ import annotations

import logging
import os
import threading

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.codec import decode
from ebbtide_platform.errors import FAULT, Poison
from ebbtide_platform.ports import InRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FACTS
from ebbtide_schemas.records import FactRecord

log = logging.getLogger(__name__)

POLL_S = 0.5


class FactsReader:
    """Keeps a `FactsState` at the newest facts, by hand (`catch_up`) or from a thread of its own (`follow`)."""

    def __init__(self, settings: Settings) -> None:
        self.state = FactsState()
        self._follower = Follower(settings, [FACTS])
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def catch_up(self) -> None:
        """Take in every fact that stands on the log now.

        Raises:
            Unavailable: the broker does not answer.
        """
        for record in self._follower.read_to_end():
            self._apply(record)

    def follow(self) -> None:
        """Go on in a thread; should it fail, the process ends at once."""
        self._thread = threading.Thread(target=self._run, name="facts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and the connection."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._follower.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for record in self._follower.poll(POLL_S):
                    self._apply(record)
        except Exception as error:
            log.critical("facts can no longer be read (%s)", type(error).__name__)
            # Whoever decides on facts that have stopped coming must not go on deciding.
            os._exit(FAULT)

    def _apply(self, record: InRecord) -> None:
        try:
            self.state.apply(record.offset, decode(record.value, FactRecord))
        except Poison as poison:
            log.error("fact at offset %d is passed over: %s", record.offset, poison.reason)
