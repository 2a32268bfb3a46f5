"""Brings rewards to their trajectories: by name at once, through an alias as soon as it is known.

Both inputs are keyed by alias, so a reward and the alias it waits for meet in one partition. A reward for an
outside id that several trajectories carry goes to each of them, whatever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from ebbtide_platform.codec import decode_any, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.topics import ALIASES, DAY_MS, REWARDS, ROUTED, Topic
from ebbtide_schemas.records import AliasRecord, RewardRecord
from ebbtide_streams.context import StageContext

KEPT_MS = 400 * DAY_MS
"""A reward or alias waits for its other half as long as the log keeps it."""
DROPPED_PER_RECORD = 2
"""Faster than rows can be added, so that what is out of date never piles up."""

_ALIAS = b"a"
_REWARD = b"r"
_EXPIRY = b"x"
_TIME_BYTES = 8
_SEPARATOR = b"\0"

_encode = msgspec.msgpack.Encoder().encode


class RouteStage:
    """Aliases and rewards to routed rewards. The same reward id with another content is `Poison`."""

    name: ClassVar[str] = "route"
    inputs: ClassVar[tuple[Topic, ...]] = (ALIASES, REWARDS)

    def __init__(self, partition: int, context: StageContext) -> None:
        self._partition = partition
        self._context = context

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Nothing is cheaper for a whole batch."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Keep the half that came, and emit every pair that it completes."""
        found = decode_any(record.value)
        self._drop_expired(record.timestamp_ms, tx)
        if isinstance(found, AliasRecord):
            self._take_alias(found, tx)
        elif isinstance(found, RewardRecord):
            self._take_reward(found, tx)
        else:
            raise Poison("unexpected_record_type")

    def _take_alias(self, alias: AliasRecord, tx: StageTransaction) -> None:
        key = _key(_ALIAS, alias.alias, alias.trajectory)
        if tx.get(key) is not None:
            return
        _keep(tx, key, _encode(alias), alias.received_ms)
        for _, value in list(tx.scan(_key(_REWARD, alias.alias, ""))):
            self._emit(msgspec.msgpack.decode(value, type=RewardRecord), alias, tx)

    def _take_reward(self, reward: RewardRecord, tx: StageTransaction) -> None:
        key = _key(_REWARD, reward.alias, reward.event)
        known = tx.get(key)
        if known is not None:
            if msgspec.msgpack.decode(known, type=RewardRecord).digest != reward.digest:
                raise Poison("conflict")
            return
        # The reason is personal, sealed and long; no later stage reads it, and it stays on the rewards topic.
        slim = msgspec.structs.replace(reward, reason=())
        _keep(tx, key, _encode(slim), reward.received_ms)
        if reward.trajectory is not None:
            tx.emit(_output(slim))
            return
        for _, value in list(tx.scan(_key(_ALIAS, reward.alias, ""))):
            self._emit(slim, msgspec.msgpack.decode(value, type=AliasRecord), tx)

    def _emit(self, reward: RewardRecord, alias: AliasRecord, tx: StageTransaction) -> None:
        if reward.tenant != alias.tenant:
            raise Poison("tenant_mismatch")
        if reward.trajectory is None:
            tx.emit(_output(msgspec.structs.replace(reward, trajectory=alias.trajectory, step=alias.step)))

    def _drop_expired(self, now_ms: int, tx: StageTransaction) -> None:
        for key, _ in list(tx.scan(_EXPIRY, limit=DROPPED_PER_RECORD)):
            kept_ms = int.from_bytes(key[1 : 1 + _TIME_BYTES], "big")
            if kept_ms + KEPT_MS > now_ms:
                return
            tx.delete(key[1 + _TIME_BYTES :])
            tx.delete(key)


def _keep(tx: StageTransaction, key: bytes, value: bytes, received_ms: int) -> None:
    tx.put(key, value)
    tx.put(_EXPIRY + received_ms.to_bytes(_TIME_BYTES, "big") + key, b"")


def _output(reward: RewardRecord) -> OutRecord:
    assert reward.trajectory is not None
    stamped = headers(
        event=reward.event, kind="reward", source=RouteStage.name, time_ms=reward.received_ms, tenant=reward.tenant
    )
    return OutRecord(ROUTED.name, reward.trajectory.encode(), encode(reward), tuple(stamped))


def _key(kind: bytes, first: str, second: str) -> bytes:
    return kind + first.encode() + _SEPARATOR + second.encode()
