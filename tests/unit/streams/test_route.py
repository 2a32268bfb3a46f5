"""Rewards find their trajectories, whichever of the two comes first."""

from __future__ import annotations

from itertools import count, permutations
from typing import Any

import pytest

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.errors import Poison
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ALIASES, LOG_MS, REWARDS, ROUTED
from ebbtide_schemas.records import AliasRecord, LogRecord, RewardRecord, SealedChunk, TickRecord
from ebbtide_streams.context import StageContext
from ebbtide_streams.route import RouteStage
from support.stages import Worker

ORDER = "order-17"


class Route:
    """The stage, fed records; ``routed`` holds what it emitted."""

    def __init__(self) -> None:
        context = StageContext(
            settings=Settings(),
            sealer=Sealer(MemoryKeyDoor("acme")),
            facts=FactsState,
            raw_segments=MemorySegmentStore(),
            rendered_segments=MemorySegmentStore(),
        )
        self.worker = Worker(RouteStage(0, context), MemoryStageStore())
        self.outputs: list[OutRecord] = []
        self._offsets = count()

    @property
    def routed(self) -> list[tuple[str, str | None, float]]:
        records = [decode(output.value, RewardRecord) for output in self.outputs]
        return [(record.trajectory or "", record.step, record.value) for record in records]

    def feed(self, record: LogRecord, timestamp_ms: int = 0) -> None:
        topic = ALIASES if isinstance(record, AliasRecord) else REWARDS
        self.outputs += self.worker.feed(
            InRecord(topic.name, 0, next(self._offsets), b"alias", encode(record), timestamp_ms=timestamp_ms)
        )

    def rows(self) -> int:
        with self.worker.store.transaction({}) as tx:
            return len(list(tx.scan(b"")))


@pytest.fixture
def route() -> Route:
    return Route()


def _alias(trajectory: str = "t", step: str | None = "s", **more: Any) -> AliasRecord:
    values: dict[str, Any] = {"alias": ORDER, "tenant": "acme", "received_ms": 0} | more
    return AliasRecord(trajectory=trajectory, step=step, **values)


def _reward(event: str = "r", **more: Any) -> RewardRecord:
    values: dict[str, Any] = {"tenant": "acme", "alias": ORDER, "value": 1.0, "digest": "d", "received_ms": 0}
    return RewardRecord(event=event, name="reward", source="human", **values | more)


def test_a_reward_that_names_its_trajectory_goes_there_at_once(route: Route) -> None:
    route.feed(_reward(alias="t", trajectory="t"))
    assert route.routed == [("t", None, 1.0)]
    assert (route.outputs[0].topic, route.outputs[0].key) == (ROUTED.name, b"t")


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_rewards_and_alias_meet_in_any_order(route: Route, order: tuple[int, ...]) -> None:
    records: list[LogRecord] = [_alias(), _reward("r1"), _reward("r2", value=0.0)]
    for number in order:
        route.feed(records[number])
    assert sorted(route.routed) == [("t", "s", 0.0), ("t", "s", 1.0)]


def test_a_reward_without_an_alias_waits(route: Route) -> None:
    route.feed(_reward())
    route.feed(_alias(alias="another"))
    assert route.routed == []


def test_an_outside_id_that_several_trajectories_carry_rewards_each(route: Route) -> None:
    route.feed(_alias("t1"))
    route.feed(_reward())
    route.feed(_alias("t2"))
    assert sorted(route.routed) == [("t1", "s", 1.0), ("t2", "s", 1.0)]


def test_the_same_record_again_changes_nothing(route: Route) -> None:
    for record in (_reward(), _reward(), _alias(), _alias(), _reward()):
        route.feed(record)
    assert route.routed == [("t", "s", 1.0)]


def test_the_same_reward_with_another_content_is_poison_and_the_first_stands(route: Route) -> None:
    route.feed(_reward())
    with pytest.raises(Poison, match="conflict"):
        route.feed(_reward(value=0.0, digest="another"))
    route.feed(_alias())
    assert route.routed == [("t", "s", 1.0)]


def test_a_reason_stays_behind(route: Route) -> None:
    """It is personal, and nobody after this reads it."""
    sealed = SealedChunk(
        segment="x",
        tenant="acme",
        trajectory=None,
        subjects=(),
        seal_class="quarantine",
        first_event="r",
        nonce=b"n" * 12,
        data=b"sealed",
    )
    route.feed(_reward(alias="t", trajectory="t", reason=(sealed,)))
    assert decode(route.outputs[0].value, RewardRecord).reason == ()


def test_what_waited_longer_than_the_log_keeps_it_is_dropped(route: Route) -> None:
    route.feed(_reward())
    assert route.rows() > 0
    route.feed(_reward("r2", alias="other", received_ms=LOG_MS + 1), timestamp_ms=LOG_MS + 1)
    route.feed(_alias(), timestamp_ms=LOG_MS + 1)
    assert route.routed == []


def test_what_is_no_alias_and_no_reward_is_poison(route: Route) -> None:
    with pytest.raises(Poison, match="unexpected_record_type"):
        route.feed(TickRecord(tick_ms=1))


def test_another_tenants_alias_never_takes_a_reward_and_is_not_held_up_by_it(route: Route) -> None:
    route.feed(_reward("theirs", tenant="zeta", value=0.0))
    route.feed(_alias())
    route.feed(_reward("ours"))
    assert route.routed == [("t", "s", 1.0)]
