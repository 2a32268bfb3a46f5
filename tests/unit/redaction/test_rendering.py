"""Placeholders: whole, consistent over a trajectory, and never confused with an original."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from ebbtide_governance.redaction.detector import PIECE_CHARS, PIECE_OVERLAP, Cover, Span, pieces, resolve
from ebbtide_governance.redaction.placeholders import PLACEHOLDER, escape, normal_value, unescape
from ebbtide_governance.redaction.render import Renderer
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import Finding
from support.redaction import redact, redact_text

ARGUMENTS = {"guest": "Ines Varga", "card": "4111 1111 1111 1111", "mail": "ines.varga@example.org", "nights": 3}


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "book", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_7", "type": "function", "function": function}],
    }


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_7", "content": content}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def rendered(text: str, spans: list[Span]) -> str:
    segment = Segment(role="user", content=text)
    findings = [Finding(leaf="/content", start=s.start, end=s.end, type=s.type, score=s.score) for s in spans]
    renderer = Renderer()
    renderer.learn(segment, findings)
    content = renderer.render(segment, findings).content
    assert isinstance(content, str)
    return content


# --- tool calls (case 01), no text (case 10), parts (case 20) -----------------------------------------------------


def test_personal_data_in_tool_arguments_and_results_is_replaced_and_json_stays_json() -> None:
    history = [
        user("Book the hotel for me."),
        call(json.dumps(ARGUMENTS)),
        result('{"ok":true,"sent_to":"ines.varga@example.org"}'),
        user("Thanks, all good."),
    ]
    messages = redact(history)
    text = json.dumps(messages)
    for value in ("4111 1111 1111 1111", "4111111111111111", "ines.varga@example.org", "Ines Varga"):
        assert value not in text
    arguments = json.loads(messages[1]["tool_calls"][0]["function"]["arguments"])
    assert list(arguments) == list(ARGUMENTS)
    assert arguments["nights"] == 3
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "call_7"
    assert messages[1]["content"] is None
    assert json.loads(messages[2]["content"]) == {"ok": True, "sent_to": arguments["mail"]}
    assert messages[0] == history[0]
    assert messages[3] == history[3]


def test_a_turn_without_text_keeps_null_and_a_result_without_text_keeps_the_empty_text() -> None:
    messages = redact([call("{}"), result("")])
    assert messages[0]["content"] is None
    assert messages[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert messages[1]["content"] == ""


def test_parts_keep_their_number_and_order_and_bytes_become_a_reference() -> None:
    (message,) = redact(
        [
            user(
                [
                    {"type": "text", "text": "Is this mine? My name is Ines Varga."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    {"type": "image_url", "image_url": {"url": "https://img.example.com/ines.varga@example.org/p.png"}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {"type": "text", "text": ""},
                    {"type": "unknown_future_part", "payload": {"note": "mail ines.varga@example.org"}},
                ]
            )
        ]
    )
    assert message["content"] == [
        {"type": "text", "text": "Is this mine? My name is [PERSON_1]."},
        {"type": "image_url", "image_url": {"url": "[BINARY image/png 8 bytes]"}},
        {"type": "image_url", "image_url": {"url": "https://img.example.com/[EMAIL_1]/p.png"}},
        {"type": "input_audio", "input_audio": {"data": "[BINARY audio/wav 4 bytes]", "format": "wav"}},
        {"type": "text", "text": ""},
        {"type": "unknown_future_part", "payload": {"note": "mail [EMAIL_1]"}},
    ]


# --- one value, one placeholder -----------------------------------------------------------------------------------


def test_a_value_found_once_is_replaced_wherever_it_stands() -> None:
    messages = redact(
        [
            user("It is for Ines Varga, as always."),
            call(json.dumps({"guest": "Ines Varga"})),
            result("booked for INES VARGA (ines_varga_9)"),
        ]
    )
    assert messages[0]["content"] == "It is for [PERSON_1], as always."
    assert messages[2]["content"] == "booked for [PERSON_1] (ines_varga_9)"


def test_placeholders_are_numbered_by_type_in_the_order_of_showing() -> None:
    text = "b@example.org wrote to a@example.org and b@example.org, card 4111 1111 1111 1111"
    assert redact_text(text) == "[EMAIL_1] wrote to [EMAIL_2] and [EMAIL_1], card [CARD_1]"


def test_grouping_and_case_make_no_other_value() -> None:
    text = "4111 1111 1111 1111 is 4111111111111111 is 4111-1111-1111-1111; A@Example.org is a@example.org"
    assert redact_text(text) == "[CARD_1] is [CARD_1] is [CARD_1]; [EMAIL_1] is [EMAIL_1]"


def test_one_value_has_the_type_that_is_surest_over_the_trajectory() -> None:
    assert normal_value("Ines  VARGA") == normal_value("ines varga,")
    spans = [Span(0, 10, "LOCATION", 0.85), Span(12, 22, "PERSON", 0.9)]
    assert rendered("Ines Varga. Ines Varga", spans) == "[PERSON_1]. [PERSON_1]"


def test_half_of_a_known_name_is_known_too() -> None:
    text = "Ines Varga: thank you, Ines. Ms VARGA will write; we varga nothing."
    assert rendered(text, [Span(0, 10, "PERSON", 0.9)]) == (
        "[PERSON_1]: thank you, [PERSON_2]. Ms [PERSON_3] will write; we varga nothing."
    )


def test_a_name_of_three_letters_is_known_where_it_has_its_capital() -> None:
    text = "Emma Ito called. Last name Ito; ito is no word of hers. Ada Quill, dear Ada."
    spans = [Span(0, 8, "PERSON", 0.9), Span(56, 65, "PERSON", 0.9)]
    assert rendered(text, spans) == (
        "[PERSON_1] called. Last name [PERSON_2]; ito is no word of hers. [PERSON_3], dear [PERSON_4]."
    )


def test_an_unsure_or_short_finding_is_replaced_only_where_it_stands() -> None:
    assert rendered("12345 and 12345", [Span(0, 5, "PHONE", 0.4)]) == "[PHONE_1] and 12345"
    assert rendered("Bo and Bo", [Span(0, 2, "PERSON", 0.9)]) == "[PERSON_1] and Bo"


def test_a_known_value_is_no_part_of_a_longer_word() -> None:
    assert rendered("Anna, Annabel, Anna_7", [Span(0, 4, "PERSON", 1.0)]) == "[PERSON_1], Annabel, [PERSON_1]_7"


def test_a_single_word_that_a_model_calls_a_name_is_not_replaced_in_lower_case() -> None:
    assert rendered("Mark, please mark it, MARK", [Span(0, 4, "PERSON", 0.85)]) == (
        "[PERSON_1], please mark it, [PERSON_1]"
    )
    assert rendered("Mark, mark", [Span(0, 4, "PERSON", 1.0)]) == "[PERSON_1], [PERSON_1]"


def test_offsets_hold_behind_letters_whose_lower_case_is_longer() -> None:
    assert rendered("İİİ Ines Varga İ ines varga", [Span(4, 14, "PERSON", 1.0)]) == "İİİ [PERSON_1] İ [PERSON_1]"


def test_the_same_person_keeps_the_placeholder_over_all_steps() -> None:
    messages = redact([user("a@example.org"), user("b@example.org"), user("mail a@example.org")])
    assert [message["content"] for message in messages] == ["[EMAIL_1]", "[EMAIL_2]", "mail [EMAIL_1]"]


# --- originals that look like placeholders --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["[PERSON_1]", "[=PERSON_1]", "[==CARD_12]", "[BINARY image/png 8 bytes]", "a [PERSON_1][EMAIL_2] b", "[TODO]"],
)
def test_an_original_that_looks_like_a_placeholder_is_escaped_and_can_be_read_back(text: str) -> None:
    assert PLACEHOLDER.search(escape(text)) is None
    assert unescape(escape(text)) == text


def test_only_what_was_replaced_reads_as_a_placeholder() -> None:
    assert redact_text("[EMAIL_1] is not a@example.org") == "[=EMAIL_1] is not [EMAIL_1]"


# --- findings that cross (case 03) ------------------------------------------------------------------------------------


def test_crossing_findings_leave_nothing_of_either_and_nothing_else_goes() -> None:
    text = "Ref: Maria Lopez Ortega called"
    spans = [
        Span(5, 16, "PERSON", 0.85),
        Span(11, 23, "LOCATION", 0.40),
        Span(5, 10, "PERSON", 1.0),
        Span(11, 23, "ORG", 0.40),
    ]
    results = {rendered(text, list(order)) for order in itertools.permutations(spans)}
    assert results == {"Ref: [PERSON_1] called"}


def test_a_finding_inside_another_takes_no_character_beyond_them() -> None:
    text = "call 202-555-0143, then check the order."
    spans = [Span(5, 17, "PHONE", 0.75), Span(5, 16, "NATIONAL_ID", 0.75)]
    assert rendered(text, spans) == "call [PHONE_1], then check the order."


def test_a_web_address_that_swallowed_the_end_of_a_card_goes_with_it() -> None:
    text = "The card 4111 1111 1111 1111.com is no web site, right?"
    spans = [Span(9, 28, "CARD", 1.0), Span(24, 32, "URL", 0.5)]
    assert rendered(text, spans) == "The card [CARD_1] is no web site, right?"


def test_equally_sure_findings_are_named_by_the_longest_then_the_first_then_the_type() -> None:
    assert resolve([Span(0, 4, "B", 1.0), Span(2, 8, "C", 1.0)]) == [Cover(0, 8, Span(2, 8, "C", 1.0))]
    assert resolve([Span(0, 4, "B", 1.0), Span(0, 4, "A", 1.0)]) == [Cover(0, 4, Span(0, 4, "A", 1.0))]
    assert len(resolve([Span(0, 4, "A", 1.0), Span(4, 8, "A", 1.0)])) == 2


# --- long texts -----------------------------------------------------------------------------------------------------


def test_a_long_text_is_cut_at_blanks_with_overlaps_that_keep_names_whole() -> None:
    text = "word " * (PIECE_CHARS // 2)
    cut = list(pieces(text))
    assert len(cut) > 1
    for (start, piece), (following, _) in itertools.pairwise(cut):
        assert text[start : start + len(piece)] == piece
        assert start + len(piece) - PIECE_OVERLAP <= following < start + len(piece)
    assert cut[-1][0] + len(cut[-1][1]) == len(text)


def test_a_long_text_without_a_blank_is_cut_all_the_same() -> None:
    assert [len(piece) for _, piece in pieces("x" * (PIECE_CHARS + 10))] == [PIECE_CHARS, PIECE_OVERLAP + 10]
