"""Kill -9 of every process and of the broker, under load: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.codec import decode_any, encode, headers
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.topics import STEPS, curated
from ebbtide_schemas.records import (
    CuratedRecord,
    SealedChunk,
    SegmentRef,
    StepHeader,
    StepRecord,
    WithdrawalRecord,
)
from support.running_platform import Platform, running_platform
from support.waiting import wait_until

pytestmark = pytest.mark.platform

TENANT = "acme"
FEWEST, MOST = 120, 600
"""Trajectories: published for as long as parts are killed, within these bounds."""
PACE_S = 0.05
POISONED = 5
PARTS = ("processors", "api", "curator", "projector", "keydoor", "broker")
REST_S = 150.0


def _name(number: int) -> str:
    return f"episode-{number:04d}"


def _events(number: int) -> list[bytes]:
    """Two steps and a reward; every sixth has no reward, every seventh shows a picture that nobody has looked at."""
    meta = {"agent": "support", "purpose": "training", "subjects": [f"user-{number}"]}
    question: object = f"Question {number} of Ines Varga"
    if number % 7 == 0:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        question = [{"type": "text", "text": "What is this?"}, picture]
    common = {"specversion": "atdp/1", "type": "step", "trajectory": _name(number), "meta": meta}
    first = common | {
        "id": f"{number}-0",
        "ordinal": 0,
        "observation": {"segments": [{"role": "user", "content": question}]},
        "action": {"segment": {"role": "assistant", "content": "Let me see."}},
    }
    second = common | {
        "id": f"{number}-1",
        "ordinal": 1,
        "parent": f"{number}-0",
        "observation": {"prefix": 2, "segments": [{"role": "user", "content": "And?"}]},
        "action": {"segment": {"role": "assistant", "content": f"Answer {number}."}},
        "end": "terminated",
    }
    target = {"trajectory": _name(number)}
    reward = {"specversion": "atdp/1", "type": "reward", "id": f"{number}-r", "target": target, "value": 1.0}
    events = [first, second] if number % 6 == 0 else [first, reward, second]
    return [json.dumps(event).encode() for event in events]


def _poison(number: int) -> OutRecord:
    """A step whose sealed bytes are not what they say."""
    trajectory = f"0000000{number}-0000-8000-8000-000000000000"
    event = f"0000000{number}-0000-8000-8000-00000000000e"
    header = StepHeader(
        event=event,
        tenant=TENANT,
        trajectory=trajectory,
        session=trajectory,
        ordinal=0,
        parent=None,
        branch="continue",
        observation=(SegmentRef(id=event, kind="message", role="user", about_nobody=True),),
    )
    chunk = SealedChunk(
        segment=event,
        tenant=TENANT,
        trajectory=None,
        subjects=(),
        seal_class="raw",
        first_event=event,
        nonce=b"\0" * 12,
        data=b"\0" * 40,
    )
    value = encode(StepRecord(header=header, sealed=(chunk,)))
    stamped = headers(event=event, kind="step", source="test", time_ms=0, tenant=TENANT)
    return OutRecord(STEPS.name, trajectory.encode(), value, tuple(stamped))


@dataclass
class Survivor:
    """A platform that came to rest, and how many trajectories were published to it."""

    platform: Platform
    trajectories: int


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    """A platform that was killed part by part while it was written to, and came to rest."""
    folder: Path = tmp_path_factory.mktemp("crash") / "data"
    with running_platform(folder, TENANT) as platform, ThreadPoolExecutor(1) as thread:
        killed = threading.Event()
        load = thread.submit(_publish, platform, killed)
        try:
            for part in PARTS:
                platform.kill(part)
        finally:
            killed.set()
        trajectories = load.result()
        with KafkaLogWriter(platform.settings) as writer:
            writer.write([_poison(number) for number in range(POISONED)])
        expected = trajectories + POISONED
        wait_until(lambda: _at_rest(platform, expected), "every trajectory is decided", REST_S)
        yield Survivor(platform, trajectories)


@pytest.fixture
def platform(survivor: Survivor) -> Platform:
    return survivor.platform


def _publish(platform: Platform, killed: threading.Event) -> int:
    """Publish until every part was killed; how many trajectories it was."""
    for number in range(MOST):
        if number >= FEWEST and killed.wait(PACE_S):
            return number
        answer = platform.post_events(TENANT, _events(number))
        assert answer.status_code == 202, answer.text
    return MOST


def _at_rest(platform: Platform, expected: int) -> bool:
    """Whether every trajectory is decided and every sample written: a killed curator comes back after its session."""
    status = platform.status(TENANT)
    account = status.get("account", {})
    if account.get("trajectories_in") != expected or account["open"] or status["rewards"]["parked"]:
        return False
    return bool(status["samples"].get(TENANT, {}).get("live") == account["eligible"])


def _trajectories(platform: Platform) -> dict[str, str]:
    """State by trajectory, of all of them."""
    found: dict[str, str] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = platform.get(TENANT, "/v1/trajectories", **({"cursor": cursor} if cursor else {})).json()
        found |= {item["trajectory"]: item["state"] for item in page["items"]}
        cursor = page["cursor"]
    return found


def _curated(platform: Platform) -> list[CuratedRecord | WithdrawalRecord]:
    with Follower(platform.settings, [curated(TENANT)]) as follower:
        records = [decode_any(record.value) for record in follower.read_to_end()]
    return [record for record in records if isinstance(record, CuratedRecord | WithdrawalRecord)]


def test_every_id_that_went_in_stands_in_exactly_one_place(survivor: Survivor) -> None:
    states = Counter(_trajectories(survivor.platform).values())
    unrewarded = set(range(0, survivor.trajectories, 6))
    unseen = set(range(0, survivor.trajectories, 7))
    assert states["quarantined"] == POISONED
    assert states["rejected"] == len(unrewarded)
    assert states["held"] == len(unseen - unrewarded)
    assert states["eligible"] == survivor.trajectories - len(unrewarded | unseen)
    assert states.total() == survivor.trajectories + POISONED


def test_what_is_eligible_is_curated_and_nothing_else(platform: Platform) -> None:
    eligible = {trajectory for trajectory, state in _trajectories(platform).items() if state == "eligible"}
    assert {record.trajectory for record in _curated(platform) if isinstance(record, CuratedRecord)} == eligible


def test_no_sample_and_revision_comes_twice(platform: Platform) -> None:
    records = _curated(platform)
    assert not [record for record in records if isinstance(record, WithdrawalRecord)]
    times = Counter((record.sample, record.revision) for record in records)
    assert [key for key, count in times.items() if count > 1] == []


def test_no_reward_is_counted_twice(platform: Platform) -> None:
    for record in _curated(platform):
        assert isinstance(record, CuratedRecord)
        assert [reward.value for reward in record.settled.rewards] == [1.0]


def test_the_plain_texts_never_reach_the_disk(platform: Platform) -> None:
    for path in [*platform.settings.data_dir.rglob("*"), platform.log]:
        if path.is_file():
            assert b"Ines Varga" not in path.read_bytes(), path.name
