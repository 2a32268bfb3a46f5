"""The JSON Schema files say what the types say, and a released one is never broken."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ebbtide_schemas import json_schemas as generator
from ebbtide_schemas.compatibility import breaking_changes
from support.atdp import vectors

SCHEMAS = generator.json_schemas()


def test_the_files_are_what_the_types_say() -> None:
    assert generator.find_differences() == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_file_is_a_schema_of_the_2020_12_dialect(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert r"\Z" not in json.dumps(SCHEMAS[name])


@pytest.mark.parametrize("vector", vectors("valid")["vectors"], ids=lambda vector: vector["name"])
def test_a_valid_vector_fits_its_schema(vector: dict[str, Any]) -> None:
    event = vector["event"] if "event" in vector else json.loads(vector["text"])
    assert list(Draft202012Validator(SCHEMAS[f"{event['type']}.v1.json"]).iter_errors(event)) == []


@pytest.mark.parametrize(
    "event",
    [
        v["event"]
        for v in vectors("invalid")["vectors"]
        if v["name"] in {"unknown member", "no agent", "unknown role", "group of none"}
    ],
)
def test_what_the_types_refuse_the_schema_refuses(event: dict[str, Any]) -> None:
    assert not Draft202012Validator(SCHEMAS["step.v1.json"]).is_valid(event)


# --- compatibility ------------------------------------------------------------------------------------------


def _of_step(change: Callable[[dict[str, Any]], object]) -> list[str]:
    old = SCHEMAS["step.v1.json"]
    new = copy.deepcopy(old)
    change(new["$defs"])
    return breaking_changes(old, new)


def test_a_new_optional_member_and_other_words_break_nothing() -> None:
    def change(definitions: dict[str, Any]) -> None:
        definitions["Step"]["properties"]["note"] = {"type": "string", "default": ""}
        definitions["Step"]["description"] = "other words"

    assert _of_step(change) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["Step"]["properties"].pop("hidden"), "$.hidden: removed"),
        (lambda d: d["Step"]["required"].append("parent"), "$.parent: became required"),
        (lambda d: d["Step"]["required"].remove("ordinal"), "$.ordinal: became optional"),
        (lambda d: d["Step"]["properties"]["branch"]["enum"].remove("fork"), "$.branch: no longer 'fork'"),
        (lambda d: d["Step"]["properties"]["branch"]["enum"].append("merge"), "$.branch: may now be 'merge'"),
        (lambda d: d["Step"]["properties"]["id"].update(maxLength=64), "$.id: maxLength changed"),
        (lambda d: d["Step"]["properties"]["ordinal"].update(type="string"), "$.ordinal: type changed"),
        (lambda d: d["Metadata"]["properties"]["agent"].update(pattern="^a$"), "$.meta.agent: pattern changed"),
        (
            lambda d: d["Segment"]["properties"]["content"]["anyOf"].pop(),
            "$.observation.segments[].content: no longer null",
        ),
        (lambda d: d["Step"].update(additionalProperties=True), "$: additionalProperties changed"),
        (lambda d: d["TokenSpan"]["properties"].pop("end"), "$.action.sampler.adapters[].end: removed"),
    ],
)
def test_a_breaking_change_is_named(change: Callable[[dict[str, Any]], object], named: str) -> None:
    assert named in _of_step(change)


def test_no_schema_breaks_itself() -> None:
    assert [breaking_changes(schema, copy.deepcopy(schema)) for schema in SCHEMAS.values()] == [[]] * len(SCHEMAS)


def test_the_command_writes_freezes_and_then_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "FOLDER", tmp_path / "jsonschema")
    monkeypatch.setattr(generator, "RELEASED", tmp_path / "jsonschema" / "released")
    assert generator.main(["--check"]) == 1
    assert generator.main(["--write"]) == 0
    assert generator.main(["--release"]) == 0
    released = generator.RELEASED / "step.v1.json"
    narrower = json.loads(released.read_text("utf-8"))
    narrower["$defs"]["Step"]["properties"]["gone"] = {"type": "string"}
    released.write_text(json.dumps(narrower), "utf-8")
    assert generator.main(["--check"]) == 1
    assert "step.v1.json: $.gone: removed" in capsys.readouterr().err
