"""The doors on the real broker: events arrive sealed, and only what was committed is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka import Producer

from ebbtide_platform import codec
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter, client_config
from ebbtide_platform.doors.app import Doors, create_app
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.curated import CuratedDoor, Follow
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ALIASES, STEPS, curated, partition_of
from ebbtide_schemas.records import AliasRecord, CuratedRecord, StepRecord
from ebbtide_schemas.samples import Sample
from support.asgi import AppClient
from support.atdp import encoded, step
from support.curated import curated_sample
from support.doors import KnownNewest

pytestmark = pytest.mark.broker
DRAIN_S = 30.0
PLANTED = b"Ann-Miller-4711"


def _follow(settings: Settings) -> Follow:
    return lambda topics, start: Follower(settings, topics, start)


@contextmanager
def _transactional(settings: Settings) -> Iterator[Producer]:
    producer = Producer(client_config(settings, **{"transactional.id": settings.topic("test-curator")}))
    producer.init_transactions()
    yield producer
    producer.flush()


def _write(producer: Producer, settings: Settings, records: Sequence[CuratedRecord], *, commit: bool) -> None:
    producer.begin_transaction()
    for record in records:
        producer.produce(settings.topic(curated("acme").name), codec.encode(record), b"key", partition=0)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def test_an_event_arrives_sealed_and_partitioned_by_its_trajectory(broker_settings: Settings) -> None:
    door = MemoryKeyDoor("acme")
    key = door.create_api_key("acme", "test", ["ingest"])
    folder = broker_settings.data_dir / "outbox"
    with KafkaLogWriter(broker_settings) as writer, Outbox(folder, writer, max_bytes=10_000_000) as outbox:
        doors = Doors(
            settings=broker_settings,
            door=door,
            authenticator=Authenticator(door),
            sealer=Sealer(door),
            outbox=outbox,
            follow=_follow(broker_settings),
            index=KnownNewest(),
        )
        observation = {"segments": [{"role": "user", "content": PLANTED.decode()}]}
        answer = AppClient(create_app(doors)).request(
            "POST",
            "/v1/events",
            headers={"authorization": f"Bearer {key}"},
            content=encoded([step(id=f"s-{number}", ordinal=number, observation=observation) for number in range(5)]),
        )
        assert answer.status_code == 202
        assert outbox.wait_drained(DRAIN_S)
    with Follower(broker_settings, [STEPS, ALIASES], "beginning") as follower:
        records = list(follower.read_to_end())
    steps = [record for record in records if record.topic == STEPS.name]
    headers = [codec.decode(record.value, StepRecord).header for record in steps]
    assert [header.ordinal for header in headers] == list(range(5))
    assert {record.partition for record in steps} == {
        partition_of(headers[0].trajectory.encode(), broker_settings.partitions)
    }
    aliases = [codec.decode(record.value, AliasRecord) for record in records if record.topic == ALIASES.name]
    assert {alias.step for alias in aliases} == {header.event for header in headers}
    assert not any(PLANTED in (record.value or b"") for record in records)


def test_aborted_samples_are_invisible_and_a_reader_comes_to_the_end_behind_them(broker_settings: Settings) -> None:
    door = MemoryKeyDoor("acme")
    sealer = Sealer(door)
    reading = CuratedDoor(_follow(broker_settings), sealer, KnownNewest())
    a, b, c = (curated_sample(door, sealer, name) for name in "abc")
    with _transactional(broker_settings) as producer:
        _write(producer, broker_settings, [a], commit=True)
        _write(producer, broker_settings, [b], commit=False)
        cut = reading.cut("acme")
        first = reading.page("acme", "", cut, 10, 0)
        assert (_names(first.lines), first.at_end) == (["a"], True)
        _write(producer, broker_settings, [c], commit=True)
    rest = reading.page("acme", first.cursor, "", 10, 0)
    assert (_names(rest.lines), rest.at_end) == (["c"], True)
    resumed = reading.page("acme", _samples(first.lines)[0].cursor, "", 10, 0)
    assert _names(resumed.lines) == ["c"]
    reading.close()


def _samples(lines: Sequence[bytes]) -> list[Sample]:
    return [msgspec.json.decode(line, type=Sample) for line in lines]


def _names(lines: Sequence[bytes]) -> list[str]:
    return [sample.id for sample in _samples(lines)]
