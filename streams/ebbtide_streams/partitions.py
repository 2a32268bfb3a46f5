"""The stages of one process over the partitions it owns: opens, runs and closes their runners."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.detector import Detector
from ebbtide_platform.adapters.segments_sqlite import SqliteSegmentStore
from ebbtide_platform.adapters.stage_sqlite import SqliteStageStore
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import InRecord, LogWriter
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_streams.context import StageContext, clock_ms
from ebbtide_streams.group import GroupStage
from ebbtide_streams.judge import JudgeStage
from ebbtide_streams.paths import segments_path, state_path
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.redact import RedactStage
from ebbtide_streams.route import RouteStage
from ebbtide_streams.runner import StageRunner
from ebbtide_streams.settle import SettleStage

OWNER_WAIT_S = 60.0
"""How long a new owner waits for the old one to let go of a partition's state."""
OWNER_RETRY_S = 0.2

STAGES: Mapping[str, type[RouteStage | RedactStage | SettleStage | JudgeStage | GroupStage]] = {
    stage.name: stage for stage in (RouteStage, RedactStage, SettleStage, JudgeStage, GroupStage)
}
"""Every stage by name, in the way of an event."""


class Partitions:
    """Runners by stage and partition. `open` and `close` take turns with `run`."""

    def __init__(
        self, settings: Settings, sealer: Sealer, facts: FactsState, detector: Detector | None, writer: LogWriter
    ) -> None:
        self._settings = settings
        self._sealer = sealer
        self._facts = facts
        self._detector = detector
        self._writer = writer
        self._lock = Lock()
        self._runners: dict[tuple[str, int], StageRunner] = {}
        self._turns: dict[tuple[str, int], Lock] = {}
        self._segments: dict[tuple[str, int], SqliteSegmentStore] = {}

    def open(self, owned: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Open every (stage, partition) that is not open, and give the next offset by (topic, partition).

        A topic that several stages read starts where the hindmost of them stands; the others skip.

        Raises:
            Unavailable: another process does not let go of the state, or what was pending cannot be delivered.
        """
        positions: dict[tuple[str, int], int] = {}
        for name, partition in owned:
            runner = self._runner(name, partition)
            for topic in STAGES[name].inputs:
                at = runner.position(topic.name)
                where = (topic.name, partition)
                positions[where] = min(at, positions.get(where, at))
        return positions

    def run(self, stage: str, records: Sequence[InRecord]) -> None:
        """Process a batch of one stage, partition by partition."""
        by_partition: dict[int, list[InRecord]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        for partition, of_partition in by_partition.items():
            runner = self._runner(stage, partition)
            with self._turns[stage, partition]:
                runner.run(of_partition)

    def close(self, kept: Iterable[tuple[str, int]] = ()) -> None:
        """Close what is not in ``kept``, each after the batch it is in the middle of."""
        keep = set(kept)
        with self._lock:
            for where in [where for where in self._runners if where not in keep]:
                with self._turns[where]:
                    self._runners.pop(where).close()
            if not keep:
                for store in self._segments.values():
                    store.close()
                self._segments.clear()

    def _runner(self, name: str, partition: int) -> StageRunner:
        with self._lock:
            runner = self._runners.get((name, partition))
            if runner is None:
                runner = self._start(name, partition)
                self._runners[name, partition] = runner
                self._turns.setdefault((name, partition), Lock())
            return runner

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
                STAGES[name](partition, context), store, self._writer, Quarantine(name, self._sealer, clock_ms)
            )
        except BaseException:
            store.close()
            raise

    def _segment_store(self, kind: str, partition: int) -> SqliteSegmentStore:
        if (kind, partition) not in self._segments:
            self._segments[kind, partition] = SqliteSegmentStore(segments_path(self._settings, kind, partition))
        return self._segments[kind, partition]


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
