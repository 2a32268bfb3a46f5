"""A producer's clock is read kindly and trusted little (case 37)."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide_schemas.validation import event_time
from support.atdp import vectors

VECTORS = vectors("times")
DAY_MS = 86_400_000


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: repr(vector["time"]))
def test_a_time_is_read_as_its_vector_says(vector: dict[str, Any]) -> None:
    assert event_time(vector["time"], VECTORS["received_ms"]) == (vector["event_ms"], vector["suspect"])


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        10**400,
        True,
        "9" * 10_000,
        "0000-01-01T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
    ],
)
def test_nothing_raises_and_nonsense_is_suspect(value: Any) -> None:
    assert event_time(value, 0) == (None, True)


@pytest.mark.parametrize(
    ("offset_ms", "suspect"),
    [(0, False), (DAY_MS, False), (DAY_MS + 1, True), (-400 * DAY_MS, False), (-400 * DAY_MS - 1, True)],
)
def test_a_clock_may_be_a_day_ahead_and_four_hundred_days_back(offset_ms: int, suspect: bool) -> None:
    received = VECTORS["received_ms"]
    assert event_time((received + offset_ms) / 1000, received) == (received + offset_ms, suspect)
