"""``ebbtide replay`` with a real broker and a key door behind its socket."""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ebbtide_governance.commands import replay
from ebbtide_governance.commands.projector import kafka_projector
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.tables.writing import ReadModelWriter
from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.codec import encode
from ebbtide_platform.errors import Poison
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.keydoor.server import DoorServer
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Secret, Settings
from ebbtide_schemas.records import StepRecord
from ebbtide_streams.quarantine import Quarantine
from support.clock import Clock
from support.governed_log import step
from support.read_model import fresh_read_model

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(broker_settings: Settings) -> Iterator[Settings]:
    """A deployment whose log holds one step that the redact stage could not process."""
    token = secrets.token_hex(16)
    door = MemoryKeyDoor("acme")
    failed = InRecord(
        topics.STEPS.name,
        1,
        7,
        b"t",
        encode(StepRecord(header=step("acme", "t", 0))),
        (("ce_tenant", b"acme"), ("ce_id", b"t-s0")),
    )
    set_aside = Quarantine("redact", Sealer(door), Clock()).output(failed, Poison("redaction_failed"))
    with KafkaLogWriter(broker_settings) as writer:
        writer.write([set_aside])
    with DoorServer(door, broker_settings.socket_path, {token: "admin"}):
        yield replace(broker_settings, workload_token=Secret(token))


def _replay(settings: Settings, **more: object) -> int:
    chosen = {"tenant": None, "stage": None, "reason": None, "offset": None, "again": False, "dry_run": False}
    return replay.run(argparse.Namespace(**{**chosen, "json": True, **more}), settings)


def test_a_quarantined_step_goes_back_once_and_its_trajectory_is_open_again(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with fresh_read_model(settings.data_dir) as engine:
        projector, model = kafka_projector(settings, ReadModelWriter(engine)), ReadModel(engine)
        projector.run_to_end(lambda done, total: None)
        assert model.status("acme").account.quarantined == 1

        assert _replay(settings, dry_run=True) == 0
        assert json.loads(capsys.readouterr().out)["record"] == "ebbtide.steps.v1[1]@7"
        assert _replay(settings) == 0
        assert json.loads(capsys.readouterr().out) == {"chosen": 1, "replayed": 1}
        with Follower(settings, [topics.STEPS]) as follower:
            (again,) = follower.read_to_end()
        assert (again.partition, again.key, again.value) == (1, b"t", encode(StepRecord(header=step("acme", "t", 0))))

        projector.run_to_end(lambda done, total: None)
        status = model.status("acme")
        assert (status.account.open, status.account.quarantined, status.quarantine) == (1, 0, {})
        assert _replay(settings) == 0
        assert json.loads(capsys.readouterr().out) == {"chosen": 0}
