"""What a stage is given for one partition: everything it may touch, and nothing it must look for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.detector import Detector
from ebbtide_platform.ports import SegmentStore
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings


def clock_ms() -> int:
    """Receipt time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class StageContext:
    """The connections of one stage over one partition, made by whoever composes the process."""

    settings: Settings
    sealer: Sealer
    facts: Callable[[], FactsState]
    raw_segments: SegmentStore
    """Written by redact, read by settle."""
    rendered_segments: SegmentStore
    """Written by settle, read by the curator."""
    pool: Detector | None = None
    """Only redact has one."""
    now_ms: Callable[[], int] = clock_ms
