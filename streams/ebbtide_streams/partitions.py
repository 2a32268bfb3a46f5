"""The stages of one process over the partitions it owns: opens, runs and closes their runners."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.detector import Detector
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.adapters.stage.sqlite import SqliteStageStore
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import InRecord, LogWriter
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_streams.context import StageContext, clock_ms
from ebbtide_streams.group import GroupStage
from ebbtide_streams.judge import JudgeStage
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.redact import RedactStage
from ebbtide_streams.route import RouteStage
from ebbtide_streams.runner import StageRunner
from ebbtide_streams.settle import SettleStage
from ebbtide_streams.state.paths import segments_path, state_path

log = logging.getLogger(__name__)

OWNER_WAIT_S = 60.0
"""How long a new owner waits for the old one to let go of a partition's state."""
OWNER_RETRY_S = 0.2

Stages = Mapping[str, type[RouteStage | RedactStage | SettleStage | JudgeStage | GroupStage]]
STAGES: Stages = {stage.name: stage for stage in (RouteStage, RedactStage, SettleStage, JudgeStage, GroupStage)}
"""Every stage by name, in the way of an event."""


class Partitions:
    """Runners by stage and partition. `own` and `close` take turns with `run`."""

    def __init__(
        self,
        settings: Settings,
        stages: Stages,
        sealer: Sealer,
        facts: FactsState,
        detector: Detector | None,
        writer: LogWriter,
    ) -> None:
        self.stages = stages
        self._settings = settings
        self._sealer = sealer
        self._facts = facts
        self._detector = detector
        self._writer = writer
        self._lock = Lock()
        self._generation = 0
        self._runners: dict[tuple[str, int], StageRunner] = {}
        self._turns: dict[tuple[str, int], Lock] = {}
        self._segments: dict[tuple[str, int], SqliteSegmentStore] = {}

    def own(self, owned: Iterable[tuple[str, int]], *, generation: int = 0) -> dict[tuple[str, int], int]:
        """Have exactly these (stage, partition) open, and give the next offset by (topic, partition).

        A topic that several stages read starts where the hindmost of them stands; the others skip. ``generation``
        is the group's number for this assignment.

        Raises:
            Unavailable: another process does not let go of the state, or what was pending cannot be delivered.
        """
        wanted = list(owned)
        with self._lock:
            # Before anything opens: what was read under an older assignment must not reach a runner of this one.
            self._generation = generation
            self._close_all_but(wanted)
            for where in wanted:
                if where not in self._runners:
                    self._runners[where] = self._start(*where)
                    self._turns.setdefault(where, Lock())
            positions: dict[tuple[str, int], int] = {}
            for name, partition in wanted:
                for topic in self.stages[name].inputs:
                    at = self._runners[name, partition].position(topic.name)
                    positions[topic.name, partition] = min(at, positions.get((topic.name, partition), at))
            return positions

    def run(self, stage: str, records: Sequence[InRecord], *, generation: int = 0) -> None:
        """Process a batch of one stage, partition by partition.

        Records of a partition that was taken away meanwhile are left to its new owner, which starts where the
        stage's state stands and not where they were acknowledged. Records of an older ``generation`` are left
        too: what stood before them may have been, and comes again.
        """
        by_partition: dict[int, list[InRecord]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for partition, of_partition in by_partition.items():
            with self._lock:
                turn = self._turns.setdefault((stage, partition), Lock())
            with turn:
                runner = self._runners.get((stage, partition))
                if runner is not None and generation >= self._generation:
                    runner.run(of_partition)

    def close(self) -> None:
        """Close everything, each runner after the batch it is in the middle of."""
        with self._lock:
            self._close_all_but(())

    def _close_all_but(self, kept: Sequence[tuple[str, int]]) -> None:
        for where in [where for where in self._runners if where not in kept]:
            with self._turns[where]:
                self._runners.pop(where).close()
        in_use = {partition for _, partition in self._runners}
        for kind, partition in [of for of in self._segments if of[1] not in in_use]:
            self._segments.pop((kind, partition)).close()

    def _start(self, name: str, partition: int) -> StageRunner:
        store = _owned(lambda: SqliteStageStore(state_path(self._settings, name, partition)))
        context = StageContext(
            settings=self._settings,
            sealer=self._sealer,
            facts=lambda: self._facts,
            raw_segments=self._segment_store("raw", partition),
            rendered_segments=self._segment_store("rendered", partition),
            pool=self._detector,
        )
        try:
            return StageRunner(
                self.stages[name](partition, context),
                store,
                self._writer,
                Quarantine(name, self._sealer, clock_ms),
                partitions=self._settings.partitions,
            )
        except BaseException:
            store.close()
            raise

    def _segment_store(self, kind: str, partition: int) -> SqliteSegmentStore:
        if (kind, partition) not in self._segments:
            path = segments_path(self._settings, kind, partition)
            if kind == "raw" and not path.exists():
                _forget(state_path(self._settings, RedactStage.name, partition))
            self._segments[kind, partition] = SqliteSegmentStore(path)
        return self._segments[kind, partition]


def _forget(state: Path) -> None:
    """Let redaction begin again at the log's beginning, which makes the segments that are gone once more."""
    if state.exists():
        log.warning("segments are gone; %s begins again, and what they held is read from the log", state.stem)
    for suffix in ("", "-wal", "-shm"):
        state.with_name(state.name + suffix).unlink(missing_ok=True)


def _owned(make: Callable[[], SqliteStageStore]) -> SqliteStageStore:
    """The store once its old owner has let go."""
    deadline = time.monotonic() + OWNER_WAIT_S
    while True:
        with contextlib.suppress(Unavailable):
            return make()
        if time.monotonic() > deadline:
            raise Unavailable(
                "another process keeps the state of this partition", try_this="end it, or wait for its end"
            )
        time.sleep(OWNER_RETRY_S)
