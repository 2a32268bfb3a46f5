"""The clear part of a step and the sealed chunks beside it: what every record on the log is built from.

Nothing here holds text: ids are UUIDv8 strings, times are integer milliseconds since the epoch, digests are
lower-case hex, and what people said is ciphertext.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ebbtide_schemas.events import BranchKind, Count, EndMark, Role

SealClass = Literal["raw", "redacted", "quarantine"]
Level = Literal["recorded", "replayable", "token-exact"]
Verdict = Literal["eligible", "held", "rejected"]
GroupState = Literal["complete", "short", "expired"]
SegmentKind = Literal["message", "tool-definition", "sampler", "hidden", "rendered"]

ReceiptMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""One of our clocks, in milliseconds since the epoch: up to the year 9999, beyond which no calendar writes a date."""
ClaimedMs = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
"""A producer's clock: any time that it could mean, and nothing that a database or JSON cannot hold."""
Finite = Annotated[float, Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
"""Neither NaN nor infinite, so that it can be compared, written as JSON and stored."""


class LogStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The leniency that all log types share."""


# --- sealed content ---------------------------------------------------------------------------------------


class SealedChunk(LogStruct, frozen=True, kw_only=True):
    """One piece of a sealed segment; everything but ``nonce`` and ``data`` is bound as associated data."""

    segment: str
    tenant: str
    trajectory: str | None
    """None: the content key is the tenant's own (tool definitions, segments about nobody)."""
    subjects: tuple[str, ...]
    seal_class: SealClass
    first_event: str
    """The event that carried this segment first."""
    nonce: bytes
    data: bytes
    chunk: Count = 0
    chunks: Count = 1
    day: str | None = None
    """Only for seal class quarantine: the day key (YYYY-MM-DD) that seals what nobody is known to own."""


class SegmentRef(LogStruct, frozen=True, kw_only=True):
    """Where a segment stands in a step, and nothing of what it says."""

    id: str
    kind: SegmentKind
    role: Role | None = None
    subjects: tuple[str, ...] = ()
    about_nobody: bool = False
    """True: sealed under the tenant's key, so no person's erasure takes it."""
    size: Count = 0
    """Bytes of the canonical segment."""


# --- steps, aliases, rewards -------------------------------------------------------------------------------


class GroupRef(LogStruct, frozen=True, kw_only=True):
    """The group a trajectory belongs to, with ids that are keyed by tenant and so never meet another's."""

    id: str
    size: Count
    index: Count | None = None
    task: str | None = None
    environment: str | None = None
    verifier: str | None = None
    seed: Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)] | None = None


class StepHeader(LogStruct, frozen=True, kw_only=True):
    """The clear part of a step: ids, order, governance fields. ``digest`` covers all of it but receipt time
    and ``time_suspect``, which is judged by it."""

    event: str
    tenant: str
    trajectory: str
    session: str
    ordinal: Count
    parent: str | None
    branch: BranchKind
    removed: tuple[Count, ...] = ()
    end: EndMark | None = None
    prefix: Count = 0
    observation: tuple[SegmentRef, ...] = ()
    tools: tuple[SegmentRef, ...] = ()
    action: SegmentRef | None = None
    outcome: tuple[SegmentRef, ...] = ()
    hidden: SegmentRef | None = None
    sampler: SegmentRef | None = None
    agent: str = ""
    agent_version: str | None = None
    harness: str | None = None
    prompt_version: str | None = None
    tools_version: str | None = None
    model: str | None = None
    adapter: str | None = None
    group: GroupRef | None = None
    consent_basis: str | None = None
    purpose: str | None = None
    jurisdiction: str | None = None
    retention: str | None = None
    producer: str | None = None
    subjects: tuple[str, ...] = ()
    subject_declared: bool = False
    """False: nobody was named, and the session's own fresh subject stands in."""
    finish_reason: str | None = None
    status: str = "ok"
    latency_ms: Finite | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    level: Level = "recorded"
    event_ms: ClaimedMs | None = None
    """The producer's clock, as given; None when it named no time that can be read."""
    time_suspect: bool = False
    flags: tuple[str, ...] = ()
    """What the door had to mend, e.g. ``surrogates_replaced``."""
    received_ms: ReceiptMs = 0
    digest: str = ""
