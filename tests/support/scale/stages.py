"""What the stages' state costs, over N trajectories, steps, aliases or groups of one partition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ebbtide_governance.settlement import plan
from ebbtide_platform.codec import MAX_RECORD_BYTES, decode, encode
from ebbtide_platform.sealing.identity import uuid8
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ALIASES, FINDINGS, MEMBERS, REWARDS, ROUTED, TICKS, TRAJECTORIES
from ebbtide_schemas.records import (
    AliasRecord,
    FindingsRecord,
    GroupRef,
    MemberRecord,
    RewardRecord,
    SettledRecord,
    TickRecord,
)
from ebbtide_streams.context import StageContext
from ebbtide_streams.group import CLOSED_PER_TICK, GroupStage
from ebbtide_streams.judge import JudgeStage
from ebbtide_streams.route import RouteStage
from ebbtide_streams.settle import SettleStage
from support.scale.claim import ROW_BYTES, Claim
from support.scale.counting import CountedStage, count_calls
from support.stages import Pipeline
from support.trajectories import FAR_MS, POLICY, TRAJECTORY, reward, step

_KEY = b"k" * 32
_SOON_MS = 1_000
"""Before any idle time is over."""
LATE_MS = 10**9
"""After every deadline."""
_FIRST_TICK = TickRecord(tick_ms=0)
"""Takes note of the deployment's policy, which is about everybody."""


def steps_of_one(pipeline: Pipeline, count: int, *, asks: str = "question {}") -> list[FindingsRecord]:
    """A trajectory of so many turns, each with a question, which is found, and an answer of its own."""
    return [
        pipeline.header(
            f"s{i}",
            i,
            None if i == 0 else f"s{i - 1}",
            says=(("user", asks.format(i), ()), ("assistant", f"answer {i}", ())),
            prefix=2 * i,
            finds=[asks.format(i)],
        )
        for i in range(count)
    ]


def _context(pipeline: Pipeline) -> StageContext:
    return StageContext(
        settings=Settings(),
        sealer=pipeline.sealer,
        facts=lambda: pipeline.facts,
        raw_segments=pipeline.raw,
        rendered_segments=pipeline.rendered,
    )


def _id(*parts: object) -> str:
    return uuid8(_KEY, *map(str, parts))


# --- settle -----------------------------------------------------------------------------------------------------


def tick_over_open_trajectories(size: int, folder: Path) -> float:
    """Rows of a tick with one trajectory due among ``size`` open ones."""
    pipeline = Pipeline()
    steps = [pipeline.header("s", says=(), trajectory=f"open {i}") for i in range(size)]
    due = pipeline.header("s", end="terminated", trajectory="due")
    with CountedStage(SettleStage(0, _context(pipeline)), folder) as stage:
        stage.feed(TICKS, [_FIRST_TICK])
        stage.feed(FINDINGS, [*steps, due])
        return stage.rows(TICKS, TickRecord(tick_ms=_SOON_MS))


def step_of_a_long_trajectory(size: int, folder: Path) -> float:
    """Rows of taking in one more step after ``size`` of them."""
    pipeline = Pipeline()
    *before, last = steps_of_one(pipeline, size + 1)
    with CountedStage(SettleStage(0, _context(pipeline)), folder) as stage:
        stage.feed(FINDINGS, before)
        return stage.rows(FINDINGS, last)


def erasure_among_trajectories(size: int, folder: Path) -> float:
    """Rows of the tick after an erasure whose subject has one of ``size`` trajectories."""
    pipeline = Pipeline()
    steps = [pipeline.header("s", says=(), trajectory=f"t{i}", subject=f"person {i}") for i in range(size)]
    with CountedStage(SettleStage(0, _context(pipeline)), folder) as stage:
        stage.feed(TICKS, [_FIRST_TICK])
        stage.feed(FINDINGS, [*steps, pipeline.header("s", trajectory="erased", subject="ada")])
        pipeline.erase("ada")
        return stage.rows(TICKS, TickRecord(tick_ms=_SOON_MS))


