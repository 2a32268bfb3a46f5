"""State on disk can be lost: the log has it all, and who comes after never hears a number twice."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FINDINGS, QUARANTINE, ROUTED, STEPS, TRAJECTORIES
from ebbtide_schemas.records import QuarantineRecord
from ebbtide_streams.app import choose_stages
from ebbtide_streams.partitions import Partitions
from ebbtide_streams.settle import SettleStage
from support.stages import Pipeline

REDACT, ROUTE = ("redact", 0), ("route", 0)


def _partitions(folder: Path, log: MemoryLog, partitions: int = 1) -> Partitions:
    settings = Settings(data_dir=folder, partitions=partitions)
    sealer = Sealer(MemoryKeyDoor("acme"))
    return Partitions(settings, choose_stages("route,redact"), sealer, FactsState(), PatternDetector(), log)


def test_redaction_whose_segments_are_gone_begins_again_at_the_logs_beginning(tmp_path: Path) -> None:
    partitions = _partitions(tmp_path, MemoryLog(partitions=1))
    partitions.own([ROUTE, REDACT])
    partitions.run("redact", [InRecord(STEPS.name, 0, number, b"k", None) for number in range(3)])
    partitions.close()
    assert partitions.own([ROUTE, REDACT])[STEPS.name, 0] == 3
    partitions.close()
    shutil.rmtree(tmp_path / "segments")
    assert partitions.own([ROUTE, REDACT])[STEPS.name, 0] == 0
    partitions.close()


def test_settlement_that_lost_its_state_goes_on_counting_where_the_log_stands() -> None:
    pipeline = Pipeline("acme")
    step = pipeline.header("a", end="terminated")
    pipeline.feed(FINDINGS.name, step)
    pipeline.reward("r0")
    pipeline.tick(20)
    pipeline.reward("r1")
    pipeline.tick(30)
    before = list(pipeline.settled)
    assert [settled.revision for settled in before] == [0, 1]

    pipeline.stores[SettleStage] = MemoryStageStore()
    pipeline.start()
    offsets = count(10**6)
    for settled in before:
        record = InRecord(TRAJECTORIES.name, 0, next(offsets), None, encode(settled))
        assert pipeline.workers[SettleStage].feed(record) == []
    pipeline.feed(FINDINGS.name, step)
    for name in ("r0", "r1"):
        pipeline.reward(name)
    pipeline.tick(40)
    assert pipeline.settled == before
    pipeline.reward("r2")
    pipeline.tick(50)
    assert pipeline.settled[-1].revision == 2
    assert pipeline.decisions[-1].settled.revision == 2


def test_a_record_without_a_key_or_in_anothers_partition_is_set_aside(tmp_path: Path) -> None:
    log = MemoryLog(partitions=2)
    partitions = _partitions(tmp_path, log, partitions=2)
    partitions.own([REDACT])
    keys = [None, *(b"%d" % number for number in range(8))]
    partitions.run("redact", [InRecord(STEPS.name, 0, number, key, b"?") for number, key in enumerate(keys)])
    partitions.close()
    reasons = [decode(record.value, QuarantineRecord).reason for record in log.records(QUARANTINE)]
    assert set(reasons) == {"null_key", "misplaced", "undecodable"}
    assert len(reasons) == len(keys)


def test_every_topic_that_settlement_reads_is_partitioned_alike() -> None:
    assert {topic.key for topic in (FINDINGS, ROUTED, TRAJECTORIES)} == {"trajectory"}
