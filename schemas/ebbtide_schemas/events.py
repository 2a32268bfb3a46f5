"""What a producer sends: ATDP/1 steps and rewards, in the clear, before any door has seen them.

An event is the six-tuple ``<o, h, a, y, r, m>`` of the AReaL 2.0 paper: observation, hidden state,
action, outcome, reward and metadata. Unknown members are refused: a misspelt ``subjects`` that was
silently dropped would leave a person without protection.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

SPEC_VERSION: Final = "atdp/1"

Identifier = Annotated[str, Meta(min_length=1, max_length=256)]
"""An id chosen by a producer; it is turned into a UUIDv8 at the door and stands in clear nowhere."""

Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/+\-]{0,127}\Z")]
"""A technical name (agent, model, purpose): it travels in clear, so it has no room for prose."""

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Role = Literal["system", "developer", "user", "assistant", "tool"]
BranchKind = Literal["continue", "fork", "sub-agent", "compaction", "edit"]
EndMark = Literal["terminated", "truncated", "aborted", "superseded"]
RewardSource = Literal["human", "rule", "model", "environment"]
DType = Literal["u32le", "f32le"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The strictness that all producer types share."""


class ToolCall(_Event, frozen=True, kw_only=True):
    """One call a model asked for; ``arguments`` is the JSON text exactly as the model wrote it."""

    id: Identifier
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: str = "{}"


class Segment(_Event, frozen=True, kw_only=True):
    """One message, tool call turn or tool result; members a runtime adds of its own go into ``extra``."""

    role: Role
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: Identifier | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    reasoning: str | None = None
    extra: dict[str, Any] = {}
    subjects: list[Identifier] | None = None
    """Who it is about. None inherits the step's; an empty list says: about nobody."""


class ToolDefinition(_Event, frozen=True, kw_only=True):
    """A tool offered to the model; about nobody, so it is stored once per tenant."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str = ""
    parameters: dict[str, Any] = {}


class Observation(_Event, frozen=True, kw_only=True):
    """The segments that are new since the parent step, after the ``prefix`` segments they extend."""

    segments: list[Segment] = []
    prefix: Count = 0
    tools: list[ToolDefinition] = []


class TokenArray(_Event, frozen=True, kw_only=True):
    """A typed little-endian buffer in base64; never JSON numbers, which cost 30 times the CPU and have no -inf."""

    dtype: DType
    data: str


class TokenSpan(_Event, frozen=True, kw_only=True):
    """Which adapter version sampled the output tokens from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: Count
    end: Count
    adapter: Label


class SamplerRecord(_Event, frozen=True, kw_only=True):
    """What the engine really read and wrote, so that a step can be trained on token for token."""

    prompt_delta: TokenArray
    prompt_digest: str
    tokenizer: str
    chat_template: str
    base_model: str
    output: TokenArray
    logprobs: TokenArray | None = None
    logprob_kind: Literal["raw", "processed"] | None = None
    adapters: list[TokenSpan] = []
    sampling: dict[str, Any] = {}
    engine: str = ""
    segment_tokens: list[tuple[int, int]] = []


class Action(_Event, frozen=True, kw_only=True):
    """What the agent said or called, with the sampler's own record where the runtime could give one."""

    segment: Segment
    sampler: SamplerRecord | None = None


class Usage(_Event, frozen=True, kw_only=True):
    """Token counts as the model server reported them; absent is unknown, never zero."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None


class Outcome(_Event, frozen=True, kw_only=True):
    """What the world answered: tool results by call id, and how the step ended."""

    results: list[Segment] = []
    finish_reason: Label | None = None
    status: Literal["ok", "error", "timeout", "aborted"] = "ok"
    latency_ms: Annotated[float, Meta(ge=0)] | None = None
    usage: Usage | None = None
    error: str | None = None


class HiddenState(_Event, frozen=True, kw_only=True):
    """Harness state by reference; its absence makes the process a POMDP."""

    reference: Identifier
    kind: Literal["reasoning", "memory", "harness"] = "harness"


class Group(_Event, frozen=True, kw_only=True):
    """The GRPO group a step's trajectory belongs to: ``size`` members on one task."""

    id: Identifier
    size: Annotated[int, Meta(ge=1, le=4096)]
    index: Annotated[int, Meta(ge=0, le=4095)] | None = None
    task: Identifier | None = None
    environment: Label | None = None
    verifier: Label | None = None
    seed: int | None = None


class Correlation(_Event, frozen=True, kw_only=True):
    """An id of the outside world (ticket, order, commit) by which a later reward can find this step."""

    kind: Label
    value: Identifier


class RewardAtEmission(_Event, frozen=True, kw_only=True):
    """A reward already known when the step was emitted."""

    value: float
    name: Label = "reward"
    source: RewardSource = "environment"
    reason: str | None = None


class Metadata(_Event, frozen=True, kw_only=True):
    """Who acted, for whom, why and when; ``tenant`` may only repeat what the API key already says."""

    agent: Label
    tenant: Label | None = None
    agent_version: Label | None = None
    harness: Label | None = None
    prompt_version: Label | None = None
    tools_version: Label | None = None
    model: Label | None = None
    adapter: Label | None = None
    session: Identifier | None = None
    group: Group | None = None
    consent_basis: Label | None = None
    purpose: Label | None = None
    jurisdiction: Label | None = None
    retention: Label | None = None
    subjects: list[Identifier] = []
    time: str | int | float | None = None
    """RFC 3339 with an offset, or epoch seconds; kept as given, flagged when it cannot be trusted."""
    producer: Label | None = None
    response_id: Identifier | None = None
    correlations: list[Correlation] = []


class Step(_Event, frozen=True, kw_only=True, tag_field="type", tag="step"):
    """One ATDP six-tuple. A step with neither observation nor action is a bare end mark."""

    specversion: Literal["atdp/1"]
    id: Identifier
    trajectory: Identifier
    ordinal: Count
    meta: Metadata
    parent: Identifier | None = None
    branch: BranchKind = "continue"
    removed: list[Count] = []
    """Positions of the parent's segments that a compaction or edit took out of the context."""
    end: EndMark | None = None
    observation: Observation = Observation()
    hidden: HiddenState | None = None
    action: Action | None = None
    outcome: Outcome = Outcome()
    rewards: list[RewardAtEmission] = []


class RewardTarget(_Event, frozen=True, kw_only=True):
    """Exactly one member says what earned the reward."""

    trajectory: Identifier | None = None
    step: Identifier | None = None
    response: Identifier | None = None
    correlation: Correlation | None = None


class Reward(_Event, frozen=True, kw_only=True, tag_field="type", tag="reward"):
    """A judgement that may come days after the step; what it is caused by never changes."""

    specversion: Literal["atdp/1"]
    id: Identifier
    target: RewardTarget
    value: float
    name: Label = "reward"
    source: RewardSource = "human"
    reason: str | None = None
    time: str | int | float | None = None
    supersedes: Identifier | None = None


Event = Step | Reward
