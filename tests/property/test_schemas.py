"""Properties of the canonical form, of messages and of parsing, over generated data."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ebbtide_schemas.canonical import MAX_INTEGER, canonical
from ebbtide_schemas.messages import message_of, segment_of
from ebbtide_schemas.validation import EventError, Parsed, event_time, json_depth, parse_batch, parse_event
from support.atdp import encoded, step

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-MAX_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_the_canonical_form_is_its_own_form(value: Any) -> None:
    written = canonical(value)
    assert json.loads(written, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    assert canonical(json.loads(written)) == written


@given(st.dictionaries(TEXT, NUMBERS, max_size=6))
def test_the_order_of_members_says_nothing(value: dict[str, Any]) -> None:
    assert canonical(dict(reversed(list(value.items())))) == canonical(value)


@given(
    role=st.sampled_from(["system", "user", "assistant", "tool", "critic"]),
    content=JSON,
    calls=st.none() | st.lists(st.dictionaries(st.sampled_from(["id", "name", "arguments", "x"]), JSON), max_size=3),
    others=st.dictionaries(TEXT, JSON, max_size=3),
)
def test_any_message_has_a_segment_that_reads_back_as_itself(role: str, content: Any, calls: Any, others: Any) -> None:
    segment = segment_of(others | {"role": role, "content": content, "tool_calls": calls})
    assert canonical(segment)
    again = segment_of(message_of(segment))
    assert segment_of(message_of(again)) == again


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-ndjson", "text/plain"]))
def test_no_body_raises_anything_but_a_refusal(body: bytes, kind: str) -> None:
    try:
        results = parse_batch(body, kind)
    except EventError:
        return
    assert all(isinstance(result, Parsed | EventError) for result in results)


@given(st.text('[]{}",:\\ua0Ee1.-', max_size=60))
def test_no_json_like_text_raises_anything_but_a_refusal(text: str) -> None:
    with contextlib.suppress(EventError):
        parse_batch(text.encode(), "application/json")
    assert json_depth(text) >= 0


@given(TEXT, JSON)
def test_an_event_comes_out_with_the_text_that_went_in(text: str, extra: Any) -> None:
    content = text.replace("\0", " ")
    segment = {"role": "user", "content": content, "extra": {"member": extra}}
    raw = encoded(step(observation={"segments": [segment]}))
    parsed = parse_event(raw.replace(b"\\u0000", b" "))
    assert parsed.flags == ()
    read = getattr(parsed.event, "observation").segments[0]  # noqa: B009
    assert read.content == content


@given(st.none() | st.text() | st.integers() | st.floats(), st.integers(0, 4 * 10**12))
def test_no_time_raises(value: Any, received_ms: int) -> None:
    event_ms, suspect = event_time(value, received_ms)
    assert event_ms is None or isinstance(event_ms, int)
    assert isinstance(suspect, bool)
