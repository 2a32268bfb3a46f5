"""The curator on the real broker: kill it anywhere, and nothing is lost and nothing comes twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter, client_config
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.codec import decode_any, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings, child_environment
from ebbtide_platform.topics import DECISIONS, FACTS, QUARANTINE, curated, partition_of
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    DecisionRecord,
    EffectiveReward,
    FactRecord,
    QuarantineRecord,
    RenderedRef,
    SealedChunk,
    SettledRecord,
    Verdict,
    WithdrawalRecord,
)
from ebbtide_streams.curator import Curator
from ebbtide_streams.facts_reader import FactsReader
from ebbtide_streams.state.paths import segments_path
from support import killed_curator
from support.waiting import wait_until

pytestmark = pytest.mark.broker

TENANT = "acme"
COUNT = 30
DEADLINE_S = 60.0
REWARD = EffectiveReward(event="r", name="reward", value=1.0, source="human", event_ms=1, late=False)


@pytest.fixture
def settings(broker_settings: Settings) -> Settings:
    """With the shortest session that the broker allows, so that a killed curator is soon forgotten."""
    return replace(broker_settings, session_timeout_s=6.0)


def _name(number: int) -> str:
    return f"trajectory-{number}"


def _decision(
    number: int,
    revision: int = 0,
    *,
    verdict: Verdict = "eligible",
    facts: int = 0,
    tenant: str = TENANT,
    segments: Sequence[str] = (),
) -> OutRecord:
    refs = tuple(RenderedRef(segment=name, role="assistant", trained=True) for name in segments)
    settled = SettledRecord(
        tenant=tenant,
        trajectory=_name(number),
        session=_name(number),
        revision=revision,
        supersedes=revision - 1 if revision else None,
        digest=f"{revision}",
        root="root",
        chains=(Chain(sample=f"sample-{number}", steps=("s",), segments=refs, rollout_weight=1.0),),
        rewards=(REWARD,),
        steps=1,
        subjects=(f"person-{number}",),
        subject_declared=True,
        end="terminated",
        agent="support",
        purpose="training",
    )
    decision = DecisionRecord(
        settled=settled, verdict=verdict, reasons=(), policy="default@1", facts_offset=facts, decided_ms=1
    )
    return OutRecord(DECISIONS.name, _name(number).encode(), encode(decision))


def _write(settings: Settings, *records: OutRecord) -> None:
    with KafkaLogWriter(settings) as writer:
        writer.write(records)


@contextmanager
def _curator(settings: Settings) -> Iterator[Curator]:
    facts = FactsReader(settings)
    made = Curator(settings, facts, Sealer(MemoryKeyDoor(TENANT)))
    try:
        yield made
    finally:
        made.close()
        facts.close()


def _curate(settings: Settings, count: int) -> None:
    """Let a new curator take ``count`` decisions."""
    taken = 0

    def enough() -> bool:
        nonlocal taken
        taken += curator.turn(0.1)
        return taken >= count

    with _curator(settings) as curator:
        wait_until(enough, f"{count} decisions are taken", DEADLINE_S)
        assert taken == count


def _standing(settings: Settings, tenant: str = TENANT) -> list[CuratedRecord | WithdrawalRecord]:
    with Follower(settings, [curated(tenant)]) as follower:
        records = [decode_any(record.value) for record in follower.read_to_end()]
    return [record for record in records if isinstance(record, CuratedRecord | WithdrawalRecord)]


def _samples(settings: Settings, tenant: str = TENANT) -> list[str]:
    return sorted(record.sample for record in _standing(settings, tenant))


def _expected(numbers: Sequence[int]) -> list[str]:
    return sorted(f"sample-{number}" for number in numbers)


def _uncommitted(settings: Settings) -> int:
    """How many records a reader sees that does not ask whether they were committed."""
    options: dict[str, Any] = {
        "group.id": settings.topic("uncommitted"),
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
    }
    consumer = Consumer(client_config(settings, **options))
    try:
        topic = settings.topic(curated(TENANT).name)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(settings.partitions)])
        ended, found = 0, 0
        while ended < settings.partitions:
            message = consumer.poll(1.0)
            if message is not None:
                ended += message.error() is not None
                found += message.error() is None
        return found
    finally:
        consumer.close()


def _die(settings: Settings, point: str) -> None:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    program = Path(killed_curator.__file__)
    died = subprocess.run([sys.executable, str(program), point], env=child_environment(settings), timeout=DEADLINE_S)
    assert died.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", killed_curator.POINTS)
def test_a_kill_anywhere_in_a_transaction_loses_nothing_and_repeats_nothing(settings: Settings, point: str) -> None:
    _write(settings, *map(_decision, range(COUNT)))
    _die(settings, point)
    before = len(_standing(settings)) if point == "committed" else 0
    assert before > 0 or _samples(settings) == []
    _curate(settings, COUNT - before)
    assert _samples(settings) == _expected(range(COUNT))


def test_what_an_aborted_transaction_wrote_is_there_and_invisible(settings: Settings) -> None:
    _write(settings, *map(_decision, range(COUNT)))
    _die(settings, "produced")
    written = _uncommitted(settings)
    assert written > 0
    assert _standing(settings) == []
    _curate(settings, COUNT)
    assert _uncommitted(settings) == written + COUNT
    assert _samples(settings) == _expected(range(COUNT))


def test_a_lost_index_is_rebuilt_from_the_topic(settings: Settings) -> None:
    _write(settings, *map(_decision, range(COUNT)))
    _curate(settings, COUNT)
    shutil.rmtree(settings.data_dir / "state")
    _write(settings, *map(_decision, range(COUNT + 1)))
    _curate(settings, COUNT + 1)
    assert _samples(settings) == _expected(range(COUNT + 1))


def test_a_repeated_decision_writes_nothing(settings: Settings) -> None:
    _write(settings, *(_decision(number) for _ in range(3) for number in range(COUNT)))
    _curate(settings, 3 * COUNT)
    assert _samples(settings) == _expected(range(COUNT))


def test_a_curator_that_was_replaced_cannot_write_any_more(settings: Settings) -> None:
    """As one that was paused for longer than its session: its successor has fenced it."""
    _write(settings, replace(_decision(0), partition=0))
    with _curator(settings) as first:
        wait_until(lambda: first.turn(0.1) == 1, "it has taken a decision", DEADLINE_S)
        successor = Producer(client_config(settings, **{"transactional.id": settings.topic("ebbtide.curator-0")}))
        successor.init_transactions(DEADLINE_S)
        _write(settings, *(replace(_decision(number), partition=0) for number in range(COUNT)))
        with pytest.raises(KafkaException) as fenced:
            wait_until(lambda: first.turn(0.1) > 0, "it has tried", DEADLINE_S)
    assert fenced.value.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    assert _samples(settings) == _expected([0])
    _curate(settings, COUNT)
    assert _samples(settings) == _expected(range(COUNT))


def test_a_sample_stands_in_the_partition_of_its_decision_with_the_sealed_bytes_as_they_were(
    settings: Settings,
) -> None:
    chunk = SealedChunk(
        segment="x",
        tenant=TENANT,
        trajectory=_name(1),
        subjects=(),
        seal_class="redacted",
        first_event="e",
        nonce=b"n" * 12,
        data=b"sealed",
    )
    partition = partition_of(_name(1).encode(), settings.partitions)
    store = SqliteSegmentStore(segments_path(settings, "rendered", partition))
    store.put_chunks(_name(1), "rendered:0", [chunk])
    store.close()
    _write(settings, _decision(1, segments=["x"]))
    _curate(settings, 1)
    (record,) = _standing(settings)
    assert isinstance(record, CuratedRecord)
    assert record.sealed == (chunk,)
    assert (record.chain.sample, record.settled.chains) == ("sample-1", ())
    with Follower(settings, [curated(TENANT)]) as follower:
        assert [found.partition for found in follower.read_to_end()] == [partition]


def test_a_consent_withdrawn_after_the_judge_spoke_is_heard(settings: Settings) -> None:
    fact = FactRecord(
        kind="consent", tenant=TENANT, fact_ms=1, subject="person-1", purpose="training", state="withdrawn"
    )
    _write(settings, *map(_decision, range(3)))
    _curate(settings, 3)
    _write(settings, OutRecord(FACTS.name, b"person-1", encode(fact)))
    _write(settings, *(_decision(number, 1) for number in range(3)))
    _curate(settings, 3)
    newest = {record.sample: record for record in _standing(settings)}
    assert {sample for sample, record in newest.items() if isinstance(record, WithdrawalRecord)} == {"sample-1"}
    withdrawal = newest["sample-1"]
    assert isinstance(withdrawal, WithdrawalRecord)
    assert withdrawal.reasons == ("consent_withdrawn",)


def test_a_tenant_gets_its_topic_when_its_first_decision_comes(settings: Settings) -> None:
    _write(settings, _decision(0, tenant="zeta"), _decision(1))
    _curate(settings, 2)
    assert (_samples(settings, "zeta"), _samples(settings)) == (["sample-0"], ["sample-1"])


def test_what_is_no_decision_is_set_aside_and_the_partition_goes_on(settings: Settings) -> None:
    strange = [
        OutRecord(DECISIONS.name, b"k", None, partition=0),  # type: ignore[arg-type]
        OutRecord(DECISIONS.name, b"k", b"\xc1", partition=0),
        replace(_decision(2, tenant="No Tenant"), partition=0),
        replace(_decision(3, segments=["nowhere"]), partition=0),
    ]
    _write(settings, *strange, replace(_decision(1), partition=0))
    _curate(settings, len(strange) + 1)
    assert _samples(settings) == ["sample-1"]
    with Follower(settings, [QUARANTINE]) as follower:
        found = [
            msgspec.msgpack.decode(record.value or b"", type=QuarantineRecord) for record in follower.read_to_end()
        ]
    assert [record.reason for record in sorted(found, key=lambda record: record.offset)] == [
        "null_value",
        "undecodable",
        "invalid_tenant",
        "rendering_missing",
    ]


def test_what_somebody_else_wrote_on_a_curated_topic_does_not_stop_the_curator(settings: Settings) -> None:
    foreign = [OutRecord(curated(TENANT).name, b"k", value, partition=0) for value in (None, b"\xc1")]  # type: ignore[arg-type]
    _write(settings, *foreign, replace(_decision(1), partition=0))
    _curate(settings, 1)
    with Follower(settings, [curated(TENANT)]) as follower:
        assert len(list(follower.read_to_end())) == len(foreign) + 1
