"""Every claim about cost, in the order of an event's way."""

from __future__ import annotations

from support.scale import stages, stores, text

CLAIMS = (*text.CLAIMS, *stages.CLAIMS, *stores.CLAIMS)
OPEN_CLAIMS = (*text.OPEN_CLAIMS, *stages.OPEN_CLAIMS)
"""Bars that are not reached, and known not to be: `make test-long` says so each time, `make test` does not ask."""
