"""Redaction over texts, JSON and findings of any shape."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide_governance.redaction.detector import PIECE_CHARS, Span, pieces, resolve
from ebbtide_governance.redaction.placeholders import PLACEHOLDER, escape, unescape
from ebbtide_governance.redaction.walker import leaves, rewrite
from ebbtide_schemas.events import Segment
from support.redaction import redact

VALUES = ("ines.varga@example.org", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "+1 202-555-0143")

plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
strings = plain | st.tuples(plain, st.sampled_from(VALUES), plain).map(" ".join)
keys = st.from_regex(r"[a-z]{1,6}\Z") | st.sampled_from(VALUES)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | inner.map(lambda value: json.dumps({"inner": value}))
    ),
    max_leaves=8,
)
spans = st.builds(
    lambda start, length, kind, score: Span(start, start + length, kind, score),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from("ABC"),
    st.sampled_from((0.4, 0.85, 1.0)),
)


def shape(value: Any) -> Any:
    """The value with every string forgotten, also in JSON that a string holds."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            return str
        return (str, shape(inner)) if isinstance(inner, dict | list) else str
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, Mapping):
        return (len(value), sorted(repr(shape(item)) for item in value.values()))
    return value


@settings(deadline=None)
@given(st.lists(spans, max_size=8), st.randoms(use_true_random=False))
def test_covers_touch_every_found_character_once_whatever_the_order(found: list[Span], shuffler: random.Random) -> None:
    covers = resolve(found)
    covered = [position for cover in covers for position in range(cover.start, cover.end)]
    assert covered == sorted({position for span in found for position in range(span.start, span.end)})
    shuffler.shuffle(found)
    assert resolve(found) == covers


@settings(deadline=None)
@given(documents)
def test_a_tool_result_keeps_its_shape_and_loses_every_planted_value(document: Any) -> None:
    text = json.dumps(document, ensure_ascii=False)
    (message,) = redact([{"role": "tool", "tool_call_id": "c", "content": text}])
    assert shape(json.loads(message["content"])) == shape(document)
    assert not any(value in message["content"] for value in VALUES)


@settings(deadline=None)
@given(documents)
def test_taking_a_segment_apart_and_together_changes_no_character(document: Any) -> None:
    segment = Segment(role="user", content=json.dumps(document), extra={"given": document})
    assert rewrite(segment, lambda leaf: leaf.text) == segment


@settings(deadline=None)
@given(documents)
def test_every_leaf_has_an_address_of_its_own(document: Any) -> None:
    found = leaves(Segment(role="user", content=json.dumps(document), extra={"given": document}))
    assert len({(leaf.address, leaf.key) for leaf in found}) == len(found)


@settings(deadline=None)
@given(plain, st.sampled_from(["[PERSON_1]", "[=PERSON_1]", "[BINARY a/b 3 bytes]", ""]), plain)
def test_an_escaped_text_reads_back_and_shows_no_placeholder(before: str, lookalike: str, after: str) -> None:
    text = before + lookalike + after
    assert PLACEHOLDER.search(escape(text)) is None
    assert unescape(escape(text)) == text


@settings(deadline=None)
@given(st.integers(0, 3 * PIECE_CHARS), st.integers(1, 400))
def test_pieces_cover_a_text_without_a_gap(length: int, blank_every: int) -> None:
    text = "".join(" " if position % blank_every == 0 else "x" for position in range(length))
    end = 0
    for offset, piece in pieces(text):
        assert offset <= end
        assert text[offset : offset + len(piece)] == piece
        end = offset + len(piece)
    assert end == len(text)
