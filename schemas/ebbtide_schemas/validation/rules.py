"""Rules between the members of an event: what the types alone cannot say."""

from __future__ import annotations

import binascii
import math
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ebbtide_schemas.events import Event, Metadata, Reward, SamplerRecord, Segment, Step, TokenArray
from ebbtide_schemas.records import Level
from ebbtide_schemas.validation.scan import MAX_DEPTH, EventError, json_depth

MAX_SEGMENTS: Final = 2000
"""Segments of one observation or outcome: their references fill a third of a log record."""
MAX_TOOLS: Final = 500
"""Tool definitions of one step, and calls of one segment."""
MAX_REMOVED: Final = 10_000
"""Positions that one compaction or edit takes out."""
MAX_SUBJECTS: Final = 64
"""People one segment is about: a content key is wrapped once for each, inside one another."""
MAX_CORRELATIONS: Final = 64
"""External ids of one step: each is a record of its own."""
MAX_REWARDS: Final = 64
"""Rewards known at emission: each becomes a record of its own."""


def check_event(event: Event) -> None:
    """Hold an event of the right types against the rules of ATDP/1, section 5.

    Raises:
        EventError: the first rule that is broken, with the field.
    """
    if isinstance(event, Reward):
        _check_reward(event)
    else:
        _check_step(event)


def level_of(step: Step) -> Level:
    """What a step can be used for, from what its sampler record holds; a step without action is *recorded*."""
    sampler = step.action.sampler if step.action else None
    if sampler is None:
        return "recorded"
    named = sampler.prompt_digest and sampler.tokenizer and sampler.chat_template and sampler.base_model
    if named and sampler.output.data:
        return "token-exact"
    return "replayable" if sampler.sampling and (step.meta.model or sampler.base_model) else "recorded"


# --- rewards ----------------------------------------------------------------------------------------------


def _check_reward(reward: Reward) -> None:
    target = reward.target
    named = (target.trajectory, target.step, target.response, target.correlation)
    if sum(member is not None for member in named) != 1:
        raise EventError("target", "names exactly one of trajectory, step, response and correlation")
    if reward.supersedes == reward.id:
        raise EventError("supersedes", "a reward cannot supersede itself")


# --- steps --------------------------------------------------------------------------------------------------


def _check_step(step: Step) -> None:
    _check_place(step)
    _check_metadata(step.meta)
    _check_count("observation.segments", step.observation.segments, MAX_SEGMENTS)
    _check_count("observation.tools", step.observation.tools, MAX_TOOLS)
    _check_count("outcome.results", step.outcome.results, MAX_SEGMENTS)
    _check_count("rewards", step.rewards, MAX_REWARDS)
    for field, segment in _segments(step):
        _check_segment(field, segment)
    if step.action is not None and step.action.segment.role != "assistant":
        raise EventError("action.segment.role", "must be assistant")
    if step.outcome.results and step.action is None:
        raise EventError("outcome.results", "need an action that asked for them")
    for position, result in enumerate(step.outcome.results):
        if result.role != "tool":
            raise EventError(f"outcome.results[{position}].role", "must be tool")
    if step.action is not None and step.action.sampler is not None:
        _check_sampler(step.action.sampler)


def _check_place(step: Step) -> None:
    if step.parent is not None and step.ordinal == 0:
        raise EventError("parent", "the step with ordinal 0 has no parent")
    if step.parent == step.id:
        raise EventError("parent", "a step cannot be its own parent")
    if step.parent is None and step.branch in ("fork", "compaction", "edit"):
        raise EventError("branch", "fork, compaction and edit need a parent")
    if step.removed and step.branch not in ("compaction", "edit"):
        raise EventError("removed", "only a compaction or an edit removes segments")
    _check_count("removed", step.removed, MAX_REMOVED)
    if any(second <= first for first, second in pairwise(step.removed)):
        raise EventError("removed", "positions must rise")
    if step.end is None and step.action is None and not step.observation.segments:
        raise EventError("$", "a step needs an observation, an action or an end mark")