def settle_rows(size: int, folder: Path) -> float:
    """Bytes of settlement's largest row after ``size`` steps and as many rewards of one trajectory."""
    pipeline = Pipeline()
    steps = steps_of_one(pipeline, size)
    place = steps[0].header.trajectory
    with CountedStage(SettleStage(0, _context(pipeline)), folder) as stage:
        stage.feed(FINDINGS, steps)
        stage.feed(ROUTED, [_reward(i, alias=place, trajectory=place, step=_id("step")) for i in range(size)])
        return max(stage.row_bytes())


def settling_calls(size: int, folder: Path) -> float:
    """Calls of planning one trajectory of ``size`` steps."""
    steps = [step(f"s{i}", i, None if i == 0 else f"s{i - 1}") for i in range(size)]
    rewards = [reward(f"r{i}", step=f"s{i}") for i in range(size)]
    return count_calls(lambda: plan(TRAJECTORY, steps, rewards, POLICY, now_ms=FAR_MS))


# --- route ------------------------------------------------------------------------------------------------------


def reward_among_aliases(size: int, folder: Path) -> float:
    """Rows of one reward whose alias is one of ``size``, with as many rewards waiting for other aliases."""
    with CountedStage(RouteStage(0, _context(Pipeline())), folder) as stage:
        stage.feed(ALIASES, list(_aliases(size)))
        stage.feed(REWARDS, [_reward(i, alias=_id("unknown", i)) for i in range(size)])
        return stage.rows(REWARDS, _reward("new", alias=_id("alias", size // 2)))


def route_rows(size: int, folder: Path) -> float:
    """Bytes of routing's largest row after ``size`` aliases and as many rewards with every member."""
    with CountedStage(RouteStage(0, _context(Pipeline())), folder) as stage:
        stage.feed(ALIASES, list(_aliases(size)))
        stage.feed(REWARDS, [_reward(i, alias=_id("alias", i)) for i in range(size)])
        return max(stage.row_bytes())


def _aliases(count: int) -> Iterable[AliasRecord]:
    return (
        AliasRecord(
            alias=_id("alias", i), tenant="acme", trajectory=_id("trajectory", i), step=_id("step", i), received_ms=i
        )
        for i in range(count)
    )


def _reward(name: object, *, alias: str, **members: Any) -> RewardRecord:
    return RewardRecord(
        event=_id("reward", name),
        tenant="acme",
        alias=alias,
        value=0.5,
        name="resolved",
        source="human",
        received_ms=1_760_000_000_000,
        event_ms=1_760_000_000_000,
        supersedes=_id("reward before", name),
        digest="0" * 64,
        **members,
    )


# --- judge ------------------------------------------------------------------------------------------------------


def fact_among_trajectories(size: int, folder: Path) -> float:
    """Rows of the tick after a consent whose subject has one of ``size`` trajectories."""
    pipeline = Pipeline()
    settled = settled_trajectory(pipeline, 1)
    others = [
        _copy(settled, (settled.trajectory, _id("trajectory", i)), (settled.subjects[0], _id("subject", i)))
        for i in range(size)
    ]
    with CountedStage(JudgeStage(0, _context(pipeline)), folder) as stage:
        stage.feed(TICKS, [_FIRST_TICK])
        stage.feed(TRAJECTORIES, [*others, settled])
        pipeline.fact("consent", subject=settled.subjects[0], purpose="training", state="withdrawn")
        return stage.rows(TICKS, TickRecord(tick_ms=_SOON_MS))


def revision_among_trajectories(size: int, folder: Path) -> float:
    """Rows of judging one more trajectory after ``size`` of them."""
    pipeline = Pipeline()
    settled = settled_trajectory(pipeline, 1)
    others = [_copy(settled, (settled.trajectory, _id("trajectory", i))) for i in range(size)]
    with CountedStage(JudgeStage(0, _context(pipeline)), folder) as stage:
        stage.feed(TRAJECTORIES, others)
        return stage.rows(TRAJECTORIES, settled)


def judge_bytes(size: int, folder: Path) -> float:
    """Bytes of judging's state for one trajectory of ``size`` steps."""
    pipeline = Pipeline()
    with CountedStage(JudgeStage(0, _context(pipeline)), folder) as stage:
        stage.feed(TRAJECTORIES, [settled_trajectory(pipeline, size)])
        return sum(stage.row_bytes())


def judge_bytes_per_step(size: int, folder: Path) -> float:
    """The same per step."""
    return judge_bytes(size, folder) / size


def settled_bytes(size: int, folder: Path) -> float:
    """Bytes of the record that settlement makes of a trajectory of ``size`` steps."""
    return len(encode(settled_trajectory(Pipeline(), size)))


def settled_trajectory(pipeline: Pipeline, steps: int) -> SettledRecord:
    """A rewarded trajectory of so many turns, as settlement makes it."""
    place = ""
    for record in steps_of_one(pipeline, steps):
        place = record.header.trajectory
        pipeline.feed(FINDINGS.name, record)
    pipeline.end("end", steps, f"s{steps - 1}")
    pipeline.reward("reward")
    pipeline.tick(LATE_MS)
    settled = pipeline.settled[-1]
    assert settled.trajectory == place
    return settled


def _copy(settled: SettledRecord, *changes: tuple[str, str]) -> SettledRecord:
    """The same trajectory under other ids; all ids are of one length."""
    raw = encode(settled)
    for old, new in changes:
        raw = raw.replace(old.encode(), new.encode())
    return decode(raw, SettledRecord)


# --- group ------------------------------------------------------------------------------------------------------


def member_among_groups(size: int, folder: Path) -> float:
    """Rows of closing one group by a tick among ``size`` groups that wait for their deadline."""
    with CountedStage(GroupStage(0, _context(Pipeline())), folder) as stage:
        stage.feed(MEMBERS, [_member(i, "first") for i in range(size)])
        stage.feed(TICKS, [_FIRST_TICK] * (size // CLOSED_PER_TICK + 1))
        stage.feed(MEMBERS, [_member(size // 2, "second")])
        return stage.rows(TICKS, TickRecord(tick_ms=_SOON_MS))


def group_rows(size: int, folder: Path) -> float:
    """Bytes of grouping's largest row after one member of each of ``size`` groups."""
    with CountedStage(GroupStage(0, _context(Pipeline())), folder) as stage:
        stage.feed(MEMBERS, [_member(i, "first") for i in range(size)])
        return max(stage.row_bytes())


def _member(group: int, name: str) -> MemberRecord:
    return MemberRecord(
        group=GroupRef(id=_id("group", group), size=2),
        tenant="acme",
        trajectory=_id("trajectory", group, name),
        revision=0,
        facts_offset=1,
        verdict="eligible",
        reasons=(),
        decided_ms=1,
    )


CLAIMS = (
    Claim("a tick touches only trajectories that are due", "rows", tick_over_open_trajectories, "flat", 1_000, 100_000),
    Claim("a step costs the same in a long trajectory", "rows", step_of_a_long_trajectory, "flat", 300, 20_000),
    Claim(
        "an erasure touches only its subject's trajectories", "rows", erasure_among_trajectories, "flat", 500, 50_000
    ),
    Claim("planning a trajectory is linear in its steps", "calls", settling_calls, "linear", 300, 10_000),
    Claim("a row of settlement is small", "bytes", settle_rows, ROW_BYTES, 200, 10_000),
    Claim("a reward costs the same among many aliases", "rows", reward_among_aliases, "flat", 1_000, 100_000),
    Claim("a row of routing is small", "bytes", route_rows, ROW_BYTES, 200, 10_000),
    Claim("a fact touches only its subject's trajectories", "rows", fact_among_trajectories, "flat", 500, 100_000),
    Claim(
        "a revision is judged at the same cost among many", "rows", revision_among_trajectories, "flat", 500, 100_000
    ),
    Claim("judging's state is linear in a trajectory's steps", "bytes", judge_bytes, "linear", 200, 1_000),
    Claim("a settled trajectory fits a record", "bytes", settled_bytes, MAX_RECORD_BYTES, 200, 1_500),
    Claim("closing a group costs the same among many", "rows", member_among_groups, "flat", 1_000, 100_000),
    Claim("a row of grouping is small", "bytes", group_rows, ROW_BYTES, 200, 10_000),
)

OPEN_CLAIMS = (Claim("judging keeps little of a step", "bytes", judge_bytes_per_step, ROW_BYTES, 200, 1_000),)
