"""What settlement's decision costs, and what the runner's promises cost: state, offsets and outputs in one write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from bench.timing import Row, rate, rows
from ebbtide_governance.facts import FactsState
from ebbtide_governance.settlement import plan
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.sqlite import SqliteStageStore
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.sealing.identity import uuid8
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import REWARDS, ROUTED
from ebbtide_schemas.records import RewardRecord, StepHeader
from ebbtide_streams.context import StageContext, clock_ms
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.route import RouteStage
from ebbtide_streams.runner import StageRunner
from support.trajectories import FAR_MS, POLICY, TRAJECTORY, end, reward, step

STEPS = 8
BATCH = 200
_KEY = b"k" * 32


def bench() -> list[Row]:
    """Plan a trajectory, and route rewards."""
    return [*_settlement(), *_runner()]


def _settlement() -> list[Row]:
    steps = [step(f"s{i}", i, None if i == 0 else f"s{i - 1}") for i in range(STEPS)]
    steps.append(end("end", STEPS, f"s{STEPS - 1}"))
    rewards = [reward("r")]
    stored = [msgspec.msgpack.encode(header) for header in steps]
    decoder = msgspec.msgpack.Decoder(StepHeader)
    works: dict[str, Callable[[], object]] = {
        "read its headers": lambda: [decoder.decode(raw) for raw in stored],
        "plan": lambda: plan(TRAJECTORY, steps, rewards, POLICY, now_ms=FAR_MS),
    }
    name = f"settle {STEPS} steps"
    return rows(name, "trajectories", [(what, rate(work)) for what, work in works.items()])


def _runner() -> list[Row]:
    """Rewards through the route stage, in batches; the plain loop keeps nothing and cannot be killed."""
    batches = _batches()
    log = MemoryLog()

    def loop() -> None:
        outputs = []
        for record in next(batches):
            found = decode(record.value, RewardRecord)
            outputs.append(OutRecord(ROUTED.name, found.event.encode(), encode(found)))
        log.write(outputs)

    with tempfile.TemporaryDirectory() as folder:
        sealer = Sealer(MemoryKeyDoor("acme"))
        context = StageContext(
            settings=Settings(),
            sealer=sealer,
            facts=FactsState,
            raw_segments=MemorySegmentStore(),
            rendered_segments=MemorySegmentStore(),
        )
        store = SqliteStageStore(Path(folder) / "route.sqlite")
        runner = StageRunner(RouteStage(0, context), store, MemoryLog(), Quarantine("route", sealer, clock_ms))
        try:
            rates = [
                ("plain loop", rate(loop, amount=BATCH)),
                ("runner over SQLite", rate(lambda: runner.run(next(batches)), amount=BATCH)),
            ]
        finally:
            runner.close()
    return rows(f"route, {BATCH} at once", "records", rates)


def _batches() -> Iterator[list[InRecord]]:
    """New rewards for ever, each naming its trajectory."""
    offsets = count()
    while True:
        yield [
            InRecord(REWARDS.name, 0, offset, None, _reward(offset)) for offset in (next(offsets) for _ in range(BATCH))
        ]


def _reward(number: int) -> bytes:
    name = uuid8(_KEY, "trajectory", str(number))
    return encode(
        RewardRecord(
            event=uuid8(_KEY, "reward", str(number)),
            tenant="acme",
            alias=name,
            trajectory=name,
            value=1.0,
            name="resolved",
            source="human",
            received_ms=1,
            digest="0" * 64,
        )
    )
