"""What the read model answers: frozen values that the API writes as JSON and the command line reads back.

Times are milliseconds since the epoch, durations are milliseconds. Nothing here holds text of anybody.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

ItemT = TypeVar("ItemT")


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """Every member is written, so that absence is never a guess."""


class Latency(_View, frozen=True, kw_only=True):
    """From the receipt of a trajectory's last step to its sample on the curated topic, and from settling to there."""

    samples: int
    """How many of the newest samples were looked at."""
    p50_ms: int
    p95_ms: int
    max_ms: int
    settled_p50_ms: int
    settled_p95_ms: int
    """Without the wait for rewards or silence: from the tick that settled it."""


class Account(_View, frozen=True, kw_only=True):
    """Trajectories that came in, and where each of them stands by its newest verdict."""

    trajectories_in: int
    eligible: int
    rejected: int
    held: int
    open: int
    quarantined: int

    @property
    def balanced(self) -> bool:
        """True: every trajectory that came in stands in exactly one place, and none was invented."""
        return self.trajectories_in == self.eligible + self.rejected + self.held + self.open + self.quarantined


class Rewards(_View, frozen=True, kw_only=True):
    """Rewards that were routed to their trajectory, and those that wait for their target to be known."""

    seen: int
    routed: int
    parked: int


class Samples(_View, frozen=True, kw_only=True):
    """Samples in a tenant's curated topic; a misplaced one names another tenant."""

    live: int
    withdrawn: int
    misplaced: int


class Failure(_View, frozen=True, kw_only=True):
    """A record in quarantine, by reference."""

    stage: str
    reason: str
    topic: str
    partition: int
    offset: int
    tenant: str | None
    trajectory: str | None
    event: str | None
    quarantined_ms: int
    replayed_ms: int | None


class Status(_View, frozen=True, kw_only=True):
    """Counts of one tenant, or of all of them for an operator of the machine."""

    tenant: str | None
    """None: all tenants."""
    steps: int
    segments: int
    """Segments that redaction has looked at; a resent history counts once."""
    erased_segments: int
    findings: dict[str, int]
    account: Account
    reasons: dict[str, dict[str, int]]
    """Trajectories by verdict and reason code; one with two reasons counts under both."""
    rewards: Rewards
    samples: dict[str, Samples]
    """By tenant."""
    groups: dict[str, int]
    quarantine: dict[str, int]
    """Records waiting in quarantine, by reason."""
    last_errors: list[Failure]
    latency: Latency | None
    """None until there is a sample."""
    lag: dict[str, int] | None = None
    """Records that each stage has yet to take; only for an operator: it tells of all tenants."""


class ReasonView(_View, frozen=True, kw_only=True):
    """One reason code in words, and what would change it."""

    code: str
    text: str
    remedy: str


class DecisionView(_View, frozen=True, kw_only=True):
    """One verdict in a trajectory's history."""

    revision: int
    verdict: str
    reasons: list[ReasonView]
    policy: str
    facts_offset: int
    decided_ms: int


class RewardView(_View, frozen=True, kw_only=True):
    """One reward of a trajectory."""

    event: str
    name: str
    value: float | None
    source: str
    step: str | None
    received_ms: int | None
    supersedes: str | None


class SampleView(_View, frozen=True, kw_only=True):
    """One curated sample of a trajectory."""

    sample: str
    revision: int
    live: bool
    reasons: list[str]


class TrajectorySummary(_View, frozen=True, kw_only=True):
    """One line of a list of trajectories."""

    tenant: str
    trajectory: str
    state: str
    agent: str | None
    revision: int | None
    reasons: list[str]
    first_received_ms: int | None
    last_received_ms: int | None


class TrajectoryView(_View, frozen=True, kw_only=True):
    """Why a trajectory stands where it stands."""

    tenant: str
    trajectory: str
    state: str
    agent: str | None
    session: str | None
    purpose: str | None
    group: str | None
    steps: int
    segments: int
    findings: dict[str, int]
    first_received_ms: int | None
    last_received_ms: int | None
    ended_ms: int | None
    revision: int | None
    level: str | None
    end: str | None
    root: str | None
    holes: int
    decisions: list[DecisionView]
    """Newest first."""
    rewards: list[RewardView]
    samples: list[SampleView]
    quarantine: list[Failure]
    next: str
    """What it waits for, or what would change it, in words."""


class GroupView(_View, frozen=True, kw_only=True):
    """One group and its members' verdicts, once it is closed."""

    tenant: str
    group: str
    size: int | None
    task: str | None
    state: str
    revision: int | None
    members: list[dict[str, Any]]
    closed_ms: int | None


class Page(_View, Generic[ItemT], frozen=True, kw_only=True):
    """One page of a list; ``cursor`` asks for the next one and is null at the end."""

    items: list[ItemT]
    cursor: str | None
