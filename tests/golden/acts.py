"""What happens in a history, one act a line, at times that the history itself keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ebbtide_schemas.records import Policy


class _Act(msgspec.Struct, frozen=True, kw_only=True, tag_field="act", omit_defaults=True):
    """``at_ms`` is receipt time, in milliseconds since the epoch."""

    at_ms: int


class Post(_Act, frozen=True, kw_only=True, tag="post"):
    """A producer sends one event, given as JSON text."""

    tenant: str
    event: str
    delivered: int = 1
    """How often its records reach the log, as when an outbox falls after it has written."""
    record_bytes: int | None = None
    """The most that one record of it may hold, so that a small step travels as a large one does."""


class Fact(_Act, frozen=True, kw_only=True, tag="fact"):
    """Somebody rules; people and trajectories by the names that producers have for them."""

    kind: Literal["policy", "consent", "hold", "erasure", "tenant", "review"]
    tenant: str | None = None
    subject: str | None = None
    trajectory: str | None = None
    purpose: str | None = None
    state: Literal["given", "withdrawn", "set", "lifted", "approved", "refused"] | None = None
    policy: Policy | None = None


class Garbage(_Act, frozen=True, kw_only=True, tag="garbage"):
    """Somebody else writes to a topic."""

    topic: str
    text: str


class Tick(_Act, frozen=True, kw_only=True, tag="tick"):
    """Time passes."""


Act = Post | Fact | Garbage | Tick


def read_acts(lines: str) -> list[Act]:
    """The acts of a history, in order."""
    return [msgspec.convert(_with_text(json.loads(line)), Act) for line in lines.splitlines()]


def write_acts(acts: Iterable[Act]) -> str:
    """The same as lines, with the events as part of their JSON; pure ASCII, so that lone surrogates pass."""
    return "".join(json.dumps(_with_data(msgspec.to_builtins(act))) + "\n" for act in acts)


def _with_text(act: dict[str, Any]) -> dict[str, Any]:
    return act | {"event": json.dumps(act["event"])} if "event" in act else act


def _with_data(act: dict[str, Any]) -> dict[str, Any]:
    return act | {"event": json.loads(act["event"])} if "event" in act else act
