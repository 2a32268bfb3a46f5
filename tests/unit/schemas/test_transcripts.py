"""Plain conversations to steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide_schemas.messages import parse_transcript_line, steps_of_transcript
from ebbtide_schemas.validation import EventError, parse_event

CALL = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Status of order 88?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "assistant", "content": "It is on its way."},
    {"role": "user", "content": "ok"},
]


def test_each_assistant_turn_is_a_step_and_the_last_one_ends_the_trajectory() -> None:
    line = {"messages": CHAT, "session": "s", "subject": "user-42", "agent": "support", "reward": 0}
    first, second, last = steps_of_transcript(parse_transcript_line(line), trajectory="t", purpose="training")
    assert [segment.role for segment in first.observation.segments] == ["system", "user"]
    assert [segment.content for segment in first.outcome.results] == [""]
    assert (second.parent, second.observation.prefix, second.observation.segments) == ("t/0", 4, [])
    assert (last.action, last.end, last.observation.prefix) == (None, "terminated", 5)
    assert [step.end for step in (first, second)] == [None, None]
    assert [[r.value for r in step.rewards] for step in (first, second, last)] == [[], [], [0.0]]
    assert (first.meta.subjects, first.meta.session, first.meta.purpose) == (["user-42"], "s", "training")


def test_the_steps_pass_the_door_and_come_out_the_same_twice() -> None:
    for _ in range(2):
        steps = steps_of_transcript(parse_transcript_line({"messages": CHAT}), trajectory="t")
        assert [parse_event(msgspec.json.encode(step)).event for step in steps] == steps


def test_a_result_that_does_not_follow_its_call_is_read_by_the_next_turn() -> None:
    chat = [CHAT[1], CHAT[2], CHAT[5], CHAT[3], CHAT[4]]
    first, second = steps_of_transcript(parse_transcript_line({"messages": chat}), trajectory="t")
    assert first.outcome.results == []
    assert [segment.role for segment in second.observation.segments] == ["user", "tool"]


def test_tool_definitions_stand_in_the_first_step() -> None:
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
    steps = steps_of_transcript(parse_transcript_line({"messages": CHAT, "tools": tools}), trajectory="t")
    assert [[tool.name for tool in step.observation.tools] for step in steps] == [["lookup"], [], []]


def test_a_display_of_several_lines_is_read_message_by_message() -> None:
    shown = 'user: Hi,\n\nI am new.\nassistant: None\ntool: {"a": 1}\nassistant: Let me see.\ntool: x\ntool: y\n'
    shown += "assistant: Done"
    first, second, last = steps_of_transcript(parse_transcript_line({"messages_display": shown}), trajectory="t")
    assert first.observation.segments[0].content == "Hi,\n\nI am new."
    assert first.action is not None
    assert (first.action.segment.content, first.action.segment.tool_calls[0].name) == (None, "unknown")
    assert first.outcome.results[0].content == '{"a": 1}'
    assert second.action is not None
    assert second.action.segment.content == "Let me see."
    assert [call.id for call in second.action.segment.tool_calls] == ["call_1", "call_2"]
    assert [segment.content for segment in second.outcome.results] == ["x", "y"]
    assert last.end == "terminated"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ([], "$"),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": CHAT, "messages_display": "user: x"}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": CHAT, "subjct": "user-42"}, "subjct"),
        ({"messages": CHAT, "subject": 5}, "subject"),
        ({"messages": CHAT, "reward": "1"}, "reward"),
        ({"messages": CHAT, "reward": True}, "reward"),
        ({"messages": CHAT, "reward": float("nan")}, "reward"),
        ({"messages": CHAT, "tools": [{}]}, "tools[0]"),
        ({"messages_display": "hello"}, "messages_display"),
    ],
)
def test_a_line_that_is_no_transcript_is_refused_by_field(line: object, field: str) -> None:
    with pytest.raises(EventError) as refused:
        parse_transcript_line(line)
    assert refused.value.field == field
