"""Settles trajectories: unites steps, findings and rewards, and numbers the revisions.

State holds one small row per step, reward and trajectory; headers, findings and text stay in the segment
store. Nothing is settled when it arrives but with the next tick, so that a burst makes one revision.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from ebbtide_governance.chains import segments_of
from ebbtide_governance.facts import FactsView
from ebbtide_governance.settlement import SECOND_MS, Plan, plan
from ebbtide_platform.codec import decode, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord, StageTransaction
from ebbtide_platform.topics import FINDINGS, ROUTED, TICKS, TRAJECTORIES, Topic
from ebbtide_schemas.events import RewardSource
from ebbtide_schemas.records import FindingsRecord, RewardRecord, SettledRecord, StepHeader
from ebbtide_streams.context import StageContext
from ebbtide_streams.settle.rendering import Lacking, RevisionRenderer
from ebbtide_streams.state.agenda import NOW, due, set_due, take_news, tick_of
from ebbtide_streams.state.rows import get_row, key_of, pack, put_row, rows_of, unpack

log = logging.getLogger(__name__)

SETTLED_PER_TICK = 500
"""More are settled by the next tick: a record's work is bounded, and so is the transaction it runs in."""
LACKING_MS = 10_000
"""A trajectory whose text the segment store does not have is looked at again after this."""
DIGEST_BYTES = 16
"""Of a digest as rows keep it: enough to tell two contents apart."""
_NONE_YET = -1

_TRAJECTORY, _STEP, _REWARD, _SUBJECT = b"t", b"s", b"r", b"p"


class _Trajectory(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a trajectory without looking at its steps."""

    tenant: str
    revision: int = _NONE_YET
    digest: bytes = b""
    last_received_ms: int = 0
    top_ordinal: int = -1
    top_has_end: bool = False


class _Step(msgspec.Struct, array_like=True, frozen=True):
    """A pointer to a header in the segment store, and when the step was received first."""

    digest: bytes
    received_ms: int


class _Reward(msgspec.Struct, array_like=True, frozen=True):
    """A reward without its reason, which no later stage reads; ids are packed."""

    digest: bytes
    received_ms: int
    value: float
    name: str
    source: RewardSource
    event_ms: int | None
    time_suspect: bool
    supersedes: bytes | None
    step: bytes | None


class SettleStage:
    """Findings, routed rewards and ticks to `SettledRecord`s. The same id with another digest is `Poison`."""

    name: ClassVar[str] = "settle"
    inputs: ClassVar[tuple[Topic, ...]] = (FINDINGS, ROUTED, TRAJECTORIES, TICKS)

    def __init__(self, partition: int, context: StageContext) -> None:
        self._partition = partition
        self._context = context
        self._renderer = RevisionRenderer(context)

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Nothing is cheaper for a whole batch: text is opened when a trajectory settles, once for all its steps."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Take in one step, reward or tick.

        Raises:
            Poison: it can never be processed.
        """
        if record.topic == FINDINGS.name:
            self._take_step(decode(record.value, FindingsRecord).header, tx)
        elif record.topic == ROUTED.name:
            self._take_reward(decode(record.value, RewardRecord), tx)
        elif record.topic == TRAJECTORIES.name:
            self._take_revision(decode(record.value, SettledRecord), tx)
        else:
            self._tick(tick_of(record), tx)

    # --- taking in ----------------------------------------------------------------------------------------------

    def _take_step(self, header: StepHeader, tx: StageTransaction) -> None:
        trajectory = header.trajectory
        row = _trajectory(tx, trajectory, header.tenant)
        if not _put_first(
            tx, key_of(_STEP, trajectory, header.event), _Step(digest_of(header.digest), header.received_ms)
        ):
            return
        for subject in {*header.subjects, *(name for ref in segments_of(header) for name in ref.subjects)}:
            tx.put(key_of(_SUBJECT, subject, trajectory), b"")
        ends = header.end is not None
        if header.ordinal == row.top_ordinal:
            ends = ends or row.top_has_end
        elif header.ordinal < row.top_ordinal:
            ends = row.top_has_end
        row = replace(
            row,
            last_received_ms=max(row.last_received_ms, header.received_ms),
            top_ordinal=max(row.top_ordinal, header.ordinal),
            top_has_end=ends,
        )
        self._reconsider(trajectory, row, tx)

    def _take_reward(self, reward: RewardRecord, tx: StageTransaction) -> None:
        trajectory = reward.trajectory
        if trajectory is None:
            raise Poison("unrouted")
        row = _trajectory(tx, trajectory, reward.tenant)
        new = _Reward(
            digest=digest_of(reward.digest),
            received_ms=reward.received_ms,
            value=reward.value,
            name=reward.name,
            source=reward.source,
            event_ms=reward.event_ms,
            time_suspect=reward.time_suspect,
            supersedes=None if reward.supersedes is None else pack(reward.supersedes),
            step=None if reward.step is None else pack(reward.step),
        )
        if _put_first(tx, key_of(_REWARD, trajectory, reward.event), new):
            self._reconsider(trajectory, row, tx)

    def _take_revision(self, settled: SettledRecord, tx: StageTransaction) -> None:
        """A state that was lost goes on counting where the log stands: later stages take no number twice."""
        row = _trajectory(tx, settled.trajectory, settled.tenant)
        if settled.revision > row.revision:
            row = replace(row, revision=settled.revision, digest=digest_of(settled.digest))
            self._reconsider(settled.trajectory, row, tx)

    def _reconsider(self, trajectory: str, row: _Trajectory, tx: StageTransaction) -> None:
        """Look at it again when something can come of that: an open trajectory is not planned at every step."""
        put_row(tx, key_of(_TRAJECTORY, trajectory), row)
        if row.top_ordinal >= 0:
            idle_ms = round(self._context.facts().policy(row.tenant).idle_s * SECOND_MS)
            set_due(tx, pack(trajectory), NOW if row.top_has_end else row.last_received_ms + idle_ms)

    # --- settling -----------------------------------------------------------------------------------------------

    def _tick(self, tick_ms: int, tx: StageTransaction) -> None:
        facts = self._context.facts().view()
        self._take_news(facts, tx)
        waiting = 0
        for name in due(tx, tick_ms, SETTLED_PER_TICK):
            try:
                self._settle(unpack(name), facts, tick_ms, tx)
            except Lacking:
                # Nothing was changed yet but when it is due; no other trajectory has to wait with it.
                set_due(tx, name, tick_ms + LACKING_MS)
                waiting += 1
        if waiting:
            log.warning("%d trajectories wait for what the segment store does not have (yet)", waiting)

    def _take_news(self, facts: FactsView, tx: StageTransaction) -> None:
        """An erasure makes holes, and another policy other windows, in what is settled and in what waits."""
        news = take_news(tx, facts)
        for subject in filter(facts.erased, news.subjects):
            prefix = key_of(_SUBJECT, subject)
            for key, _ in list(tx.scan(prefix)):
                set_due(tx, key[len(prefix) :], NOW)
        if news.everybody or news.tenants:
            for name, row in rows_of(tx, _TRAJECTORY, _Trajectory):
                if row.top_ordinal >= 0 and (news.everybody or row.tenant in news.tenants):
                    set_due(tx, name, NOW)

    def _settle(self, trajectory: str, facts: FactsView, tick_ms: int, tx: StageTransaction) -> None:
        key = key_of(_TRAJECTORY, trajectory)
        row = get_row(tx, key, _Trajectory)
        if row is None:
            set_due(tx, pack(trajectory), None)
            return
        steps = [
            self._header(trajectory, unpack(event), step)
            for event, step in rows_of(tx, key_of(_STEP, trajectory), _Step)
        ]
        rewards = [
            _record(trajectory, row.tenant, unpack(event), reward)
            for event, reward in rows_of(tx, key_of(_REWARD, trajectory), _Reward)
        ]
        planned = plan(trajectory, steps, rewards, facts.policy(row.tenant), now_ms=tick_ms)
        set_due(tx, pack(trajectory), None if isinstance(planned, Plan) else planned.until_ms)
        if not isinstance(planned, Plan):
            return

        def is_news(settled: SettledRecord) -> bool:
            return digest_of(settled.digest) != row.digest

        supersedes = None if row.revision == _NONE_YET else row.revision
        settled = self._renderer.render(
            planned, facts, revision=row.revision + 1, supersedes=supersedes, settled_ms=tick_ms, is_news=is_news
        )
        if settled is not None:
            put_row(tx, key, replace(row, revision=settled.revision, digest=digest_of(settled.digest)))
            tx.emit(_output(settled))

    def _header(self, trajectory: str, event: str, row: _Step) -> StepHeader:
        header = self._context.raw_segments.header(trajectory, event)
        if header is None:
            raise Lacking("a header")
        return replace(header, received_ms=row.received_ms)


def digest_of(text: str) -> bytes:
    """A digest as rows keep it."""
    return hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]


