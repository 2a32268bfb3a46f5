"""What the doors let in, what they mend, and how they refuse."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from ebbtide_schemas.events import Reward, Step
from ebbtide_schemas.validation import (
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_DEPTH,
    MAX_EVENT_BYTES,
    EventError,
    Parsed,
    json_depth,
    level_of,
    parse_batch,
    parse_event,
)
from support.atdp import encoded, reward, step, vectors


def _raw(vector: dict[str, Any]) -> bytes:
    return vector["text"].encode() if "text" in vector else encoded(vector["event"])


def _refused(raw: bytes) -> EventError:
    with pytest.raises(EventError) as refused:
        parse_event(raw)
    return refused.value


# --- vectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors("valid")["vectors"], ids=lambda vector: vector["name"])
def test_a_valid_vector_is_taken(vector: dict[str, Any]) -> None:
    parsed = parse_event(_raw(vector))
    assert list(parsed.flags) == vector["flags"]
    if isinstance(parsed.event, Step):
        assert level_of(parsed.event) == vector["level"]
    if "content" in vector:
        assert isinstance(parsed.event, Step)
        assert parsed.event.observation.segments[0].content == vector["content"]
    assert parse_event(msgspec.json.encode(parsed.event)).event == parsed.event


@pytest.mark.parametrize("vector", vectors("invalid")["vectors"], ids=lambda vector: vector["name"])
def test_an_invalid_vector_is_refused_by_field_and_rule(vector: dict[str, Any]) -> None:
    error = _refused(_raw(vector))
    assert (error.field, error.code) == (vector["field"], vector["code"])
    assert error.rule


def test_no_rule_repeats_what_was_sent() -> None:
    marker = "ines.varga@example.org"
    for spoilt in (
        step(branch=marker),
        step(type=marker),
        step(specversion=marker),
        step(meta={"agent": marker}),
        step(ordinal=marker),
        step(observation={"segments": [{"role": marker}]}),
        step(parent="s-1", id=marker * 20),
    ):
        assert marker not in _refused(encoded(spoilt)).rule


# --- hostile bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 2000, 100_000])
def test_deep_nesting_is_refused_before_any_parser_recurses(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for raw in (deep, b'{"messages":' + deep + b"}", b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth):
        assert _refused(raw).code == "too_large"


def test_deep_json_inside_tool_arguments_is_refused() -> None:
    call = {"id": "c", "name": "n", "arguments": "[" * 100_000 + "]" * 100_000}
    error = _refused(encoded(step(action={"segment": {"role": "assistant", "tool_calls": [call]}})))
    assert (error.field, error.code) == ("action.segment.tool_calls[0].arguments", "too_large")


def test_what_is_deepest_and_still_taken_can_be_walked_and_written_again() -> None:
    levels = MAX_DEPTH - 3  # the event, its observation's array and the segment hold the rest
    nested: object = "leaf"
    for _ in range(levels - 2):
        nested = [nested]
    event = parse_event(encoded(step(observation={"segments": [{"role": "user", "extra": {"deep": nested}}]}))).event
    assert json.loads(msgspec.json.encode(event))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("200,000 keys", b"{" + b",".join(b'"k%d":1' % i for i in range(200_000)) + b"}"),
        ("200,000 equal keys", b"{" + b'"k":1,' * 199_999 + b'"k":1}'),
        ("a number of 100,000 digits", encoded(step()).replace(b'"ordinal": 0', b'"ordinal": ' + b"1" * 100_000)),
        ("a million numbers", b'{"a":[' + b"1," * 1_000_000 + b"1]}"),
        ("escaped quotes without end", b'"' + b'\\"' * 1_000_000),
        ("backslashes without end", b'"' + b"\\" * 1_000_001),
    ],
)
def test_a_bloated_event_is_refused_in_bounded_memory(name: str, raw: bytes) -> None:
    gc.collect()
    tracemalloc.start()
    _refused(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * 1024 * 1024, name


def test_an_event_has_a_largest_size_in_bytes_not_characters() -> None:
    content = "\u20ac" * (MAX_EVENT_BYTES // 3 + 1)
    raw = json.dumps(step(observation={"segments": [{"role": "user", "content": content}]}), ensure_ascii=False)
    assert _refused(raw.encode()).code == "too_large"
    with_others = parse_batch(f"[{json.dumps(step())},{raw}]".encode(), "application/json")
    assert [isinstance(result, Parsed) for result in with_others] == [True, False]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999999", "-1e400", "1" * 400])
def test_a_number_that_is_none_is_refused_by_its_field(value: str) -> None:
    error = _refused(encoded(reward()).replace(b"1.0", value.encode()))
    assert error.field == "value"


def test_nan_inside_a_string_is_text() -> None:
    event = parse_event(encoded(step(observation={"segments": [{"role": "user", "content": "NaN: Infinity [[["}]})))
    assert event.flags == ()


# --- strange characters (case 16) -------------------------------------------------------------------------------


def _first_content(parsed: Parsed | EventError) -> object:
    assert isinstance(parsed, Parsed)
    assert isinstance(parsed.event, Step)
    return parsed.event.observation.segments[0].content


def test_only_the_bad_characters_of_a_batch_are_replaced_and_flagged() -> None:
    contents = ["one", "bad \udcb2 half", "three", "nul \0 here and the literal text \\u0000", "five"]
    body = encoded([step(observation={"segments": [{"role": "user", "content": text}]}) for text in contents])
    results = parse_batch(body, "application/json")
    assert [_first_content(result) for result in results] == [
        "one",
        "bad \ufffd half",
        "three",
        "nul \ufffd here and the literal text \\u0000",
        "five",
    ]
    flags = [result.flags for result in results if isinstance(result, Parsed)]
    assert flags == [(), ("surrogates_replaced",), (), ("nul_replaced",), ()]


@pytest.mark.parametrize("bad", [b"\xed\xb2\xb2", b"\xff", b"\x80\x81"])
def test_bytes_that_are_no_utf8_are_replaced_in_their_item_alone(bad: bytes) -> None:
    plain = encoded(step())
    body = b"[" + plain + b"," + plain.replace(b"order", b"or" + bad + b"der") + b"," + plain + b"]"
    results = parse_batch(body, "application/json")
    assert [_first_content(result) for result in results] == [
        "Where is order 88?",
        "Where is or\ufffdder 88?",
        "Where is order 88?",
    ]
    assert [result.flags for result in results if isinstance(result, Parsed)] == [(), ("surrogates_replaced",), ()]


def test_a_nul_in_an_id_is_replaced_too() -> None:
    event = parse_event(encoded(step(meta={"agent": "a", "subjects": ["u\0-1"]}))).event
    assert isinstance(event, Step)
    assert event.meta.subjects == ["u\ufffd-1"]


# --- batches ------------------------------------------------------------------------------------------------------


def test_a_bad_item_leaves_the_others_and_their_positions() -> None:
    items = [step(id="a"), step(branch="zzz"), reward(), step(ordinal="4"), step(id="b")]
    for body, kind in (
        (encoded(items), "application/json"),
        (b"\n\n".join(encoded(item) for item in items), "application/x-ndjson; charset=utf-8"),
    ):
        results = parse_batch(body, kind)
        assert [type(result) for result in results] == [Parsed, EventError, Parsed, EventError, Parsed]
        assert isinstance(results[2], Parsed)
        assert isinstance(results[2].event, Reward)


def test_one_deep_or_nan_item_does_not_take_the_batch_with_it() -> None:
    good = encoded(step())
    deep, nan = b"[" * 5000 + b"]" * 5000, encoded(reward(value=float("nan")))
    results = parse_batch(b"[" + b", ".join([good, deep, nan, good]) + b"]", "application/json")
    assert [result.code if isinstance(result, EventError) else "ok" for result in results] == [
        "ok",
        "too_large",
        "invalid",
        "ok",
    ]


def test_producers_of_another_version_are_parked_by_reason_and_not_guessed() -> None:
    newer, kind = step(specversion="atdp/2", ordinal="4"), step(type="vision-2027")
    results = parse_batch(encoded([step(), newer, kind, step(new_field={"mail": "x"}), step()]), "application/json")
    fields = [result.field if isinstance(result, EventError) else None for result in results]
    assert fields == [None, "specversion", "type", "new_field", None]


def test_a_single_object_is_a_batch_of_one() -> None:
    assert len(parse_batch(b"\xef\xbb\xbf " + encoded(step()), "application/json")) == 1


@pytest.mark.parametrize(
    ("body", "kind", "field", "code"),
    [
        (b"[]", "application/json", "$", "invalid"),
        (b" \n ", "application/x-ndjson", "$", "invalid"),
        (b"[{}", "application/json", "$", "invalid"),
        (b'[{"a', "application/json", "$", "invalid"),
        (b"[{}] {}", "application/json", "$", "invalid"),
        (b"{}", "text/html", "content-type", "invalid"),
        (b"{}", "multipart/form-data; boundary=x", "content-type", "invalid"),
        (b"[" + b"{}," * MAX_BATCH_EVENTS + b"{}]", "application/json", "$", "too_large"),
        (b"{}\n" * (MAX_BATCH_EVENTS + 1), "application/x-ndjson", "$", "too_large"),
        (b"[[" + b"1," * 1_000_001 + b"1]]", "application/json", "$", "too_large"),
        (b" " * (MAX_BATCH_BYTES + 1), "application/json", "$", "too_large"),
    ],
)
def test_a_body_that_is_no_batch_is_refused_whole(body: bytes, kind: str, field: str, code: str) -> None:
    with pytest.raises(EventError) as refused:
        parse_batch(body, kind)
    assert (refused.value.field, refused.value.code) == (field, code)


def test_line_separators_of_unicode_do_not_cut_a_line() -> None:
    raw = json.dumps(step(observation={"segments": [{"role": "user", "content": "a\u2028b\x85c"}]}), ensure_ascii=False)
    assert _first_content(parse_batch(raw.encode(), "application/x-ndjson")[0]) == "a\u2028b\x85c"


# --- depth of any text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "depth"),
    [("", 0), ("plain", 0), ("[]", 1), ('{"a":[1]}', 2), ('"[[["', 0), ("[[[", 3), ("[" * 1000, 65), ('["a\\"[["]', 1)],
)
def test_depth_counts_brackets_outside_strings(text: str, depth: int) -> None:
    assert json_depth(text) == depth
