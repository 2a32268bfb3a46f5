"""One episode of an agent: what it read, said and called, as ATDP/1 steps of one trajectory.

An agent resends its whole history with every call. A session remembers what it has recorded and sends
only the messages that are new; when the history was changed, the next step says which segments left it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from ebbtide.encoding import encode_event, json_text
from ebbtide_schemas.events import (
    SPEC_VERSION,
    Action,
    BranchKind,
    Correlation,
    EndMark,
    Group,
    Metadata,
    Observation,
    Outcome,
    Reward,
    RewardSource,
    RewardTarget,
    Segment,
    Step,
    ToolCall,
    Usage,
)
from ebbtide_schemas.messages import segment_of, segments_of

log = logging.getLogger("ebbtide")

Sink = Callable[[bytes], None]
current: ContextVar[Session | None] = ContextVar("ebbtide_session", default=None)
"""The session that ``@ebbtide.tool`` reports to."""


@dataclass(frozen=True)
class _Recorded:
    """One segment of the recorded context; ``unseen`` ones came from `tool` and may be absent from the messages."""

    key: bytes
    unseen: bool = False


class Session:
    """Records steps and rewards of one trajectory; no call blocks or raises into the agent."""

    def __init__(self, sink: Sink, flush: Callable[[], object], meta: Metadata, trajectory: str) -> None:
        self.trajectory = trajectory
        self._sink = sink
        self._flush = flush
        self._meta = meta
        self._lock = threading.Lock()
        self._context: list[_Recorded] = []
        self._ordinal = 0
        self._parent: str | None = None
        self._ended = False
        self._entered: Token[Session | None] | None = None

    # --- recording -----------------------------------------------------------------------------------------

    def record(
        self,
        messages: Sequence[Mapping[str, Any]],
        answer: Any,
        *,
        model: str | None = None,
        finish_reason: str | None = None,
    ) -> str:
        """Record one model call and return the answer's id, by which it can be rewarded days later.

        ``messages`` is the history the model read, in chat form; ``answer`` a string, a chat message or an
        OpenAI-style completion object.
        """
        step = str(uuid.uuid4())
        try:
            said, response, usage, reason = _read_answer(answer)
            read = [segment for message in messages for segment in segments_of(message)]
            with self._lock:
                branch, kept, removed, new = self._compare(read)
                meta = msgspec.structs.replace(self._meta, model=model or self._meta.model, response_id=response)
                self._emit(
                    step,
                    meta=meta,
                    branch=branch,
                    removed=removed,
                    observation=Observation(segments=new, prefix=kept),
                    action=Action(segment=said),
                    outcome=Outcome(finish_reason=finish_reason or reason, usage=usage),
                )
                gone = set(removed)
                self._context = [item for i, item in enumerate(self._context) if i not in gone]
                self._context += [_Recorded(_key(segment)) for segment in (*new, said)]
        except Exception as error:  # the promise of this class: whatever is wrong, the agent goes on
            _warn(error)
        return step

    def tool(
        self, name: str, arguments: Any, result: Any, *, call_id: str | None = None, error: str | None = None
    ) -> str:
        """Record a tool call the messages do not show, with its result; returns the step's id."""
        step = str(uuid.uuid4())
        try:
            call = ToolCall(id=call_id or f"call_{step[:8]}", name=name, arguments=json_text(arguments))
            said = Segment(role="assistant", tool_calls=[call])
            content = result if isinstance(result, str) else json_text(result)
            answered = Segment(role="tool", tool_call_id=call.id, name=name, content=content)
            with self._lock:
                outcome = Outcome(results=[answered], status="error" if error else "ok", error=error)
                observation = Observation(prefix=len(self._context))
                self._emit(step, meta=self._meta, observation=observation, action=Action(segment=said), outcome=outcome)
                self._context += [_Recorded(_key(segment), unseen=True) for segment in (said, answered)]
        except Exception as trouble:  # see record
            _warn(trouble)
        return step

    def reward(
        self,
        value: float,
        name: str = "reward",
        *,
        source: RewardSource = "environment",
        reason: str | None = None,
        reward_id: str | None = None,
    ) -> str:
        """Reward the whole trajectory; returns the reward's id."""
        target = RewardTarget(trajectory=self.trajectory)
        return send_reward(self._sink, target, value, name=name, source=source, reason=reason, reward_id=reward_id)

    def end(self, mark: EndMark = "terminated") -> None:
        """Say that the trajectory is over; leaving the ``with`` block does it."""
        with self._lock:
            if self._ended or self._ordinal == 0:
                return
            self._ended = True
            observation = Observation(prefix=len(self._context))
            self._emit(str(uuid.uuid4()), meta=self._meta, observation=observation, end=mark)

    # --- the with block ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._entered = current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is not None:
            current.reset(self._entered)
        self.finish("aborted" if kind is not None else "terminated")

    def finish(self, mark: EndMark) -> None:
        """End the trajectory and wait a bounded time until it is sent."""
        try:
            self.end(mark)
            self._flush()
        except Exception as trouble:  # see record
            _warn(trouble)

    # --- inside -------------------------------------------------------------------------------------------------

    def _compare(self, read: Sequence[Segment]) -> tuple[BranchKind, int, list[int], list[Segment]]:
        """(branch kind, segments kept, positions that left the context, new segments) for a history that was read."""
        matched = position = 0
        while position < len(self._context) and matched < len(read):
            if self._context[position].key == _key(read[matched]):
                matched += 1
            elif not self._context[position].unseen:
                break
            position += 1
        left = self._context[position:]
        if all(item.unseen for item in left):
            return "continue", len(self._context), [], list(read[matched:])
        removed = list(range(position, len(self._context)))
        return "edit", position, removed, list(read[matched:])

    def _emit(self, step: str, *, meta: Metadata, **parts: Any) -> None:
        event = Step(
            specversion=SPEC_VERSION,
            id=step,
            trajectory=self.trajectory,
            ordinal=self._ordinal,
            parent=self._parent,
            meta=msgspec.structs.replace(meta, time=_now()),
            **parts,
        )
        self._sink(encode_event(event))
        self._ordinal += 1
        self._parent = step


