"""The tables of the read model: ids, states, codes and counts; never text, never a key.

Each table says how two partial rows of one key become one (`Merge`). Every rule is commutative, associative
and idempotent, so the order in which topics are read, and reading twice, change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Index, MetaData
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel


@dataclass(frozen=True)
class Ranked:
    """Columns that belong together: all come from the partial row whose ``rank`` is highest (or lowest)."""

    rank: str
    columns: tuple[str, ...]
    first: bool = False
    """True: the lowest rank wins, because the first one stands."""


@dataclass(frozen=True)
class Merge:
    """How partial rows of one table meet; columns that are not named hold the same value in each of them."""

    key: tuple[str, ...]
    ranked: tuple[Ranked, ...] = ()
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()


class Table(SQLModel, registry=registry(metadata=MetaData())):
    """The base of all read model tables, with metadata of its own: the key store's tables are no concern here."""

    __merge__: ClassVar[Merge]


_JSON: Any = JSON(none_as_null=True)


def _big() -> Any:
    return Field(default=None, sa_type=BigInteger)


class TrajectoryRow(Table, table=True):
    """One trajectory: what came in, what it settled to, and the newest verdict."""

    __tablename__ = "trajectories"
    __table_args__ = (
        Index("trajectories_by_verdict", "tenant", "verdict", "trajectory"),
        Index("trajectories_by_id", "trajectory"),
    )
    __merge__ = Merge(
        key=("tenant", "trajectory"),
        ranked=(
            Ranked("opened_rank", ("session", "agent", "purpose", "group_id"), first=True),
            Ranked("settled_rank", ("revision", "settled_ms", "level", "end", "root", "digest", "holes", "chains")),
            Ranked("decided_rank", ("verdict", "reasons", "policy", "facts_offset", "decided_ms", "decided_revision")),
        ),
        least=("first_received_ms",),
        most=("last_received_ms", "ended_ms", "quarantined_ms", "replayed_ms"),
    )

    tenant: str = Field(primary_key=True)
    trajectory: str = Field(primary_key=True)
    first_received_ms: int | None = _big()
    last_received_ms: int | None = _big()
    ended_ms: int | None = _big()
    """When a step with an end mark was received."""
    quarantined_ms: int | None = _big()
    replayed_ms: int | None = _big()
    opened_rank: str | None = None
    session: str | None = None
    agent: str | None = None
    purpose: str | None = None
    group_id: str | None = None
    settled_rank: str | None = None
    revision: int | None = None
    settled_ms: int | None = _big()
    level: str | None = None
    end: str | None = None
    root: str | None = None
    digest: str | None = None
    holes: int | None = None
    chains: int | None = None
    decided_rank: str | None = None
    verdict: str | None = None
    reasons: list[str] | None = Field(default=None, sa_type=_JSON)
    policy: str | None = None
    facts_offset: int | None = _big()
    decided_ms: int | None = _big()
    decided_revision: int | None = None


class StepRow(Table, table=True):
    """One step event and what redaction counted in its new segments."""

    __tablename__ = "steps"
    __table_args__ = (Index("steps_by_event", "tenant", "event"),)
    __merge__ = Merge(
        key=("tenant", "trajectory", "event"),
        ranked=(
            Ranked("header_rank", ("ordinal", "received_ms", "digest", "level", "end"), first=True),
            Ranked("findings_rank", ("scanned", "erased", "findings", "redaction")),
        ),
    )

    tenant: str = Field(primary_key=True)
    trajectory: str = Field(primary_key=True)
    event: str = Field(primary_key=True)
    header_rank: str | None = None
    ordinal: int | None = _big()
    received_ms: int | None = _big()
    digest: str | None = None
    level: str | None = None
    end: str | None = None
    findings_rank: str | None = None
    scanned: int | None = None
    erased: int | None = None
    findings: dict[str, int] | None = Field(default=None, sa_type=_JSON)
    redaction: str | None = None


class DecisionRow(Table, table=True):
    """One decision in the history of a trajectory."""

    __tablename__ = "decisions"
    __merge__ = Merge(
        key=("tenant", "trajectory", "revision", "facts_offset"),
        ranked=(Ranked("rank", ("verdict", "reasons", "policy", "decided_ms")),),
    )

    tenant: str = Field(primary_key=True)
    trajectory: str = Field(primary_key=True)
    revision: int = Field(primary_key=True)
    facts_offset: int = Field(primary_key=True, sa_type=BigInteger)
    rank: str | None = None
    verdict: str | None = None
    reasons: list[str] | None = Field(default=None, sa_type=_JSON)
    policy: str | None = None
    decided_ms: int | None = _big()


