"""Whole conversations, one JSON object a line, to steps: one per assistant turn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ebbtide_schemas.events import (
    SPEC_VERSION,
    Action,
    EndMark,
    Metadata,
    Observation,
    Outcome,
    RewardAtEmission,
    Segment,
    Step,
    ToolDefinition,
)
from ebbtide_schemas.messages.chat import UNKNOWN_CALL, segments_of
from ebbtide_schemas.validation import EventError

_MEMBERS: Final = frozenset(
    {"messages", "messages_display", "session", "subject", "agent", "reward", "purpose", "model", "tools"}
)
_TEXTS: Final = ("session", "subject", "agent", "purpose", "model")
_DISPLAYED: Final = re.compile(r"^(system|user|assistant|tool):(?: |$)", re.MULTILINE)


@dataclass(frozen=True)
class Transcript:
    """One conversation; ``reward`` None is unknown, never zero."""

    messages: list[dict[str, Any]]
    session: str | None = None
    subject: str | None = None
    agent: str | None = None
    reward: float | None = None
    purpose: str | None = None
    model: str | None = None
    tools: list[ToolDefinition] = field(default_factory=list)


def parse_transcript_line(line: object) -> Transcript:
    """Read one decoded line: an object with ``messages``, and the other members of `Transcript` where they are known.

    ``messages_display`` may stand for ``messages``: one text with a role before each message, as tau-bench
    writes it.

    Raises:
        EventError: names the member and the rule; a member that is not known is refused, since a misspelt
            ``subject`` would leave a person without protection.
    """
    if not isinstance(line, Mapping):
        raise EventError("$", "a line holds one JSON object")
    if unknown := sorted(str(key) for key in line if key not in _MEMBERS):
        raise EventError(unknown[0], "is not a member of a transcript")
    for key in _TEXTS:
        if not isinstance(line.get(key), str | None):
            raise EventError(key, "must be a string or null")
    reward = line.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float | None):
        raise EventError("reward", "must be a number or null")
    if reward is not None and not math.isfinite(reward):
        raise EventError("reward", "must be a finite number")
    return Transcript(
        messages=_read_messages(line),
        reward=None if reward is None else float(reward),
        tools=_read_tools(line.get("tools") or []),
        **{key: line.get(key) or None for key in _TEXTS},
    )


def steps_of_transcript(
    transcript: Transcript,
    *,
    trajectory: str,
    agent: str = "agent",
    subject: str | None = None,
    purpose: str | None = None,
    time: str | int | float | None = None,
) -> list[Step]:
    """The steps of a transcript, in order; what the transcript itself says goes before the defaults given here.

    Tool results that follow a turn are the outcome of its step. The last step ends the trajectory and
    carries the reward. Step ids are ``<trajectory>/<ordinal>``, so that the same call gives the same events.
    """
    who = transcript.subject or subject
    meta = Metadata(
        agent=transcript.agent or agent,
        session=transcript.session or trajectory,
        subjects=[who] if who else [],
        purpose=transcript.purpose or purpose,
        model=transcript.model,
        time=time,
    )
    turns = list(_turns([segment for message in transcript.messages for segment in segments_of(message)]))
    steps: list[Step] = []
    prefix = 0
    for ordinal, turn in enumerate(turns):
        last = ordinal == len(turns) - 1
        rewards = [RewardAtEmission(value=transcript.reward)] if last and transcript.reward is not None else []
        end: EndMark | None = "terminated" if last else None
        steps.append(
            Step(
                specversion=SPEC_VERSION,
                id=f"{trajectory}/{ordinal}",
                trajectory=trajectory,
                ordinal=ordinal,
                parent=f"{trajectory}/{ordinal - 1}" if ordinal else None,
                meta=meta,
                observation=Observation(segments=turn.read, prefix=prefix, tools=[] if ordinal else transcript.tools),
                action=Action(segment=turn.said) if turn.said else None,
                outcome=Outcome(results=turn.results),
                end=end,
                rewards=rewards,
            )
        )
        prefix += len(turn.read) + (turn.said is not None) + len(turn.results)
    return steps


@dataclass
class _Turn:
    """What was read, what was said, and what the tools answered directly after."""

    read: list[Segment] = field(default_factory=list)
    said: Segment | None = None
    results: list[Segment] = field(default_factory=list)


def _turns(segments: Sequence[Segment]) -> Iterator[_Turn]:
    turn = _Turn()
    for segment in segments:
        if segment.role == "assistant":
            if turn.said is not None:
                yield turn
                turn = _Turn()
            turn.said = segment
        elif turn.said is not None and _answers(segment, turn.said):
            turn.results.append(segment)
        else:
            if turn.said is not None:
                yield turn
                turn = _Turn()
            turn.read.append(segment)
    if turn.said is not None or turn.read:
        yield turn


def _answers(segment: Segment, said: Segment) -> bool:
    known = {call.id for call in said.tool_calls}
    return segment.role == "tool" and (segment.tool_call_id in known or segment.tool_call_id == UNKNOWN_CALL)


# --- reading --------------------------------------------------------------------------------------------------


def _read_messages(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    if ("messages" in line) == ("messages_display" in line):
        raise EventError("messages", "exactly one of messages and messages_display is required")
    if "messages_display" in line:
        shown = line["messages_display"]
        if not isinstance(shown, str):
            raise EventError("messages_display", "must be a string")
        messages = _read_display(shown)
        if not messages:
            raise EventError("messages_display", "holds no message")
        return messages
    messages = line["messages"]
    if not isinstance(messages, list) or not messages:
        raise EventError("messages", "must be an array of at least one message")
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise EventError(f"messages[{position}]", "must be an object")
        if not isinstance(message.get("role"), str):
            raise EventError(f"messages[{position}].role", "must be a string")
    return messages


def _read_display(shown: str) -> list[dict[str, Any]]:
    """Chat messages of a display text; a turn before a tool result is the call of a tool whose name is not told."""
    marks = list(_DISPLAYED.finditer(shown))
    messages: list[dict[str, Any]] = []
    calls = 0
    caller: dict[str, Any] | None = None
    for position, mark in enumerate(marks):
        end = marks[position + 1].start() if position + 1 < len(marks) else len(shown)
        role, text = mark[1], shown[mark.end() : end].removesuffix("\n")
        message: dict[str, Any] = {"role": role, "content": text}
        if role == "assistant":
            # Python's None was printed: a turn without text.
            message["content"] = None if text == "None" else text
            caller = message
        elif role == "tool" and caller is not None:
            message["tool_call_id"] = f"call_{calls}"
            function = {"name": "unknown", "arguments": "{}"}
            caller.setdefault("tool_calls", []).append(
                {"id": f"call_{calls}", "type": "function", "function": function}
            )
            calls += 1
        else:
            caller = None
        messages.append(message)
    return messages


def _read_tools(given: object) -> list[ToolDefinition]:
    if not isinstance(given, list):
        raise EventError("tools", "must be an array")
    tools = []
    for position, item in enumerate(given):
        inner = item.get("function", item) if isinstance(item, Mapping) else None
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or not isinstance(inner, Mapping):
            raise EventError(f"tools[{position}]", "must be a tool definition with a name")
        parameters = inner.get("parameters") or inner.get("input_schema") or {}
        if not isinstance(parameters, dict):
            raise EventError(f"tools[{position}].parameters", "must be an object")
        tools.append(ToolDefinition(name=name, description=str(inner.get("description") or ""), parameters=parameters))
    return tools
