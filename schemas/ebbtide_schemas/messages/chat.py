"""One chat message to a segment and back.

Read are the OpenAI form (text, null, content parts, tool calls, the older function call), Anthropic's
``tool_use`` and ``tool_result`` parts, and the ``parts`` of OpenTelemetry's GenAI conventions. The same
turn in any of these forms gives the same segment. What is not known is kept in ``extra``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast, get_args

import msgspec

from ebbtide_schemas.canonical import MAX_INTEGER
from ebbtide_schemas.events import Role, Segment, ToolCall
from ebbtide_schemas.samples import SampleMessage

_ROLES: Final = frozenset(get_args(Role))
_OTHER_ROLES: Final = {"function": "tool", "model": "assistant", "ai": "assistant", "human": "user"}
_REASONING: Final = ("reasoning", "reasoning_content", "thinking")
_READ: Final = frozenset(
    {"role", "content", "parts", "tool_calls", "function_call", "tool_call_id", "name", "subjects", *_REASONING}
    # What ended the turn belongs to the outcome of a step.
    | {"finish_reason"}
)
_MAX_NAME: Final = 256
UNKNOWN_CALL: Final = "call_unknown"
"""Stands for the id of a call that a tool result does not name."""


def segment_of(message: Mapping[str, Any]) -> Segment:
    """The segment of one chat message; several tool results in one message stay parts of its content.

    Never raises for what a model server writes: strange content becomes JSON text, an unknown role a user
    whose own word for it stands in ``extra``.
    """
    given = str(message.get("role", "user"))
    role = _OTHER_ROLES.get(given, given)
    calls, call_extras = _calls(message)
    content: object = message.get("content")
    reasoning = next((message[key] for key in _REASONING if isinstance(message.get(key), str)), None)
    answers = message.get("tool_call_id")
    if content is None and isinstance(message.get("parts"), Sequence):
        content, part_calls, part_reasoning, part_answers = _read_parts(message["parts"])
        calls += [_call(call, len(calls) + i) for i, call in enumerate(part_calls)]
        reasoning = reasoning or part_reasoning
        if part_answers is not None:
            role, answers = "tool", part_answers
    elif isinstance(content, list) and role == "assistant":
        uses = [part for part in content if _is_part(part, "tool_use")]
        calls += [_call(use, len(calls) + i) for i, use in enumerate(uses)]
        content = _simplify([part for part in content if part not in uses]) if uses else content
    extra = {str(k): _plain(v) for k, v in message.items() if k not in _READ and v is not None}
    extra |= {k: _plain(message[k]) for k in _REASONING if message.get(k) and not isinstance(message[k], str)}
    if any(call_extras):
        extra["tool_calls"] = call_extras
    if role not in _ROLES:
        role, extra["role"] = "user", given
    name = message.get("name")
    if name is not None and not (isinstance(name, str) and len(name) <= _MAX_NAME):
        name, extra["name"] = None, _plain(name)
    if role == "tool":
        answers = str(answers or message.get("name") or UNKNOWN_CALL)
    elif answers is not None:
        answers, extra["tool_call_id"] = None, _plain(answers)
    if calls and role != "assistant":
        calls, extra["tool_calls"] = [], _plain(message.get("tool_calls") or message.get("parts"))
    return Segment(
        role=cast(Role, role),
        content=None if calls and content in ("", []) else _content(content),
        tool_calls=calls,
        tool_call_id=answers,
        name=name,
        reasoning=reasoning or None,
        extra=extra,
        subjects=_subjects(message.get("subjects")),
    )


def segments_of(message: Mapping[str, Any]) -> list[Segment]:
    """`segment_of`, with each tool result that stands as a part of the message as a segment of its own."""
    key = "parts" if message.get("content") is None else "content"
    parts = message.get(key)
    if not isinstance(parts, list):
        return [segment_of(message)]
    results = [part for part in parts if _is_part(part, "tool_result") or _is_part(part, "tool_call_response")]
    if not results or (key == "parts" and len(parts) == 1):
        return [segment_of(message)]
    rest = [part for part in parts if part not in results]
    segments = [segment_of(_result_message(part)) for part in results]
    return segments + ([segment_of({**message, key: rest})] if rest else [])


def message_of(segment: Segment | SampleMessage) -> dict[str, Any]:
    """The OpenAI form of a segment or of a message of a sample; ``content`` is always there, if only as null."""
    extra = dict(segment.extra)
    call_extras = extra.pop("tool_calls", None)
    message: dict[str, Any] = {"role": segment.role, "content": segment.content}
    if segment.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in segment.tool_calls
        ]
        if isinstance(call_extras, list):
            for call, members in zip(message["tool_calls"], call_extras, strict=False):
                call.update(members)
    elif call_extras is not None:
        message["tool_calls"] = call_extras
    for key, value in (
        ("tool_call_id", segment.tool_call_id),
        ("name", segment.name),
        ("reasoning_content", segment.reasoning),
    ):
        if value is not None:
            message[key] = value
    return message | extra


# --- tool calls ---------------------------------------------------------------------------------------------


def _calls(message: Mapping[str, Any]) -> tuple[list[ToolCall], list[dict[str, Any]]]:
    """The calls, and for each what else stood in it."""
    given = message.get("tool_calls")
    calls = [call for call in given if isinstance(call, Mapping)] if isinstance(given, list | tuple) else []
    older = message.get("function_call")
    if not calls and isinstance(older, Mapping):
        calls = [older]
    known = {"id", "type", "function", "custom", "name", "arguments", "input"}
    extras = [{str(k): _plain(v) for k, v in call.items() if k not in known and v is not None} for call in calls]
    return [_call(call, position) for position, call in enumerate(calls)], extras


def _call(call: Mapping[str, Any], position: int) -> ToolCall:
    inner = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), Mapping)), call)
    arguments = next((inner[key] for key in ("arguments", "input") if inner.get(key) is not None), None)
    return ToolCall(
        id=str(call.get("id") or f"call_{position}"),
        name=str(inner.get("name") or "unknown"),
        arguments=_text(arguments) if arguments is not None else "{}",
    )


# --- content ------------------------------------------------------------------------------------------------


def _read_parts(
    parts: Iterable[Any],
) -> tuple[object, list[Mapping[str, Any]], str | None, str | None]:
    """(content, tool calls, reasoning, answered call) of OpenTelemetry's parts."""
    rest: list[object] = []
    calls: list[Mapping[str, Any]] = []
    reasoning: list[str] = []
    answers: str | None = None
    for part in parts:
        if _is_part(part, "tool_call"):
            calls.append(part)
        elif _is_part(part, "reasoning") and isinstance(part.get("content"), str):
            reasoning.append(part["content"])
        elif _is_part(part, "tool_call_response") and answers is None and not rest:
            answers = str(part.get("id") or UNKNOWN_CALL)
            # The prose of the conventions says `result`, their schema `response`.
            rest.append({"type": "text", "text": _text(part.get("response", part.get("result", "")))})
        elif _is_part(part, "text") and "text" not in part:
            rest.append({"type": "text", "text": _text(part.get("content", ""))})
        else:
            rest.append(part)
    return _simplify(rest), calls, "\n\n".join(reasoning) or None, answers


