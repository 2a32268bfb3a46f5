"""ATDP.md names what the types have, so that the page and the code cannot part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from ebbtide_schemas import events, validation

PAGE = (Path(__file__).parents[3] / "schemas" / "ATDP.md").read_text("utf-8")
TYPES = [
    events.Step,
    events.Reward,
    events.RewardTarget,
    events.Segment,
    events.ToolCall,
    events.ToolDefinition,
    events.Observation,
    events.HiddenState,
    events.Action,
    events.Outcome,
    events.Usage,
    events.Metadata,
    events.Group,
    events.Correlation,
    events.RewardAtEmission,
    events.SamplerRecord,
    events.TokenArray,
    events.TokenSpan,
]


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.__name__)
def test_every_member_stands_on_the_page(type_: type[msgspec.Struct]) -> None:
    assert [f.name for f in msgspec.structs.fields(type_) if f"`{f.name}`" not in PAGE] == []


def test_every_word_that_is_allowed_stands_on_the_page() -> None:
    words = {
        word
        for literal in (events.Role, events.BranchKind, events.EndMark, events.RewardSource)
        for word in get_args(literal)
    }
    assert {word for word in words if f"`{word}`" not in PAGE} == set()


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \| `(?:too_large|invalid)` \|$", PAGE, re.MULTILINE))
    assert rows["bytes of an event"] == f"{validation.MAX_EVENT_BYTES // 2**20} MiB"
    assert rows["bytes of a body, unpacked"] == f"{validation.MAX_BATCH_BYTES // 2**20} MiB"
    assert rows["events of a body"] == str(validation.MAX_BATCH_EVENTS)
    assert rows["levels of nesting, also of JSON inside `arguments`"] == str(validation.MAX_DEPTH)
    assert rows["segments of an observation; results of an outcome"] == f"{validation.MAX_SEGMENTS} each"
    assert rows["tools of an observation; calls of a segment"] == f"{validation.MAX_TOOLS} each"
    assert rows["brackets, commas and keys of an event; of a body"].startswith(f"{validation.MAX_VALUES:,};")


def test_every_file_of_vectors_stands_on_the_page() -> None:
    folder = Path(__file__).parents[3] / "schemas" / "ebbtide_schemas" / "vectors"
    assert [path.name for path in folder.glob("*.json") if path.name not in PAGE] == []
