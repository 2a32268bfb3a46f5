"""The API as a process: it announces the policy, answers with the read model, and ends when it is told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx
import pytest

from ebbtide_governance.commands.api import publish_policy
from ebbtide_governance.standing import newest_policy
from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.keydoor.server import DoorServer
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.settings import Secret, Settings
from support.waiting import wait_until

pytestmark = pytest.mark.broker

SERVE = "from ebbtide_governance.commands.api import serve; from ebbtide_platform.settings import read_settings; "
TOKEN = "a-token-of-this-test"
STOP_S = 20


@dataclass
class Api:
    """A running API process and a key to it."""

    settings: Settings
    key: str
    process: subprocess.Popen[bytes]

    def get(self, path: str, key: str | None = None) -> httpx.Response:
        return httpx.get(self.settings.api_url + path, headers={"authorization": f"Bearer {key or self.key}"})

    def answers(self) -> bool:
        try:
            return self.get("/v1/status").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def _running_api(settings: Settings, door: MemoryKeyDoor) -> Iterator[Api]:
    settings = replace(settings, port=free_ports(1), workload_token=Secret(TOKEN), reward_window_s=7.0)
    with DoorServer(door, settings.socket_path, {TOKEN: "api"}):
        process = subprocess.Popen(
            [sys.executable, "-c", f"{SERVE}serve(read_settings())"],
            env=settings.environment(),
            stderr=subprocess.PIPE,
        )
        api = Api(settings, door.create_api_key("acme", "test", ["ingest", "read"]), process)
        try:
            wait_until(api.answers, "the API answers")
            yield api
        finally:
            process.kill()
            process.communicate(timeout=STOP_S)


def test_the_api_announces_its_policy_answers_and_ends_cleanly_on_sigterm(broker_settings: Settings) -> None:
    with _running_api(broker_settings, MemoryKeyDoor("acme")) as api:
        status = api.get("/v1/status").json()
        assert (status["tenant"], status["account"]["trajectories_in"]) == ("acme", 0)
        assert api.get("/v1/status", key="ebb_unknown_key").status_code == 401

        with Follower(broker_settings, [topics.FACTS]) as follower:
            policy = newest_policy(follower.read_to_end())
        assert policy is not None
        assert policy.reward_window_s == 7.0

        api.process.send_signal(signal.SIGTERM)
        _, errors = api.process.communicate(timeout=STOP_S)
        assert (api.process.returncode, errors) == (0, b"")


def test_a_policy_is_announced_once_for_the_same_settings(broker_settings: Settings) -> None:
    with KafkaLogWriter(broker_settings) as writer:
        assert publish_policy(broker_settings, writer)
        assert not publish_policy(broker_settings, writer)
        assert publish_policy(replace(broker_settings, idle_s=1.0), writer)
