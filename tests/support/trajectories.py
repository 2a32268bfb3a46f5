"""Headers and rewards as they stand on the log, with ids that read well and times in small numbers."""

from __future__ import annotations

from typing import Any

from ebbtide_governance.settlement import Plan, Rendering, Waiting, complete, plan
from ebbtide_schemas.chain import header_digest
from ebbtide_schemas.records import (
    GroupRef,
    MemberRecord,
    Policy,
    RewardRecord,
    SegmentRef,
    SettledRecord,
    StepHeader,
    Verdict,
)

TRAJECTORY = "t-1"
USER = "subject-user"
POLICY = Policy(idle_s=100, reward_window_s=1000, group_deadline_s=500)
WINDOW_MS = 1_000_000
IDLE_MS = 100_000
FAR_MS = 10_000_000
"""A receipt time after every deadline of `POLICY`."""


def segment(name: str, role: Any = "user", *, subjects: tuple[str, ...] = (USER,), size: int = 10) -> SegmentRef:
    return SegmentRef(id=name, kind="message", role=role, subjects=subjects, about_nobody=not subjects, size=size)


def step(event: str, ordinal: int = 0, parent: str | None = None, **members: Any) -> StepHeader:
    """A step with one observed segment and one action, received ``ordinal`` ms after the start."""
    values: dict[str, Any] = {
        "event": event,
        "tenant": "acme",
        "trajectory": TRAJECTORY,
        "session": "session-1",
        "ordinal": ordinal,
        "parent": parent,
        "branch": "continue",
        "observation": (segment(f"{event}-read"),),
        "action": segment(f"{event}-said", "assistant"),
        "agent": "support",
        "purpose": "training",
        "subjects": (USER,),
        "subject_declared": True,
        "received_ms": ordinal,
    } | members
    header = StepHeader(**values)
    return StepHeader(**values | {"digest": header_digest(header)})


def end(event: str, ordinal: int, parent: str | None, **members: Any) -> StepHeader:
    """A bare end mark."""
    return step(event, ordinal, parent, **{"end": "terminated", "observation": (), "action": None} | members)


def reward(event: str, value: float = 1.0, **members: Any) -> RewardRecord:
    values: dict[str, Any] = {
        "event": event,
        "tenant": "acme",
        "alias": TRAJECTORY,
        "trajectory": TRAJECTORY,
        "value": value,
        "name": "reward",
        "source": "human",
        "received_ms": 10,
        "digest": "",
    } | members
    return RewardRecord(**values)


def settle(
    steps: list[StepHeader],
    rewards: list[RewardRecord],
    *,
    holes: frozenset[str] = frozenset(),
    policy: Policy = POLICY,
    now_ms: int = FAR_MS,
    revision: int = 0,
) -> SettledRecord:
    """The revision that these events settle to; AssertionError if they do not settle yet."""
    planned = plan(TRAJECTORY, steps, rewards, policy, now_ms=now_ms)
    assert isinstance(planned, Plan), planned
    rendered = {ref.id: Rendering(hole=ref.id in holes) for ref in planned.segments}
    return complete(planned, rendered, redaction="r1", revision=revision, supersedes=None, settled_ms=now_ms)


def waits(steps: list[StepHeader], rewards: list[RewardRecord], *, now_ms: int, policy: Policy = POLICY) -> Waiting:
    """What these events wait for; AssertionError if they settle."""
    planned = plan(TRAJECTORY, steps, rewards, policy, now_ms=now_ms)
    assert isinstance(planned, Waiting), planned
    return planned


def member(trajectory: str, verdict: Verdict = "eligible", *, size: int = 4, **members: Any) -> MemberRecord:
    values: dict[str, Any] = {
        "group": GroupRef(id="g-1", size=size),
        "tenant": "acme",
        "trajectory": trajectory,
        "revision": 0,
        "facts_offset": 0,
        "verdict": verdict,
        "reasons": (),
        "decided_ms": 1000,
    } | members
    return MemberRecord(**values)