def _simplify(parts: list[object]) -> object:
    """A single text is the text itself; nothing is the empty text."""
    if not parts:
        return ""
    only = parts[0]
    if len(parts) == 1 and isinstance(only, Mapping) and set(only) == {"type", "text"}:
        return only["text"]
    return parts


def _content(content: object) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping | str) for part in content):
        return [{"type": "text", "text": part} if isinstance(part, str) else _plain(part) for part in content]
    return _text(content)


def _result_message(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "tool_call_response":
        return {"role": "tool", "parts": [part]}
    content = part.get("content", "")
    return {
        "role": "tool",
        "tool_call_id": part.get("tool_use_id"),
        "content": _simplify(content) if isinstance(content, list) else content,
        **{key: value for key, value in part.items() if key not in ("type", "tool_use_id", "content")},
    }


def _is_part(part: object, kind: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") == kind


def _subjects(given: object) -> list[str] | None:
    return [str(item) for item in given] if isinstance(given, list | tuple) else None


def _text(value: object) -> str:
    """A string is itself; anything else its JSON, so that null is the text ``null`` only where it was a value."""
    return value if isinstance(value, str) else json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Data that every JSON reader takes: what is no number to some of them becomes text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    try:
        return _plain(msgspec.to_builtins(value))
    except TypeError:
        return f"<{type(value).__name__}>"  # never repr: it may show what the program keeps to itself
