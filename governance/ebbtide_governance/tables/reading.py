"""Questions to the read model. Every one about content names its tenant; only an operator asks without."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Engine, not_
from sqlmodel import Session, col, select

from ebbtide_governance.tables.explaining import explain, failure_of, group_of, summary_of
from ebbtide_governance.tables.rows import (
    CountRow,
    DecisionRow,
    FactRow,
    GroupRow,
    PositionRow,
    QuarantineRow,
    RewardRow,
    SampleRow,
    StepRow,
    TrajectoryRow,
)
from ebbtide_governance.tables.summary import latency_of, status_of
from ebbtide_governance.tables.views import Failure, GroupView, Latency, Page, Status, TrajectorySummary, TrajectoryView
from ebbtide_platform.errors import InvalidInput
from ebbtide_schemas.records import Policy

LAST_ERRORS = 5
LATENCY_SAMPLES = 10_000
"""The newest samples that percentiles are taken over: what a page can afford to sort."""
HISTORY = 200
"""Decisions, rewards and samples shown of one trajectory."""


class ReadModel:
    """Answers from the tables; safe from any thread, since each question opens a session of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def status(self, tenant: str | None, lag: dict[str, int] | None = None) -> Status:
        """Counts, newest errors and latency of ``tenant``; None is all tenants, for the machine's operator."""
        with Session(self._engine) as session:
            counted = select(CountRow)
            if tenant is not None:
                counted = counted.where(CountRow.tenant == tenant)
            counts = {(row.tenant, row.name, row.detail): row.value for row in session.exec(counted)}
            errors = [failure_of(row) for row in _quarantined(session, tenant, LAST_ERRORS)]
            return status_of(tenant, counts, errors, _latency(session, tenant), lag)

    def why(self, tenant: str, trajectory: str) -> TrajectoryView | None:
        """Everything that is known about a trajectory and its verdict; None if this tenant has no such one."""
        with Session(self._engine) as session:
            row = session.get(TrajectoryRow, (tenant, trajectory))
            if row is None:
                return None
            mine = {"tenant": tenant, "trajectory": trajectory}
            return explain(
                row,
                steps=list(session.exec(select(StepRow).filter_by(**mine))),
                decisions=list(
                    session.exec(
                        select(DecisionRow)
                        .filter_by(**mine)
                        .order_by(col(DecisionRow.revision).desc(), col(DecisionRow.facts_offset).desc())
                        .limit(HISTORY)
                    )
                ),
                rewards=list(
                    session.exec(
                        select(RewardRow)
                        .filter_by(**mine)
                        .order_by(col(RewardRow.seen_ms), RewardRow.event)
                        .limit(HISTORY)
                    )
                ),
                samples=list(
                    session.exec(select(SampleRow).filter_by(**mine).order_by(SampleRow.sample).limit(HISTORY))
                ),
                quarantined=list(session.exec(select(QuarantineRow).filter_by(**mine).limit(HISTORY))),
                policy=_policy(session, tenant),
            )

    def trajectory_of_step(self, tenant: str, events: Sequence[str]) -> str | None:
        """The trajectory that one of these steps belongs to."""
        with Session(self._engine) as session:
            mine = select(StepRow.trajectory).where(StepRow.tenant == tenant, col(StepRow.event).in_(events))
            return session.exec(mine).first()

    def tenant_of(self, trajectory: str) -> str | None:
        """Whose a trajectory is: a question for the operator only."""
        with Session(self._engine) as session:
            return session.exec(select(TrajectoryRow.tenant).where(TrajectoryRow.trajectory == trajectory)).first()

    def trajectories(self, tenant: str, *, state: str | None, after: str, limit: int) -> Page[TrajectorySummary]:
        """Trajectories in the order of their ids, behind ``after``; all of them, or those in one state."""
        verdict, quarantined, replayed = (
            col(TrajectoryRow.verdict),
            col(TrajectoryRow.quarantined_ms),
            col(TrajectoryRow.replayed_ms),
        )
        waiting = quarantined.is_not(None) & (replayed.is_(None) | (replayed < quarantined))
        with Session(self._engine) as session:
            asked = select(TrajectoryRow).where(TrajectoryRow.tenant == tenant, TrajectoryRow.trajectory > after)
            if state in ("open", "quarantined"):
                asked = asked.where(verdict.is_(None), waiting if state == "quarantined" else not_(waiting))
            elif state is not None:
                asked = asked.where(verdict == state)
            items = [summary_of(row) for row in session.exec(asked.order_by(TrajectoryRow.trajectory).limit(limit))]
            return Page(items=items, cursor=items[-1].trajectory if len(items) == limit else None)

    def groups(self, tenant: str, *, after: str, limit: int) -> Page[GroupView]:
        """Groups in the order of their ids, behind ``after``."""
        with Session(self._engine) as session:
            asked = select(GroupRow).where(GroupRow.tenant == tenant, GroupRow.group_id > after)
            items = [group_of(row) for row in session.exec(asked.order_by(GroupRow.group_id).limit(limit))]
            return Page(items=items, cursor=items[-1].group if len(items) == limit else None)

    def quarantine(self, tenant: str, *, before: str, limit: int) -> Page[Failure]:
        """Records in quarantine, newest first; references only. ``before`` is a page's cursor or empty."""
        with Session(self._engine) as session:
            rows = _quarantined(session, tenant, limit, before)
            last = f"{rows[-1].quarantined_ms}:{rows[-1].rank}" if len(rows) == limit else None
            return Page(items=[failure_of(row) for row in rows], cursor=last)

    def replayed(self) -> set[tuple[str, str, int, int]]:
        """(stage, topic, partition, offset) of every quarantined record that was produced again: for the operator."""
        with Session(self._engine) as session:
            rows = session.exec(select(QuarantineRow).where(col(QuarantineRow.replayed_ms).is_not(None)))
            return {(row.stage, row.topic, row.partition, row.log_offset) for row in rows}

    def newest_offsets(self, tenant: str, samples: Sequence[str]) -> dict[str, int]:
        """The offset of the last record about each sample in the tenant's topic, as far as it was folded."""
        with Session(self._engine) as session:
            mine = select(SampleRow).where(SampleRow.tenant == tenant, col(SampleRow.sample).in_(samples))
            return {row.sample: row.log_offset for row in session.exec(mine) if row.log_offset is not None}

    def group_state(self, tenant: str, group: str) -> str:
        """``complete``, ``short``, ``expired``, or ``open`` while it is not closed."""
        with Session(self._engine) as session:
            row = session.get(GroupRow, (tenant, group))
            return (row.state if row is not None else None) or "open"

    def positions(self) -> dict[tuple[str, int], int]:
        """How far each partition has been folded."""
        with Session(self._engine) as session:
            return {(row.topic, row.partition): row.next_offset for row in session.exec(select(PositionRow))}