def _check_metadata(meta: Metadata) -> None:
    _check_count("meta.subjects", meta.subjects, MAX_SUBJECTS)
    _check_count("meta.correlations", meta.correlations, MAX_CORRELATIONS)
    if meta.group is not None and meta.group.index is not None and meta.group.index >= meta.group.size:
        raise EventError("meta.group.index", "must be less than the size of the group")


def _segments(step: Step) -> Iterator[tuple[str, Segment]]:
    for position, segment in enumerate(step.observation.segments):
        yield f"observation.segments[{position}]", segment
    if step.action is not None:
        yield "action.segment", step.action.segment
    for position, segment in enumerate(step.outcome.results):
        yield f"outcome.results[{position}]", segment


def _check_segment(field: str, segment: Segment) -> None:
    if segment.role == "tool" and segment.tool_call_id is None:
        raise EventError(f"{field}.tool_call_id", "a tool result names the call it answers")
    if segment.role != "tool" and segment.tool_call_id is not None:
        raise EventError(f"{field}.tool_call_id", "only a tool result answers a call")
    if segment.tool_calls and segment.role != "assistant":
        raise EventError(f"{field}.tool_calls", "only the assistant calls tools")
    _check_count(f"{field}.subjects", segment.subjects or (), MAX_SUBJECTS)
    _check_count(f"{field}.tool_calls", segment.tool_calls, MAX_TOOLS)
    if len({call.id for call in segment.tool_calls}) != len(segment.tool_calls):
        raise EventError(f"{field}.tool_calls", "two calls have the same id")
    for position, call in enumerate(segment.tool_calls):
        if json_depth(call.arguments) > MAX_DEPTH:
            raise EventError(
                f"{field}.tool_calls[{position}].arguments", f"at most {MAX_DEPTH} levels of nesting", "too_large"
            )


# --- sampler records --------------------------------------------------------------------------------------------


def _check_sampler(sampler: SamplerRecord) -> None:
    field = "action.sampler"
    _read_tokens(f"{field}.prompt_delta", sampler.prompt_delta, "u32le")
    length = len(_read_tokens(f"{field}.output", sampler.output, "u32le")) // 4
    if (sampler.logprobs is None) != (sampler.logprob_kind is None):
        raise EventError(f"{field}.logprob_kind", "stands exactly where logprobs do")
    if sampler.logprobs is not None:
        raw = _read_tokens(f"{field}.logprobs", sampler.logprobs, "f32le")
        if len(raw) // 4 != length:
            raise EventError(f"{field}.logprobs", "must have one value per output token")
        if any(math.isnan(value) for (value,) in struct.iter_unpack("<f", raw)):
            raise EventError(f"{field}.logprobs", "must not hold NaN")
    spans = [(span.start, span.end) for span in sampler.adapters]
    _check_spans(f"{field}.adapters", spans, length)
    _check_spans(f"{field}.segment_tokens", sampler.segment_tokens, None)


def _read_tokens(field: str, tokens: TokenArray, dtype: str) -> bytes:
    if tokens.dtype != dtype:
        raise EventError(f"{field}.dtype", f"must be {dtype}")
    try:
        raw = binascii.a2b_base64(tokens.data, strict_mode=True)
    except ValueError:
        raise EventError(f"{field}.data", "must be base64 (RFC 4648, section 4)") from None
    if len(raw) % 4:
        raise EventError(f"{field}.data", "must be whole values of four bytes")
    return raw


def _check_spans(field: str, spans: Sequence[tuple[int, int]], length: int | None) -> None:
    """Half-open, in order, not overlapping, and inside ``length`` where that is known."""
    end = 0
    for position, (start, stop) in enumerate(spans):
        if not end <= start <= stop or (length is not None and stop > length):
            raise EventError(f"{field}[{position}]", "token ranges rise, do not overlap and stay inside the output")
        end = stop


def _check_count(field: str, items: Sequence[object], limit: int) -> None:
    if len(items) > limit:
        raise EventError(field, f"holds at most {limit}", "too_large")
