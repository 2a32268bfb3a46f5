"""The terms on which keys are given: how long, of which days, for which scopes."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

from ebbtide_platform.errors import InvalidInput
from ebbtide_platform.ports import ContentKey, KeyScope

LEASE_S = 60.0
"""A holder that never asks again works at most this long with a destroyed key."""
DAY_KEY_DAYS = 21
"""What nobody is known to own is unreadable this many days after the day that sealed it."""
_CLOCK_SKEW = timedelta(days=1)


def now_ms() -> int:
    """Milliseconds since the epoch by this machine's clock."""
    return time.time_ns() // 1_000_000


def lease(key: bytes) -> ContentKey:
    """``key`` for a minute from now."""
    return ContentKey(key, time.monotonic() + LEASE_S)


def day_is_over(day: str, at_ms: int) -> bool:
    """True when the key of ``day`` (YYYY-MM-DD) must be destroyed at ``at_ms``.

    Raises:
        InvalidInput: it is no day, or lies in the future, where a key would outlive its 21 days.
    """
    today = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    try:
        named = date.fromisoformat(day)
    except ValueError:
        named = date.max
    if named.isoformat() != day or named > today + _CLOCK_SKEW:
        raise InvalidInput("day", "must be YYYY-MM-DD and not in the future")
    return today - named >= timedelta(days=DAY_KEY_DAYS)


def clean_scope(scope: KeyScope) -> KeyScope:
    """``scope`` with its subjects as a sorted set.

    Raises:
        InvalidInput: it asks for quarantine, which has day keys.
    """
    if scope.seal_class == "quarantine":
        raise InvalidInput("seal_class", "quarantine is sealed under a day key")
    return KeyScope(scope.tenant, scope.trajectory, tuple(sorted(set(scope.subjects))), scope.seal_class)