def _quarantined(session: Session, tenant: str | None, limit: int, before: str = "") -> list[QuarantineRow]:
    moment, rank = col(QuarantineRow.quarantined_ms), col(QuarantineRow.rank)
    asked = select(QuarantineRow).where(moment.is_not(None))
    if tenant is not None:
        asked = asked.where(QuarantineRow.tenant == tenant)
    if before:
        last_ms, _, last_rank = before.partition(":")
        if not last_ms.isdecimal():
            raise InvalidInput("cursor", "is not one that a page gave")
        asked = asked.where((moment < int(last_ms)) | ((moment == int(last_ms)) & (rank < last_rank)))
    return list(session.exec(asked.order_by(moment.desc(), rank.desc()).limit(limit)))


def _latency(session: Session, tenant: str | None) -> Latency | None:
    curated, settled = col(SampleRow.first_curated_ms), col(SampleRow.first_settled_ms)
    same = (col(SampleRow.tenant) == TrajectoryRow.tenant) & (col(SampleRow.trajectory) == TrajectoryRow.trajectory)
    asked = select(curated, TrajectoryRow.last_received_ms, settled).join(TrajectoryRow, same)
    asked = asked.where(curated.is_not(None))
    if tenant is not None:
        asked = asked.where(SampleRow.tenant == tenant)
    newest = session.exec(asked.order_by(curated.desc()).limit(LATENCY_SAMPLES))
    return latency_of([(first, received, tick) for first, received, tick in newest if first is not None])


def _policy(session: Session, tenant: str) -> Policy:
    """The tenant's own newest policy, else the newest that is everybody's."""
    for owner in (tenant, None):
        asked = select(FactRow.policy).where(FactRow.kind == "policy", FactRow.tenant == owner)
        document = session.exec(asked.order_by(col(FactRow.log_offset).desc())).first()
        if document:
            return msgspec.convert(document, Policy)
    return Policy()
