"""How the log in memory behaves badly on request."""

from __future__ import annotations

import pytest

from ebbtide_platform import topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import OutRecord


def test_a_log_that_is_away_takes_nothing_and_takes_it_when_it_is_back() -> None:
    log, record = MemoryLog(), OutRecord(topics.STEPS.name, b"k", b"v")
    log.available = False
    with pytest.raises(Unavailable):
        log.write([record])
    assert log.records(topics.STEPS) == []
    log.available = True
    log.write([record])
    assert [read.value for read in log.records(topics.STEPS)] == [b"v"]
