"""What a tick has to look at: what is due by its time, and whom new facts have touched; both in stage state.

Keys: ``d`` time name, ``D`` name -> time, ``f`` -> facts offset. Stages keep theirs under other letters.
"""

from __future__ import annotations

from typing import Final

from ebbtide_governance.facts import FactsView, Touched
from ebbtide_platform.codec import decode
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, StageTransaction
from ebbtide_platform.topics import DAY_MS
from ebbtide_schemas.records import TickRecord

NOW: Final = 0
"""Due at the next tick, whatever its time."""
MAX_AHEAD_MS: Final = DAY_MS
"""Of a tick before its record: Kafka refuses records from the future, so one wrong clock ends no window."""
_BY_TIME = b"d"
_BY_NAME = b"D"
_FACTS = b"f"
_TIME_BYTES = 8


def tick_of(record: InRecord) -> int:
    """The receipt time that a tick tells, in milliseconds since the epoch.

    Raises:
        Poison: it is no tick, or one of a time that has not come.
    """
    tick_ms = decode(record.value, TickRecord).tick_ms
    if tick_ms > record.timestamp_ms + MAX_AHEAD_MS:
        raise Poison("tick_ahead")
    return tick_ms


def set_due(tx: StageTransaction, name: bytes, due_ms: int | None) -> None:
    """Let ``name`` be due at ``due_ms`` (milliseconds of receipt time) and at no other time; None: never."""
    known = tx.get(_BY_NAME + name)
    if known is not None:
        tx.delete(_BY_TIME + known + name)
        tx.delete(_BY_NAME + name)
    if due_ms is not None:
        time = max(due_ms, NOW).to_bytes(_TIME_BYTES, "big")
        tx.put(_BY_TIME + time + name, b"")
        tx.put(_BY_NAME + name, time)


def due(tx: StageTransaction, now_ms: int, limit: int) -> list[bytes]:
    """At most ``limit`` names that are due at ``now_ms``, the longest overdue first."""
    names = []
    for key, _ in tx.scan(_BY_TIME, limit=limit):
        if int.from_bytes(key[1 : 1 + _TIME_BYTES], "big") > now_ms:
            break
        names.append(key[1 + _TIME_BYTES :])
    return names


def waiting(tx: StageTransaction) -> list[bytes]:
    """Every name that is due some time."""
    return [key[1:] for key, _ in tx.scan(_BY_NAME)]


def take_news(tx: StageTransaction, facts: FactsView) -> Touched:
    """Whom the facts have touched that this state has not seen yet; from here on it has."""
    seen = int.from_bytes(tx.get(_FACTS) or b"", "big")
    if facts.offset <= seen:
        return Touched()
    tx.put(_FACTS, facts.offset.to_bytes(_TIME_BYTES, "big"))
    return facts.touched_since(seen)
