"""A producer's clock: read kindly, trusted little, and never raising."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

DAY_MS: Final = 86_400_000
MAX_AHEAD_MS: Final = DAY_MS
"""More than a day ahead of receipt is a wrong clock, not a time zone."""
MAX_BEHIND_MS: Final = 400 * DAY_MS
"""More than a year and a month back is a wrong clock or unit, not a late upload."""
_MAX_SECONDS: Final = 10**11
"""Epoch seconds of the year 5138; what is larger was given in a smaller unit."""

_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?(Z|z|[+-]\d\d:?\d\d)?\Z", re.ASCII
)


def event_time(value: str | int | float | None, received_ms: int) -> tuple[int | None, bool]:
    """(milliseconds since the epoch, suspect) of RFC 3339 text or of epoch seconds.

    None where nothing can be read. Suspect: given in milliseconds, microseconds or nanoseconds, without a
    zone (read as UTC), unreadable, over a day ahead of receipt or over 400 days back. No time is not suspect.
    """
    if value is None:
        return None, False
    event_ms, suspect = _from_text(value) if isinstance(value, str) else _from_number(value)
    if event_ms is None:
        return None, True
    return event_ms, suspect or not -MAX_BEHIND_MS <= event_ms - received_ms <= MAX_AHEAD_MS


def _from_number(value: int | float) -> tuple[int | None, bool]:
    # A bool is an int to Python, and not every int has a float: the bound comes first.
    if isinstance(value, bool) or not -(10**20) <= value <= 10**20:
        return None, True
    if abs(value) < _MAX_SECONDS:
        return round(value * 1000), False
    event_ms = int(value)
    while abs(event_ms) >= _MAX_SECONDS * 1000:
        event_ms //= 1000
    return event_ms, True


def _from_text(value: str) -> tuple[int | None, bool]:
    match = _RFC_3339.match(value.strip())
    if match is None:
        return None, True
    *date, fraction, zone = match.groups()
    year, month, day, hour, minute, second = map(int, date)
    try:
        # datetime knows no leap second: the one before, and one more.
        leap = second == 60
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC) + timedelta(seconds=int(leap))
    except (ValueError, OverflowError):
        return None, True
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=UTC)
    event_ms = since_epoch // timedelta(milliseconds=1) + int(((fraction or "") + "000")[:3])
    if zone and zone not in "Zz":
        sign = -1 if zone[0] == "-" else 1
        event_ms -= sign * (int(zone[1:3]) * 60 + int(zone[-2:])) * 60_000
    return event_ms, zone is None
