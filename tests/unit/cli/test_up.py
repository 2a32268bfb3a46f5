"""Which processes `ebbtide up` runs, and how."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ebbtide_platform.cli import up
from ebbtide_platform.cli.run import PROCESSES_GROUP
from ebbtide_platform.errors import InvalidInput, Misconfigured
from ebbtide_platform.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A machine with a Kafka unpacked."""
    libs = tmp_path / "kafka/libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.3.0.jar").touch()
    return Settings(data_dir=tmp_path / "data", kafka_home=str(libs.parent))


def test_broker_and_key_door_start_first_and_end_last(settings: Settings) -> None:
    parts = up.processes(settings, ["acme"])
    assert [part.name for part in parts if part.base] == ["broker", "keydoor"]
    assert [part.name for part in parts][:2] == ["broker", "keydoor"]


def test_a_named_cluster_replaces_the_embedded_broker(settings: Settings) -> None:
    parts = up.processes(replace(settings, bootstrap_servers="kafka:9092"), [])
    assert [part.name for part in parts] == ["keydoor", "api", "processors", "curator", "projector"]


def test_every_declared_process_is_run(settings: Settings) -> None:
    declared = {point.name for point in entry_points(group=PROCESSES_GROUP)}
    assert declared == {part.name for part in up.processes(settings, [])} - {"broker"}


def _run(settings: Settings, *words: str) -> int:
    parser = ArgumentParser()
    up.configure(parser)
    return up.run(parser.parse_args(words), settings)


def test_a_tenant_that_cannot_name_a_topic_is_refused_before_anything_starts(settings: Settings) -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        _run(settings, "--tenant", "Acme Inc.")
    assert not settings.data_dir.exists()


def test_a_data_directory_too_deep_for_a_socket_is_refused(settings: Settings) -> None:
    with pytest.raises(Misconfigured, match="longer than the 107 bytes"):
        _run(replace(settings, data_dir=settings.data_dir / ("deep" * 30)))
