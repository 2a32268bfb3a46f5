"""The seams: what Ebbtide asks of a key door, a log, a segment store and a stage store.

Each port has an implementation that ships and a fake that ships, and one contract suite runs over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ebbtide_schemas.records import FindingsRecord, SealClass, SealedChunk, StepHeader

Scope = Literal["ingest", "read", "govern", "admin"]
Workload = Literal["api", "redact", "settle", "admin"]

# --- key door ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Principal:
    """Who an API key is: its tenant (never taken from a payload) and what it may do."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]


@dataclass(frozen=True)
class KeyScope:
    """Which content key: of a trajectory (None: the tenant's own), for a sorted set of subjects, of a class."""

    tenant: str
    trajectory: str | None
    subjects: tuple[str, ...]
    seal_class: SealClass


@dataclass(frozen=True)
class ContentKey:
    """A leased 32-byte key; ``expires`` is in seconds of ``time.monotonic()``."""

    key: bytes = field(repr=False)
    expires: float


@dataclass(frozen=True)
class Erased:
    """The key was destroyed. A state, not an error: every stage marks the hole and goes on."""


@dataclass(frozen=True)
class Destruction:
    """The two instants at which a subject's key ended, in milliseconds since the epoch."""

    subject: str
    unreadable_ms: int
    irrecoverable_ms: int


class KeyDoor(Protocol):
    """The only process that unwraps keys. Every call is synchronous and safe from any thread.

    All calls raise `Denied` when the workload may not, and `Unavailable` when the door does not answer.
    """

    def authenticate(self, api_key: str) -> Principal:
        """Who this key is. Raises `Unauthenticated` for an unknown or revoked key (within 2 s of revocation)."""

    def create_tenant(self, tenant: str) -> bool:
        """Make the tenant's keys; False if it exists already."""

    def tenants(self) -> list[str]:
        """Every tenant, sorted."""

    def create_api_key(self, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """A new API key ``ebb_<id>_<secret>``, shown once; only a digest is kept."""

    def api_keys(self, tenant: str) -> list[tuple[str, str, list[Scope], bool]]:
        """(id, name, scopes, revoked) of each key of the tenant."""

    def revoke_api_key(self, tenant: str, key_id: str) -> None:
        """End the key everywhere within 2 s. Raises `NotFound`."""

    def identity_key(self, tenant: str) -> bytes:
        """The 32-byte HMAC key that turns producers' ids into UUIDv8 (ingest and govern only)."""

    def subject_refs(self, tenant: str, identities: Sequence[str]) -> list[str | Erased]:
        """The random reference of each identity, made at first sight; `Erased` for one that is suppressed."""

    def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
        """The key of each scope; made if ``create``, else None where there is none. Leases last a minute."""

    def day_key(self, tenant: str | None, day: str) -> ContentKey | Erased:
        """The quarantine key of a day (YYYY-MM-DD); `Erased` once it is older than 21 days."""

    def destroy_subject(self, tenant: str, identity: str) -> Destruction | None:
        """Tombstone, suppress and make irrecoverable; None if this identity was never seen. Idempotent."""

    def fence(self) -> int:
        """A number that rises with every destruction; who sees it rise empties its key cache."""


# --- the log ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutRecord:
    """A record to write. ``partition`` None lets murmur2 of ``key`` choose."""

    topic: str
    """Name from the topic table, without the deployment's prefix."""
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


@dataclass(frozen=True)
class InRecord:
    """A record that was read; ``timestamp_ms`` is the broker's or the writer's receipt time."""

    topic: str
    """Name from the topic table, without the deployment's prefix."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


class LogWriter(Protocol):
    """Appends records durably (acks=all, idempotent, murmur2)."""

    def write(self, records: Sequence[OutRecord]) -> None:
        """Return when every record is acknowledged. Raises `Unavailable` if any was not: write all again."""

    def close(self) -> None:
        """Release the connection; nothing is pending by then."""


# --- segments -------------------------------------------------------------------------------------------------


def rendered_space(revision: int) -> str:
    """The space in which one revision's rendered segments lie."""
    return f"rendered:{revision}"


class SegmentStore(Protocol):
    """Sealed segments of one partition; ciphertext and references only, rebuildable from the log.

    One process writes (its owner), any number read. ``space`` is ``raw`` or a `rendered_space`.
    """

    def put_chunks(self, trajectory: str, space: str, chunks: Iterable[SealedChunk]) -> None:
        """Set by (trajectory, space, segment, chunk); the same again changes nothing that can be seen."""

    def chunks(self, trajectory: str, space: str, segment: str) -> list[SealedChunk]:
        """The chunks of a segment in order; empty if it is not there."""

    def put_findings(self, record: FindingsRecord) -> None:
        """Set the step's header and the findings of each segment that was scanned (or erased)."""

    def findings(self, trajectory: str, segment: str) -> tuple[str, bytes] | None:
        """(redaction version, encoded `SegmentFindings`) or None."""

    def header(self, trajectory: str, event: str) -> StepHeader | None:
        """The header that came with `put_findings`, so that stage rows need only point at it."""

    def drop_space(self, trajectory: str, space: str) -> None:
        """Forget what a superseded revision rendered."""

    def close(self) -> None:
        """Release the file."""


# --- stage state ------------------------------------------------------------------------------------------------


class StageTransaction(Protocol):
    """One atomic step of a stage over one partition: state, input offsets and pending outputs together."""

    def get(self, key: bytes) -> bytes | None:
        """The value under ``key``, as this transaction sees it."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set, never add: a repeat must be harmless."""

    def delete(self, key: bytes) -> None:
        """Remove; absent is fine."""

    def scan(self, prefix: bytes, *, start: bytes = b"", limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Pairs whose key has ``prefix`` and is at least ``start``, in key order."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo, if it raises, what was done inside and nothing before it."""

    def emit(self, record: OutRecord) -> None:
        """Queue an output; it is sent after the commit and again after a crash, until acknowledged."""


class StageStore(Protocol):
    """State of one stage and partition under an exclusive lock with an owner epoch."""

    def offsets(self) -> dict[str, int]:
        """The next offset to process, by topic name."""

    def transaction(self, positions: dict[str, int]) -> AbstractContextManager[StageTransaction]:
        """Commit everything done inside together with ``positions`` (next offsets); roll back if it raises."""

    def pending(self) -> list[tuple[int, OutRecord]]:
        """Outputs that are committed and not yet known to be delivered, oldest first, with their numbers."""

    def delivered(self, up_to: int) -> None:
        """Forget pending outputs numbered ``up_to`` or less."""

    def close(self) -> None:
        """Give up the lock."""
