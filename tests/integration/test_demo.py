"""The demo, as `make demo` runs it: its figures and its promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ebbtide_platform.local.workload import generate
from ebbtide_platform.settings import child_environment, read_settings

pytestmark = pytest.mark.platform

CONVERSATIONS = 12
DEMO_S = 240.0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo's platform left its data."""
    return tmp_path_factory.mktemp("demo") / "data"


@pytest.fixture(scope="module")
def result(kept: Path) -> dict[str, Any]:
    """What `ebbtide demo --json` printed."""
    command = [sys.executable, "-P", "-m", "ebbtide_platform.cli.main", "demo", "--json", "--keep", str(kept)]
    done = subprocess.run(
        [*command, "--conversations", str(CONVERSATIONS)],
        env=child_environment(read_settings({})),
        capture_output=True,
        timeout=DEMO_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_promise_is_kept(result: dict[str, Any]) -> None:
    assert result["ok"]
    assert result["proofs"] == {
        "accounts_balance": True,
        "samples_in_foreign_topics": 0,
        "readable_values_on_disk": 0,
        "refused_people_curated": 0,
        "duplicate_samples": 0,
    }


def test_who_refused_and_what_has_no_reward_is_rejected_and_the_rest_is_curated(result: dict[str, Any]) -> None:
    accounts = [status["account"] for status in result["status"].values()]
    refused = sum(conversation.refuses for conversation in generate(CONVERSATIONS))
    unrewarded = sum(not conversation.rewards for conversation in generate(CONVERSATIONS))
    assert sum(account["rejected"] for account in accounts) == refused + unrewarded
    assert sum(result["samples"].values()) == CONVERSATIONS - refused - unrewarded


def test_known_values_are_removed_from_samples(result: dict[str, Any]) -> None:
    assert sum(result["planted"].values()) > 0
    assert result["removed"] == result["planted"]


@pytest.mark.usefixtures("result")
def test_no_planted_value_is_readable_in_any_file_the_platform_wrote(kept: Path) -> None:
    """Kafka's files, the databases, the outbox, the state, the logs: looked at again, without the demo's own help."""
    values = {value.encode() for conversation in generate(CONVERSATIONS) for _, value in conversation.values}
    files = [path for path in kept.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 50
    for path in files:
        data = path.read_bytes()
        assert [value for value in values if value in data] == [], path.name
