"""`pip install ebbtide` brings the SDK and nothing heavy, and that is enough to publish."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from support.bare_environment import BareEnvironment, build_wheel
from support.stub_api import stub_api

HEAVY = sorted(
    {"aiokafka", "alembic", "confluent_kafka", "cryptography", "fastapi", "faust", "presidio_analyzer", "pydantic"}
    | {"numpy", "spacy", "sqlalchemy", "sqlmodel", "tldextract", "torch", "transformers", "uvicorn", "zstandard"}
)
LIGHT = {"ebbtide", "httpx", "msgspec", "httpcore", "h11", "anyio", "certifi", "idna", "sniffio", "typing-extensions"}
"""The base dependencies and theirs; which of the last two come depends on Python and on anyio's version."""
PUBLISH = f"""
import importlib.util, json, sys
import ebbtide
with ebbtide.session(agent="support", subject="user-42") as s:
    answer = s.record([{{"role": "user", "content": "Where is order 88?"}}], "On its way.")
    s.tool("find_order", {{"order": 88}}, {{"ok": True}})
    s.reward(1.0)
ebbtide.reward(answer, 0.0, name="reopened")
assert ebbtide.flush(30.0)
heavy = {HEAVY!r}
print(json.dumps({{
    "imported": [name for name in heavy if name in sys.modules],
    "importable": [name for name in heavy if importlib.util.find_spec(name)],
    "file": ebbtide.__file__,
}}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> BareEnvironment:
    return BareEnvironment(tmp_path_factory.mktemp("bare") / "venv", wheel)


def test_the_base_dependencies_are_the_sdks_alone(bare: BareEnvironment) -> None:
    assert bare.installed <= LIGHT
    assert {"httpx", "msgspec"} <= bare.installed


def test_the_bare_wheel_publishes_and_holds_nothing_heavier(bare: BareEnvironment) -> None:
    with stub_api() as api:
        done = bare.run("-c", PUBLISH, EBBTIDE_URL=api.url, EBBTIDE_API_KEY="a-key")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["imported"], found["importable"]) == ([], [])
    assert found["file"].startswith(str(bare.python.parents[1]))
    assert [event["type"] for event in api.events] == ["step", "step", "reward", "step", "reward"]
    assert api.authorizations == {"Bearer a-key"}


def test_the_bare_wheel_sends_a_file_and_says_which_extra_the_server_needs(
    bare: BareEnvironment, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}\n')
    command = ("-m", "ebbtide_platform.cli.main")
    with stub_api() as api:
        sent = bare.run(*command, "publish", str(file), EBBTIDE_URL=api.url, EBBTIDE_API_KEY="a-key")
    assert (sent.returncode, len(api.events)) == (0, 1)
    refused = bare.run(*command, "up", "--data-dir", str(tmp_path / "data"))
    assert refused.returncode != 0
    assert "pip install 'ebbtide[server]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_wheel_carries_what_its_parts_read_at_run_time(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "ebbtide_governance/migrations/env.py" in names
    assert "ebbtide_schemas/jsonschema/step.v1.json" in names
    assert [name for name in names if name.endswith(".pyc")] == []
