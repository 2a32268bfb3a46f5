"""Which strings of a segment are looked at, and that taking it apart and together changes nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide_governance.redaction.scan import scan
from ebbtide_governance.redaction.walker import Leaf, blobs, leaves, rewrite
from ebbtide_schemas.events import Segment, ToolCall


def tool(content: str) -> Segment:
    return Segment(role="tool", content=content, tool_call_id="call_7")


def texts(segment: Segment) -> dict[str, str]:
    return {leaf.address + ("(key)" if leaf.key else ""): leaf.text for leaf in leaves(segment)}


def shout(leaf: Leaf) -> str:
    return leaf.text.upper()


def test_every_string_of_a_segment_is_a_leaf_and_protocol_fields_are_none() -> None:
    segment = Segment(
        role="assistant",
        content=[{"type": "text", "text": "hello"}, {"type": "new", "id": "part-1", "inner": {"notes": ["a", "b"]}}],
        tool_calls=[ToolCall(id="call_7", name="book", arguments='{"guest": "Ines", "nights": 3}')],
        name="Ines",
        reasoning="she asks",
        extra={"refusal": "no"},
        subjects=["user-42"],
    )
    assert texts(segment) == {
        "/name": "Ines",
        "/reasoning": "she asks",
        "/content/0/0": "hello",
        "/content/1/1/0/0": "a",
        "/content/1/1/0/1": "b",
        "/tool_calls/0/arguments#/0": "Ines",
        "/extra/0": "no",
    }


def test_an_address_names_no_key_because_findings_travel_in_clear() -> None:
    found = leaves(tool('{"ines.varga@example.org": {"role": "guest of Ines"}}'))
    assert [(leaf.address, leaf.key) for leaf in found] == [("/content#/0", True), ("/content#/0/0", False)]


def test_a_leaf_knows_the_member_it_stands_under() -> None:
    found = leaves(tool('{"customer_name": "ines", "mails": ["x"], "at": {"street": "y"}}'))
    assert [leaf.label for leaf in found] == ["customer_name", "mails", "street"]


def test_a_part_that_hides_text_in_a_protocol_field_is_looked_at() -> None:
    segment = Segment(role="user", content=[{"type": "text", "id": "ines@example.org", "text": ""}])
    assert texts(segment) == {"/content/0/0": "ines@example.org"}


def test_json_inside_json_inside_a_string_is_entered() -> None:
    inner = json.dumps({"mail": "a@example.org"})
    assert texts(tool(json.dumps({"body": inner}))) == {"/content#/0#/0": "a@example.org"}


@pytest.mark.parametrize("content", [None, "", "null", "[]", "{}"])
def test_what_has_no_text_has_nothing_to_look_at_and_stays_as_it_is(content: str | None) -> None:
    segment = Segment(role="assistant", content=content)
    assert scan(segment).texts in ((), ("null",))
    assert rewrite(segment, lambda leaf: leaf.text).content == content


def test_json_text_keeps_every_character_that_is_not_a_changed_string() -> None:
    text = '{ "a" :\t1.50, "big": 123456789012345678901234567890,\n "b": ["x", true, null, NaN], "a": "y\\u0041" }'
    assert rewrite(tool(text), lambda leaf: leaf.text).content == text
    changed = rewrite(tool(text), shout).content
    assert changed == text.replace('"x"', '"X"').replace('"y\\u0041"', '"YA"')


def test_two_members_of_one_name_have_two_addresses() -> None:
    assert texts(tool('{"a": "x", "a": "y"}')) == {"/content#/0": "x", "/content#/1": "y"}


def test_keys_that_become_equal_stay_apart() -> None:
    text = '{"a@example.org": 1, "b@example.org": 2}'
    changed = rewrite(tool(text), lambda leaf: "[EMAIL_1]")
    assert isinstance(changed.content, str)
    assert json.loads(changed.content) == {"[EMAIL_1]": 1, "[EMAIL_1]~2": 2}
    extra = rewrite(Segment(role="user", extra=json.loads(text)), lambda leaf: "[EMAIL_1]").extra
    assert extra == {"[EMAIL_1]": 1, "[EMAIL_1]~2": 2}


def test_text_that_only_looks_like_json_is_text() -> None:
    assert texts(tool('{"a": "x"} and more')) == {"/content": '{"a": "x"} and more'}
    deep = "[" * 100_000 + "]" * 100_000
    assert texts(tool(deep)) == {"/content": deep}


def test_a_lone_surrogate_in_json_text_is_shown_as_a_replacement_and_left_alone() -> None:
    text = '{"a": "bad \\udcb2 half"}'
    assert texts(tool(text)) == {"/content#/0": "bad \ufffd half"}
    assert rewrite(tool(text), lambda leaf: leaf.text).content == text


def test_the_six_characters_of_an_escaped_nul_stay() -> None:
    text = "nul \ufffd here and the literal text \\u0000"
    assert rewrite(Segment(role="user", content=text), lambda leaf: leaf.text).content == text


def test_names_by_which_a_producer_knows_people_do_not_pass() -> None:
    assert rewrite(Segment(role="user", content="x", subjects=["ines@example.org"]), shout).subjects is None


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}, [(0, 34, "image/png", 8)]),
        ({"text": "see data:;base64,AAAA now"}, [(4, 21, "application/octet-stream", 3)]),
        ({"input_audio": {"data": "UklGRg==", "format": "wav"}}, [(0, 8, "audio/wav", 4)]),
        ({"source": {"data": "UklGRg==", "media_type": "image/gif"}}, [(0, 8, "image/gif", 4)]),
        ({"blob": "Zm9v" * 80}, [(0, 320, "application/octet-stream", 240)]),
        ({"data": "Hello123"}, []),
        ({"rule": "a" * 400}, []),
    ],
    ids=["picture", "in prose", "sound", "source", "long run", "a word called data", "a ruler"],
)
def test_bytes_are_told_from_text(part: dict[str, Any], expected: list[tuple[int, int, str, int]]) -> None:
    segment = Segment(role="user", content=[part])
    found = [blob for leaf in leaves(segment) for blob in blobs(leaf)]
    assert [(blob.start, blob.end, blob.media, blob.size) for blob in found] == expected
    assert scan(segment).binary is bool(expected)
