"""Which rewards reach which trajectory is a function of the set of aliases and rewards, and of nothing else."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import InRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ALIASES, QUARANTINE, REWARDS, ROUTED
from ebbtide_schemas.records import AliasRecord, RewardRecord
from ebbtide_streams.context import StageContext
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.route import RouteStage
from ebbtide_streams.runner import StageRunner

# The last one is also a trajectory: a reward that names the trajectory itself must not follow the alias.
NAMES = st.sampled_from(("ticket-1", "response-1", "t1"))
TENANTS = st.sampled_from(("acme", "zeta"))
TRAJECTORIES = st.sampled_from(("t1", "t2"))
Half = AliasRecord | RewardRecord
Routed = tuple[str, str, str, str | None]


def _alias(name: str, tenant: str, trajectory: str) -> AliasRecord:
    # A name means one step of a trajectory, the same one each time it is said.
    return AliasRecord(alias=name, tenant=tenant, trajectory=trajectory, step=f"{name}/{trajectory}", received_ms=0)


def _reward(name: str, tenant: str, event: int) -> RewardRecord:
    return RewardRecord(
        event=f"{tenant}-{name}-{event}",
        tenant=tenant,
        alias=name,
        value=float(event),
        name="reward",
        source="human",
        received_ms=0,
        digest="d",
    )


def _direct(tenant: str, trajectory: str, event: int) -> RewardRecord:
    return RewardRecord(
        event=f"{tenant}-direct-{trajectory}-{event}",
        tenant=tenant,
        alias=trajectory,
        value=float(event),
        name="reward",
        source="human",
        received_ms=0,
        digest="d",
        trajectory=trajectory,
    )


EVENTS = st.integers(0, 2)
HALVES = st.one_of(
    st.builds(_alias, NAMES, TENANTS, TRAJECTORIES),
    st.builds(_reward, NAMES, TENANTS, EVENTS),
    st.builds(_direct, TENANTS, TRAJECTORIES, EVENTS),
)


def _expected(halves: list[Half]) -> set[Routed]:
    """The join, as one would write it with everything at hand."""
    aliases = [half for half in halves if isinstance(half, AliasRecord)]
    rewards = [half for half in halves if isinstance(half, RewardRecord)]
    direct = {(reward.tenant, reward.event, reward.trajectory, None) for reward in rewards if reward.trajectory}
    joined = {
        (reward.tenant, reward.event, alias.trajectory, alias.step)
        for reward in rewards
        for alias in aliases
        if reward.trajectory is None and (reward.alias, reward.tenant) == (alias.alias, alias.tenant)
    }
    return direct | joined


class Lane:
    """The stage under its runner over stores in memory, started anew whenever that is asked."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self._store = MemoryStageStore()
        self._sealer = Sealer(MemoryKeyDoor("acme", "zeta"))
        self._offsets = {ALIASES.name: count(), REWARDS.name: count()}
        self.start()

    def start(self) -> None:
        segments = MemorySegmentStore()
        context = StageContext(Settings(), self._sealer, FactsState, segments, segments)
        quarantine = Quarantine(RouteStage.name, self._sealer, context.now_ms)
        self._runner = StageRunner(RouteStage(0, context), self._store, self.log, quarantine)

    def feed(self, half: Half) -> None:
        topic = ALIASES.name if isinstance(half, AliasRecord) else REWARDS.name
        self._runner.run([InRecord(topic, 0, next(self._offsets[topic]), b"alias", encode(half))])

    def routed(self) -> list[Routed]:
        records = [decode(record.value, RewardRecord) for record in self.log.records(ROUTED)]
        return [(record.tenant, record.event, record.trajectory or "", record.step) for record in records]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_order_and_number_of_arrivals_routes_the_same_rewards_once(data: st.DataObject) -> None:
    halves = data.draw(st.lists(HALVES, max_size=10))
    repeats = data.draw(st.lists(st.sampled_from(halves), max_size=5)) if halves else []
    arrivals = data.draw(st.permutations([*halves, *repeats]))
    restarts = data.draw(st.sets(st.integers(0, 15)))
    lane = Lane()
    for moment, half in enumerate(arrivals):
        if moment in restarts:
            lane.start()
        lane.feed(half)
    routed = lane.routed()
    assert set(routed) == _expected(halves)
    assert len(routed) == len(set(routed))
    assert lane.log.records(QUARANTINE) == []