def open_session(
    sink: Sink,
    flush: Callable[[], object],
    *,
    agent: str,
    subject: str | None,
    purpose: str | None,
    session: str | None,
    trajectory: str | None,
    model: str | None,
    group: Group | None,
    labels: Mapping[str, str],
    correlations: Mapping[str, str] | None = None,
) -> Session:
    """A session whose every step carries the same metadata.

    Raises:
        TypeError: ``labels`` has a name that ATDP/1 metadata does not know.
    """
    episode = trajectory or str(uuid.uuid4())
    meta = Metadata(
        agent=agent,
        session=session or episode,
        subjects=[subject] if subject else [],
        purpose=purpose,
        model=model,
        group=group,
        correlations=[Correlation(kind=kind, value=value) for kind, value in (correlations or {}).items()],
        **labels,  # the names are checked by the constructor itself
    )
    return Session(sink, flush, meta, episode)


def send_reward(
    sink: Sink,
    target: RewardTarget,
    value: float,
    *,
    name: str,
    source: RewardSource,
    reason: str | None,
    reward_id: str | None,
    supersedes: str | None = None,
) -> str:
    """Queue a reward and return its id.

    Under an id of the caller's own nothing but the caller's words goes into the event, so that sending it again
    is the same event and harmless; the time it happened is then the time it is received.
    """
    event = Reward(
        specversion=SPEC_VERSION,
        id=reward_id or str(uuid.uuid4()),
        target=target,
        value=value,
        name=name,
        source=source,
        reason=reason,
        time=None if reward_id else _now(),
        supersedes=supersedes,
    )
    try:
        sink(encode_event(event))
    except Exception as error:  # see Session.record
        _warn(error)
    return event.id


def _read_answer(answer: Any) -> tuple[Segment, str | None, Usage | None, str | None]:
    """(assistant segment, the provider's response id, usage, finish reason) of whatever form an answer has."""
    if isinstance(answer, str) or answer is None:
        return segment_of({"role": "assistant", "content": answer}), None, None, None
    if not isinstance(answer, Mapping):
        answer = answer.model_dump(exclude_none=True)
    if "choices" not in answer:
        return segment_of({"role": "assistant", **answer}), None, None, None
    choice = answer["choices"][0]
    counts = answer.get("usage") or {}
    usage = Usage(input_tokens=counts.get("prompt_tokens"), output_tokens=counts.get("completion_tokens"))
    return segment_of(choice["message"]), answer.get("id"), usage if counts else None, choice.get("finish_reason")


def _key(segment: Segment) -> bytes:
    return encode_event(segment)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _warn(error: Exception) -> None:
    """The kind of trouble only: a message of an error may repeat what the agent said."""
    log.warning("ebbtide: something could not be recorded (%s); the agent goes on", type(error).__name__)
