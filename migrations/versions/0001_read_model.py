"""The read model's first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create(
        "trajectories",
        key=_texts("tenant", "trajectory"),
        columns=[
            *_numbers("first_received_ms", "last_received_ms", "ended_ms", "quarantined_ms", "replayed_ms"),
            *_texts("opened_rank", "session", "agent", "purpose", "group_id"),
            *_texts("settled_rank"),
            *_small("revision"),
            *_numbers("settled_ms"),
            *_texts("level", "end", "root", "digest"),
            *_small("holes", "chains"),
            *_texts("decided_rank", "verdict"),
            *_json("reasons"),
            *_texts("policy"),
            *_numbers("facts_offset", "decided_ms"),
            *_small("decided_revision"),
        ],
    )
    op.create_index("trajectories_by_verdict", "trajectories", ["tenant", "verdict", "trajectory"])
    op.create_index("trajectories_by_id", "trajectories", ["trajectory"])
    _create(
        "steps",
        key=_texts("tenant", "trajectory", "event"),
        columns=[
            *_texts("header_rank"),
            *_numbers("ordinal", "received_ms"),
            *_texts("digest", "level", "end", "findings_rank"),
            *_small("scanned", "erased"),
            *_json("findings"),
            *_texts("redaction"),
        ],
    )
    op.create_index("steps_by_event", "steps", ["tenant", "event"])
    _create(
        "decisions",
        key=[*_texts("tenant", "trajectory"), *_small("revision"), *_numbers("facts_offset")],
        columns=[*_texts("rank", "verdict"), *_json("reasons"), *_texts("policy"), *_numbers("decided_ms")],
    )
    _create(
        "samples",
        key=_texts("tenant", "sample"),
        columns=[
            *_numbers("log_offset"),
            *_texts("trajectory", "record_tenant"),
            *_small("revision"),
            sa.Column("live", sa.Boolean),
            *_json("reasons"),
            *_texts("policy"),
            *_numbers("curated_ms", "first_offset", "first_curated_ms", "first_settled_ms"),
        ],
    )
    op.create_index("samples_by_trajectory", "samples", ["tenant", "trajectory"])
    op.create_index("samples_by_time", "samples", ["first_curated_ms"])
    _create(
        "rewards",
        key=_texts("tenant", "event", "alias"),
        columns=[
            *_numbers("seen_ms", "routed_ms"),
            *_texts("header_rank", "name"),
            sa.Column("value", sa.Float),
            *_texts("source"),
            *_numbers("event_ms"),
            *_texts("supersedes", "routed_rank", "trajectory", "step"),
        ],
    )
    op.create_index("rewards_by_trajectory", "rewards", ["tenant", "trajectory"])
    _create(
        "groups",
        key=_texts("tenant", "group_id"),
        columns=[
            *_small("size"),
            *_texts("task", "rank", "state"),
            *_small("revision"),
            *_json("members"),
            *_numbers("closed_ms"),
        ],
    )
    _create(
        "quarantine",
        key=[*_texts("stage", "topic"), *_small("partition"), *_numbers("log_offset")],
        columns=[
            *_texts("rank", "tenant", "trajectory", "event", "reason"),
            *_numbers("quarantined_ms"),
            *_small("sealed_partition"),
            *_numbers("sealed_offset", "replayed_ms"),
        ],
    )
    op.create_index("quarantine_by_time", "quarantine", ["tenant", "quarantined_ms"])
    op.create_table(
        "facts",
        sa.Column("log_offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        *_texts("tenant"),
        sa.Column("fact_ms", sa.BigInteger, nullable=False),
        *_texts("subject", "trajectory", "purpose", "state"),
        *_json("policy"),
    )
    op.create_index("facts_by_kind", "facts", ["kind", "tenant", "log_offset"])
    _create(
        "positions",
        key=[*_texts("topic"), *_small("partition")],
        columns=[sa.Column("next_offset", sa.BigInteger, nullable=False)],
    )
    _create(
        "counts",
        key=_texts("tenant", "name", "detail"),
        columns=[sa.Column("value", sa.BigInteger, nullable=False)],
    )


def downgrade() -> None:
    for table in (
        "counts",
        "positions",
        "facts",
        "quarantine",
        "groups",
        "rewards",
        "samples",
        "decisions",
        "steps",
        "trajectories",
    ):
        op.drop_table(table)


def _create(table: str, *, key: list[sa.Column[Any]], columns: list[sa.Column[Any]]) -> None:
    for column in key:
        column.nullable = False
    op.create_table(table, *key, *columns, sa.PrimaryKeyConstraint(*(column.name for column in key)))


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String) for name in names]


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger) for name in names]


def _small(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Integer) for name in names]


def _json(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.JSON) for name in names]
