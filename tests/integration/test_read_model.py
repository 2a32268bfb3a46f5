"""The projector, rebuild, status and tail on the real broker."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import Engine

from ebbtide_governance.commands import rebuild, tail
from ebbtide_governance.commands.lag import read_lag
from ebbtide_governance.commands.projector import kafka_projector
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.tables.writing import ReadModelWriter
from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import KafkaLogWriter, create_topics
from ebbtide_platform.adapters.kafka_connection import client_config
from ebbtide_platform.errors import InvalidInput, Unavailable
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.settings import Settings
from support.governed_log import all_records, governed_log
from support.read_model import dump, fresh_read_model

pytestmark = pytest.mark.broker

DEADLINE_S = 30.0


@pytest.fixture
def engine(broker_settings: Settings) -> Iterator[Engine]:
    with fresh_read_model(broker_settings.data_dir) as engine:
        yield engine


def _publish(settings: Settings, *, curated_of: tuple[str, ...] = ("acme", "globex")) -> None:
    create_topics(settings, [topics.curated(tenant) for tenant in curated_of])
    wanted = {topic.name for topic in (*topics.SHARED, *map(topics.curated, curated_of))}
    with KafkaLogWriter(settings) as writer:
        writer.write(
            [
                OutRecord(record.topic, record.key or b"", record.value or b"", record.headers, record.partition)
                for record in all_records(governed_log())
                if record.topic in wanted
            ]
        )


def _project(settings: Settings, engine: Engine) -> None:
    kafka_projector(settings, ReadModelWriter(engine)).run_to_end(lambda done, total: None)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def test_a_rebuild_equals_what_grew_and_says_how_much_it_folded(
    broker_settings: Settings, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    _publish(broker_settings)
    _project(broker_settings, engine)
    grown = dump(engine)
    assert rebuild.run(argparse.Namespace(json=True), broker_settings) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == 9
    assert dump(engine) == grown
    assert ReadModel(engine).status(None).account.balanced


def test_a_projector_notices_a_new_tenants_topic_while_it_runs(broker_settings: Settings, engine: Engine) -> None:
    model, stop = ReadModel(engine), threading.Event()
    projector = kafka_projector(broker_settings, ReadModelWriter(engine))
    thread = threading.Thread(target=projector.run, args=(stop.is_set,))
    thread.start()
    try:
        _publish(broker_settings, curated_of=("acme",))
        _await(lambda: "acme" in model.status(None).samples)
        _publish(broker_settings, curated_of=("acme", "globex"))
        _await(lambda: "globex" in model.status(None).samples)
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    assert model.status(None).account.trajectories_in == 9


def test_lag_is_what_a_stage_has_not_acknowledged(broker_settings: Settings, engine: Engine) -> None:
    _publish(broker_settings)
    positions = ReadModel(engine).positions
    before = read_lag(broker_settings, positions())
    written = len([record for record in all_records(governed_log()) if record.topic == topics.STEPS.name])
    assert before["redact"] == written
    assert before["projector"] == len(all_records(governed_log()))
    name = broker_settings.topic(topics.STEPS.name)
    consumer = Consumer(client_config(broker_settings, **{"group.id": broker_settings.topic("ebbtide-redact")}))
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    consumer.close()
    _project(broker_settings, engine)
    after = read_lag(broker_settings, positions())
    assert (after["redact"], after["projector"]) == (written - 1, 0)


def test_a_broker_that_is_away_gives_no_lag(broker_settings: Settings, engine: Engine) -> None:
    with pytest.raises(Unavailable):
        read_lag(replace(broker_settings, bootstrap_servers="127.0.0.1:1"), {})


def test_tail_prints_a_line_for_each_record_of_the_topics_that_are_asked_for(
    broker_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    _publish(broker_settings)
    asked = argparse.Namespace(
        topics=["decisions", "curated"], from_beginning=True, until_end=True, tenant="globex", json=True
    )
    assert tail.run(asked, broker_settings) == 0
    seen = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(record["kind"] for record in seen) == ["decision", "sample"]
    assert {record["tenant"] for record in seen} == {"globex"}


def test_tail_refuses_a_topic_that_there_is_not(broker_settings: Settings) -> None:
    with pytest.raises(InvalidInput, match="none of the topics"):
        tail.run(argparse.Namespace(topics=["gossip"]), broker_settings)
