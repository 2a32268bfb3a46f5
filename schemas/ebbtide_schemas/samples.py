"""What a consumer gets: curated samples, unsealed, and withdrawals. Frozen with ATDP/1."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ebbtide_schemas.events import TokenArray, ToolCall
from ebbtide_schemas.records import EffectiveReward, GroupRef, GroupState, Level

Alignment = Literal["sampled", "context-redacted", "placeholder", "retokenised"]


class _Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The shape that all consumer types share: every member is written, so that absence is never a guess."""


class SampleMessage(_Sample, frozen=True, kw_only=True):
    """One message of a sample after redaction; ``trained`` marks what the agent itself produced."""

    role: str
    content: str | list[dict[str, Any]] | None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    extra: dict[str, Any] = {}
    trained: bool = False
    hole: bool = False
    """True: the segment was erased; its content is null for ever."""


class SampleTokens(_Sample, frozen=True, kw_only=True):
    """Token fields of a token-exact chain, all of one length N.

    ``ids`` u32[N]; ``loss_mask`` u32[N] of 0 or 1; ``logprobs`` f32[N] or None; ``alignment`` and
    ``adapters`` as runs ``(start, end, value)`` that cover 0..N.
    """

    ids: TokenArray
    loss_mask: TokenArray
    logprobs: TokenArray | None
    logprob_kind: Literal["raw", "processed"] | None
    alignment: list[tuple[int, int, Alignment]]
    adapters: list[tuple[int, int, str]]


class SampleGroup(_Sample, frozen=True, kw_only=True):
    """The GRPO group of a sample, and whether it can be used as one."""

    id: str
    size: int
    index: int | None
    task: str | None
    state: GroupState | Literal["open"]


class Sample(_Sample, frozen=True, kw_only=True, tag_field="kind", tag="sample"):
    """One chain of one trajectory in its newest revision."""

    id: str
    tenant: str
    trajectory: str
    revision: int
    supersedes: int | None
    messages: list[SampleMessage]
    rewards: list[EffectiveReward]
    rollout_weight: float
    level: Level
    tokens: SampleTokens | None
    group: SampleGroup | None
    agent: str
    model: str | None
    adapter: str | None
    purpose: str | None
    end: str
    root: str
    policy: str
    redaction: str
    findings: dict[str, int]
    holes: int
    cursor: str = ""
    """Where to resume after this record."""

    @property
    def reward(self) -> float | None:
        """The newest reward's value by (event time, id), or None: unknown is never zero."""
        if not self.rewards:
            return None
        return max(self.rewards, key=lambda reward: (reward.event_ms, reward.event)).value


class Withdrawal(_Sample, frozen=True, kw_only=True, tag_field="kind", tag="withdrawal"):
    """The sample with this id must not be trained on any more."""

    id: str
    tenant: str
    trajectory: str
    revision: int
    reasons: list[str]
    cursor: str = ""


Curated = Sample | Withdrawal

__all__ = [
    "Alignment",
    "Curated",
    "GroupRef",
    "Sample",
    "SampleGroup",
    "SampleMessage",
    "SampleTokens",
    "Withdrawal",
]
