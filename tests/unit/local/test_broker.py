"""The embedded broker's configuration and command line."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.local.broker import Broker, server_properties
from ebbtide_platform.local.jars import Runtime
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.settings import Settings

JARS = Runtime("cache", "/usr/bin/java", "/jars/*")
DOCKER = Runtime("docker", "/usr/bin/docker", "/opt/kafka/libs/*", container=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, broker_port=9092)


def test_the_broker_listens_on_the_loopback_only_and_creates_no_topic_by_itself(settings: Settings) -> None:
    properties = dict(
        line.split("=", 1) for line in server_properties(settings, Path("/d")).splitlines() if line[0] != "#"
    )
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["group.initial.rebalance.delay.ms"] == "0"
    assert properties["log.dirs"] == "/d"


def test_the_heap_is_small_and_the_broker_logs_to_a_file(settings: Settings) -> None:
    command = Broker(settings, JARS).command()
    assert command[0] == "/usr/bin/java"
    assert "-Xmx320m" in command
    assert f"-Dlog4j2.configurationFile={settings.data_dir}/kafka/log4j2.xml" in command
    assert command[-2:] == ("kafka.Kafka", f"{settings.data_dir}/kafka/server.properties")


def test_in_docker_the_data_stays_on_the_host_and_belongs_to_the_same_user(settings: Settings) -> None:
    command = Broker(settings, DOCKER).command()
    assert command[:3] == ("/usr/bin/docker", "run", "--rm")
    assert f"{settings.data_dir}/kafka:{settings.data_dir}/kafka" in command
    assert f"{os.getuid()}:{os.getgid()}" in command


@pytest.mark.parametrize(("runtime", "number"), [(JARS, "KILL"), (DOCKER, "TERM")])
def test_a_container_is_ended_through_its_client(settings: Settings, runtime: Runtime, number: str) -> None:
    assert Broker(settings, runtime).death_signal == number


def test_a_port_that_is_taken_is_named_before_anything_starts(settings: Settings) -> None:
    first = free_ports(2)
    settings = replace(settings, broker_port=first)
    with socket.socket() as other:
        other.bind((settings.host, first + 1))
        other.listen()
        with pytest.raises(Misconfigured, match=f"port {first + 1} of 127.0.0.1") as raised:
            Broker(settings, JARS).prepare(release_s=0)
    assert "EBBTIDE_BROKER_PORT" in raised.value.try_this
