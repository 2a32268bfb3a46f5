"""Chat messages of every form to segments and back (cases 10 and 20)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.events import Segment
from ebbtide_schemas.messages import message_of, segment_of, segments_of
from ebbtide_schemas.samples import SampleMessage
from support.atdp import vectors

VECTORS = vectors("messages")["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_message_is_the_segment_of_its_vector(vector: dict[str, Any]) -> None:
    assert segment_of(vector["message"]) == msgspec.convert(vector["segment"], Segment)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_segment_written_as_a_message_is_read_as_itself(vector: dict[str, Any]) -> None:
    segment = msgspec.structs.replace(segment_of(vector["message"]), subjects=None)
    assert segment_of(message_of(segment)) == segment


def test_a_tool_call_without_text_is_one_turn_in_all_its_forms() -> None:
    forms = [v["message"] for v in VECTORS if v["name"].startswith("tool call")]
    assert len(forms) == 6
    assert len({canonical(segment_of(form)) for form in forms}) == 1


@pytest.mark.parametrize("content", [None, ""])
def test_no_text_never_becomes_the_word_none_or_null(content: str | None) -> None:
    for role in ("assistant", "user", "tool"):
        written = canonical(segment_of({"role": role, "content": content, "tool_call_id": "c1"}))
        assert b"None" not in written
        assert b"null" not in written


def test_content_is_present_as_null_where_a_turn_has_only_calls() -> None:
    message = message_of(segment_of(VECTORS[0]["message"]))
    assert message == VECTORS[0]["message"]


def test_parts_keep_their_order_and_what_is_unknown_in_them() -> None:
    parts = [
        {"type": "text", "text": "Is this my passport?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "text", "text": ""},
        {"type": "unknown_future_part", "payload": {"note": "n"}},
    ]
    assert segment_of({"role": "user", "content": parts}).content == parts


def test_several_tool_results_in_one_message_are_segments_of_their_own() -> None:
    anthropic = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
            {"type": "text", "text": "go on"},
        ],
    }
    first, second, rest = segments_of(anthropic)
    assert (first.role, first.tool_call_id, first.content) == ("tool", "a", "1")
    assert (second.tool_call_id, second.content, second.extra) == ("b", "2", {"is_error": True})
    assert (rest.role, rest.content) == ("user", [{"type": "text", "text": "go on"}])
    otel = {"role": "tool", "parts": [{"type": "tool_call_response", "id": i, "response": i} for i in ("a", "b")]}
    assert [segment.tool_call_id for segment in segments_of(otel)] == ["a", "b"]


def test_what_a_call_carries_of_its_own_is_kept_and_given_back() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "signature": "s"}
    segment = segment_of({"role": "assistant", "content": None, "tool_calls": [call]})
    assert segment.extra == {"tool_calls": [{"signature": "s"}]}
    assert message_of(segment)["tool_calls"] == [call]


def test_numbers_that_no_reader_agrees_on_become_text() -> None:
    segment = segment_of({"role": "user", "content": "x", "stamp": 2**60, "score": float("nan"), "when": {1: object()}})
    assert segment.extra == {"stamp": str(2**60), "score": "nan", "when": {"1": "<object>"}}
    canonical(segment)


@pytest.mark.parametrize("content", [5, True, {"a": 1}, [1, 2]])
def test_strange_content_becomes_json_text(content: object) -> None:
    written = segment_of({"role": "tool", "tool_call_id": "c", "content": content}).content
    assert isinstance(written, str)
    assert msgspec.json.decode(written) == content


def test_a_message_of_a_sample_is_written_as_chat() -> None:
    message = SampleMessage(role="assistant", content="I am [PERSON_1]", reasoning="why", trained=True)
    assert message_of(message) == {"role": "assistant", "content": "I am [PERSON_1]", "reasoning_content": "why"}
