"""Which changes of a JSON Schema break those who rely on it; inside one version there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def breaking_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Placeholder."""
    return []
