"""The README's code is run as it stands: ten lines publish, ten more consume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest

from ebbtide.client import Client
from ebbtide_schemas.samples import Sample
from support.reading import await_record
from support.running_platform import Platform

pytestmark = pytest.mark.platform

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_LINES = 10
RUN_S = 60.0
PLANTED = ("Ines", "Varga", "ines.varga@example.org")
ASSERT_LIGHT = """
import sys
heavy = {"confluent_kafka", "cryptography", "ebbtide_platform", "fastapi", "faust", "pydantic", "spacy"}
assert not heavy & sys.modules.keys()
assert ebbtide.flush(30.0), "the server did not answer"
"""


def _blocks(language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _run(platform: Platform, code: str, folder: Path) -> str:
    """What the code prints in a process of its own that knows nothing but a URL and a key."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("EBBTIDE_")}
    known |= {"EBBTIDE_URL": platform.settings.api_url, "EBBTIDE_API_KEY": platform.key("acme")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=known,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_each_block_is_ten_lines_of_code() -> None:
    published, consumed = _blocks()
    for block in (published, consumed):
        lines = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        assert len(lines) <= MAX_LINES


def test_ten_lines_publish_without_kafka_and_ten_more_consume_without_a_name(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    published, consumed = _blocks()
    assert _run(platform, published + ASSERT_LIGHT, tmp_path) == ""
    sample = await_record(client, Sample, lambda sample: len(sample.rewards) == 2)
    assert {reward.name: reward.value for reward in sample.rewards} == {"resolved": 1.0, "reopened": 0.0}

    printed = _run(platform, consumed, tmp_path)
    assert sample.id in printed
    assert "I am [PERSON_1], where is order 88?" in printed
    assert "refund" in printed
    assert [value for value in PLANTED if value in printed] == []


def test_the_event_for_other_languages_is_accepted_as_it_stands(platform: Platform) -> None:
    (event,) = _blocks("json")
    headers = {"authorization": f"Bearer {platform.key('acme')}", "content-type": "application/json"}
    answer = httpx.post(f"{platform.settings.api_url}/v1/events", content=event, headers=headers, timeout=RUN_S)
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"(?:^|[`$ ])ebbtide ([a-z]+)", README.read_text("utf-8"), re.MULTILINE))
    assert named <= entry_points(group="ebbtide.commands").names
    assert named >= {"consume", "publish", "status", "up", "why"}
