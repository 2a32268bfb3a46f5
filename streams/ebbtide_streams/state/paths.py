"""Where stage state and segments of a partition lie under the data directory."""

from __future__ import annotations

from pathlib import Path

from ebbtide_platform.settings import Settings


def state_path(settings: Settings, stage: str, partition: int) -> Path:
    """State of one stage and partition."""
    return settings.data_dir / "state" / f"{stage}-{partition}.sqlite"


def segments_path(settings: Settings, kind: str, partition: int) -> Path:
    """The ``raw`` or ``rendered`` segments of a partition."""
    return settings.data_dir / "segments" / f"{kind}-{partition}.sqlite"
