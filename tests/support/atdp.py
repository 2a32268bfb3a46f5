"""Small ATDP/1 events as plain JSON data, and the conformance vectors."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def step(**members: Any) -> dict[str, Any]:
    """A step that is valid, with some members replaced."""
    return {
        "type": "step",
        "specversion": "atdp/1",
        "id": "s-1",
        "trajectory": "t-1",
        "ordinal": 0,
        "meta": {"agent": "support"},
        "observation": {"segments": [{"role": "user", "content": "Where is order 88?"}]},
    } | members


def reward(**members: Any) -> dict[str, Any]:
    """A reward that is valid, with some members replaced."""
    return {
        "type": "reward",
        "specversion": "atdp/1",
        "id": "r-1",
        "target": {"step": "s-1"},
        "value": 1.0,
    } | members


def encoded(event: object) -> bytes:
    """The bytes that a producer sends; NaN and lone surrogates pass through as json writes them."""
    return json.dumps(event).encode()


def vectors(name: str) -> dict[str, Any]:
    """One file of conformance vectors."""
    text = resources.files("ebbtide_schemas").joinpath("vectors", f"{name}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
