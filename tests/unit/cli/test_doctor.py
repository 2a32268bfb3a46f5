"""What `ebbtide doctor` says about a machine."""

from __future__ import annotations

import json
import socket
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_platform.cli import doctor
from ebbtide_platform.cli.doctor import Check
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A machine with a Kafka unpacked and nothing running."""
    libs = tmp_path / "kafka/libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.3.0.jar").touch()
    first = free_ports(3)
    return Settings(data_dir=tmp_path / "data", kafka_home=str(libs.parent), broker_port=first, port=first + 2)


def _checks(settings: Settings) -> dict[str, Check]:
    return {check.name: check for check in doctor.examine(settings)}


def test_before_the_first_start_nothing_has_failed(settings: Settings) -> None:
    checks = _checks(settings)
    assert list(checks) == ["java", "kafka", "data directory", "clock", "broker", "key door", "api"]
    assert {checks[name].state for name in ("broker", "key door", "api")} == {"off"}
    assert "failed" not in {check.state for check in checks.values()}


def test_a_port_that_another_program_holds_is_named(settings: Settings) -> None:
    with socket.socket() as other:
        other.bind((settings.host, settings.broker_port + 1))
        other.listen()
        check = _checks(settings)["broker"]
    assert (check.state, str(settings.broker_port + 1) in check.found) == ("failed", True)
    assert "EBBTIDE_BROKER_PORT" in check.try_this


def test_a_data_directory_too_deep_for_a_socket_is_found_out(settings: Settings) -> None:
    check = _checks(replace(settings, data_dir=settings.data_dir / ("deep" * 30)))["data directory"]
    assert (check.state, check.try_this) == ("failed", "set EBBTIDE_KEYDOOR_SOCKET to a short path")


def test_a_named_cluster_needs_no_java_and_must_answer(settings: Settings) -> None:
    checks = _checks(replace(settings, bootstrap_servers=f"127.0.0.1:{settings.broker_port}", java_home="/nowhere"))
    assert checks["java"].state == checks["kafka"].state == "ok"
    assert checks["broker"].state == "failed"


def test_a_script_reads_the_checks_and_the_exit_code(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run(Namespace(json=True), settings) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"name", "state", "found", "try_this"} == set(checks[0])
    assert doctor.run(Namespace(json=False), replace(settings, kafka_home="/nowhere")) == 1
    assert "FAIL  kafka" in capsys.readouterr().out