class SampleRow(Table, table=True):
    """One curated sample, under the tenant whose topic it stands in."""

    __tablename__ = "samples"
    __table_args__ = (
        Index("samples_by_trajectory", "tenant", "trajectory"),
        Index("samples_by_time", "first_curated_ms"),
    )
    __merge__ = Merge(
        key=("tenant", "sample"),
        ranked=(
            Ranked(
                "log_offset", ("trajectory", "record_tenant", "revision", "live", "reasons", "policy", "curated_ms")
            ),
            Ranked("first_offset", ("first_curated_ms", "first_settled_ms"), first=True),
        ),
    )

    tenant: str = Field(primary_key=True)
    sample: str = Field(primary_key=True)
    log_offset: int | None = _big()
    """Of the newest record about it; one sample's records stand in one partition, in order."""
    trajectory: str | None = None
    record_tenant: str | None = None
    """The tenant that the record itself names; another one than ``tenant`` would be a broken wall."""
    revision: int | None = None
    live: bool | None = None
    reasons: list[str] | None = Field(default=None, sa_type=_JSON)
    policy: str | None = None
    curated_ms: int | None = _big()
    first_offset: int | None = _big()
    first_curated_ms: int | None = _big()
    first_settled_ms: int | None = _big()


class RewardRow(Table, table=True):
    """One reward: received, and routed once its target is known."""

    __tablename__ = "rewards"
    __table_args__ = (Index("rewards_by_trajectory", "tenant", "trajectory"),)
    __merge__ = Merge(
        key=("tenant", "event", "alias"),
        ranked=(
            Ranked("header_rank", ("name", "value", "source", "event_ms", "supersedes"), first=True),
            Ranked("routed_rank", ("trajectory", "step")),
        ),
        least=("seen_ms", "routed_ms"),
    )

    tenant: str = Field(primary_key=True)
    event: str = Field(primary_key=True)
    alias: str = Field(primary_key=True)
    seen_ms: int | None = _big()
    """Receipt time, once seen at the door's topic."""
    routed_ms: int | None = _big()
    """When the router wrote it on; null while parked."""
    header_rank: str | None = None
    name: str | None = None
    value: float | None = None
    source: str | None = None
    event_ms: int | None = _big()
    supersedes: str | None = None
    routed_rank: str | None = None
    trajectory: str | None = None
    step: str | None = None


class GroupRow(Table, table=True):
    """One GRPO group; without a state it is still open."""

    __tablename__ = "groups"
    __merge__ = Merge(
        key=("tenant", "group_id"),
        ranked=(Ranked("rank", ("state", "revision", "members", "closed_ms")),),
        most=("size", "task"),
    )

    tenant: str = Field(primary_key=True)
    group_id: str = Field(primary_key=True)
    size: int | None = None
    task: str | None = None
    rank: str | None = None
    state: str | None = None
    revision: int | None = None
    members: list[dict[str, Any]] | None = Field(default=None, sa_type=_JSON)
    closed_ms: int | None = _big()


class QuarantineRow(Table, table=True):
    """One record that could not be processed, by reference; the sealed bytes stay on the log."""

    __tablename__ = "quarantine"
    __table_args__ = (Index("quarantine_by_time", "tenant", "quarantined_ms"),)
    __merge__ = Merge(
        key=("stage", "topic", "partition", "log_offset"),
        ranked=(
            Ranked(
                "rank",
                ("tenant", "trajectory", "event", "reason", "quarantined_ms", "sealed_partition", "sealed_offset"),
                first=True,
            ),
        ),
        most=("replayed_ms",),
    )

    stage: str = Field(primary_key=True)
    topic: str = Field(primary_key=True)
    partition: int = Field(primary_key=True)
    log_offset: int = Field(primary_key=True, sa_type=BigInteger)
    rank: str | None = None
    tenant: str | None = None
    trajectory: str | None = None
    event: str | None = None
    reason: str | None = None
    quarantined_ms: int | None = _big()
    sealed_partition: int | None = None
    sealed_offset: int | None = _big()
    replayed_ms: int | None = _big()


class FactRow(Table, table=True):
    """One act of governance, in the order of the facts topic."""

    __tablename__ = "facts"
    __table_args__ = (Index("facts_by_kind", "kind", "tenant", "log_offset"),)
    __merge__ = Merge(key=("log_offset",))

    log_offset: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    kind: str
    tenant: str | None = None
    fact_ms: int = Field(sa_type=BigInteger)
    subject: str | None = None
    trajectory: str | None = None
    purpose: str | None = None
    state: str | None = None
    policy: dict[str, Any] | None = Field(default=None, sa_type=_JSON)


class PositionRow(Table, table=True):
    """How far a partition has been folded; written in the same transaction as the rows."""

    __tablename__ = "positions"

    topic: str = Field(primary_key=True)
    partition: int = Field(primary_key=True)
    next_offset: int = Field(sa_type=BigInteger)


class CountRow(Table, table=True):
    """A count over rows, moved by the difference that each changed row makes."""

    __tablename__ = "counts"

    tenant: str = Field(primary_key=True)
    """Empty for what belongs to no known tenant."""
    name: str = Field(primary_key=True)
    detail: str = Field(primary_key=True)
    value: int = Field(sa_type=BigInteger)


FOLDED: tuple[type[Table], ...] = (
    TrajectoryRow,
    StepRow,
    DecisionRow,
    SampleRow,
    RewardRow,
    GroupRow,
    QuarantineRow,
    FactRow,
)
"""Tables that the fold writes; positions and counts follow from it."""

ALL_TABLES: tuple[type[Table], ...] = (*FOLDED, CountRow, PositionRow)
