"""What was answered with 202 survives everything: no broker, no API, no supervisor, and a full outbox says so."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.atdp import encoded, reward, step
from support.running_platform import START_S, Platform, running_platform, start
from support.waiting import lives, wait_until

pytestmark = pytest.mark.platform

TENANT = "acme"
PARTS = ("broker", "keydoor", "api", "processors", "curator", "projector")
OUTBOX_BYTES = 40_000
SETTLE_S = 90.0


def _trajectory(number: int) -> list[bytes]:
    """One step and its reward."""
    name = {"id": f"s-{number}", "trajectory": f"t-{number}"}
    action = {"segment": {"role": "assistant", "content": f"Answer {number}."}}
    meta = {"agent": "support", "purpose": "training"}
    taken = step(**name, meta=meta, action=action, end="terminated")
    return [encoded(taken), encoded(reward(id=f"r-{number}", target={"step": name["id"]}))]


def _post(platform: Platform, lines: list[bytes]) -> httpx.Response:
    """One try; `Platform.post_events` would hide what this is about."""
    headers = {"authorization": f"Bearer {platform.key(TENANT)}", "content-type": "application/x-ndjson"}
    url = f"{platform.settings.api_url}/v1/events"
    return httpx.post(url, content=b"\n".join(lines), headers=headers, timeout=30)


def _answers(platform: Platform) -> list[str]:
    """The last message of every curated sample."""
    answer = platform.get(TENANT, "/v1/curated")
    if answer.status_code != 200:
        return []
    samples: list[dict[str, Any]] = [json.loads(line) for line in answer.text.splitlines()]
    return sorted(sample["messages"][-1]["content"] for sample in samples)


def _await_answers(platform: Platform, count: int) -> None:
    expected = sorted(f"Answer {number}." for number in range(count))
    wait_until(lambda: _answers(platform) == expected, "each trajectory is one sample", SETTLE_S)


@contextmanager
def _without_broker(platform: Platform) -> Iterator[None]:
    """The broker is there and says nothing, so that nobody restarts it before it is wanted."""
    broker = platform.pid_of("broker")
    assert broker is not None
    os.kill(broker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker, signal.SIGCONT)


def test_a_202_survives_a_kill_of_the_api_while_the_broker_is_away(tmp_path: Path) -> None:
    with running_platform(tmp_path / "data", TENANT) as platform:
        with _without_broker(platform):
            assert _post(platform, _trajectory(0)).status_code == 202
            platform.kill("api")
            # The API comes back without a broker, and goes on taking events.
            assert platform.post_events(TENANT, _trajectory(1)).status_code == 202
        _await_answers(platform, 2)


def test_a_full_outbox_answers_429_and_drains_when_the_broker_is_back(tmp_path: Path) -> None:
    with running_platform(tmp_path / "data", TENANT, outbox_max_bytes=OUTBOX_BYTES) as platform:
        taken = 0
        with _without_broker(platform):
            while (answer := _post(platform, _trajectory(taken))).status_code == 202:
                taken += 1
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0
            assert 0 < taken < OUTBOX_BYTES // 500
        assert platform.post_events(TENANT, _trajectory(taken)).status_code == 202
        _await_answers(platform, taken + 1)


def test_killing_the_supervisor_leaves_no_orphan_and_the_next_one_has_all_data(tmp_path: Path) -> None:
    with running_platform(tmp_path / "data", TENANT) as platform:
        assert platform.post_events(TENANT, _trajectory(0)).status_code == 202
        _await_answers(platform, 1)
        assert platform.post_events(TENANT, _trajectory(1)).status_code == 202
        found = [platform.pid_of(part) for part in PARTS]
        pids = [pid for pid in found if pid is not None]
        assert len(pids) == len(PARTS)
        platform.process.kill()
        platform.process.wait()
        wait_until(lambda: not any(map(lives, pids)), "the children of a killed supervisor are gone", START_S)

        again = start(platform.settings, platform.options)
        try:
            assert again.post_events(TENANT, _trajectory(0)).json()["accepted"] == 0
            assert again.post_events(TENANT, _trajectory(2)).status_code == 202
            _await_answers(again, 3)
        finally:
            again.stop()