def _trajectory(tx: StageTransaction, trajectory: str, tenant: str) -> _Trajectory:
    """The trajectory's row, or a new one; another tenant's event never enters it."""
    row = get_row(tx, key_of(_TRAJECTORY, trajectory), _Trajectory) or _Trajectory(tenant)
    if row.tenant != tenant:
        raise Poison("tenant_mismatch")
    return row


def _put_first(tx: StageTransaction, key: bytes, row: _Step | _Reward) -> bool:
    """Keep the event as it was received first; False if that is known already.

    Raises:
        Poison: the same id came with another content.
    """
    known = get_row(tx, key, type(row))
    if known is not None and known.digest != row.digest:
        raise Poison("conflict")
    if known is not None and known.received_ms <= row.received_ms:
        return False
    put_row(tx, key, row)
    return True


def _record(trajectory: str, tenant: str, event: str, row: _Reward) -> RewardRecord:
    return RewardRecord(
        event=event,
        tenant=tenant,
        alias=trajectory,
        trajectory=trajectory,
        value=row.value,
        name=row.name,
        source=row.source,
        received_ms=row.received_ms,
        event_ms=row.event_ms,
        time_suspect=row.time_suspect,
        supersedes=None if row.supersedes is None else unpack(row.supersedes),
        step=None if row.step is None else unpack(row.step),
    )


def _output(settled: SettledRecord) -> OutRecord:
    stamped = headers(
        event=f"{settled.trajectory}/{settled.revision}",
        kind="settled",
        source=SettleStage.name,
        time_ms=settled.settled_ms,
        tenant=settled.tenant,
    )
    return OutRecord(TRAJECTORIES.name, settled.trajectory.encode(), encode(settled), tuple(stamped))
