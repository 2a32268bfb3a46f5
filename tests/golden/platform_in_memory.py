"""Everything from the door to the curated topics in one thread, on one partition, at a time that is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import msgspec

from ebbtide_governance.facts import FactsState
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_platform import codec
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode, encode, headers
from ebbtide_platform.doors.events import Answer, EventDoor
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.ports import OutRecord, Principal, rendered_space
from ebbtide_platform.sealing.identity import trajectory_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import ALIASES, DECISIONS, FACTS, REWARDS, STEPS, TICKS, curated
from ebbtide_schemas.records import (
    Chain,
    CuratedRecord,
    CuratedTopicRecord,
    DecisionRecord,
    FactRecord,
    LogRecord,
    TickRecord,
)
from ebbtide_streams.context import StageContext
from ebbtide_streams.curation import Entry, assemble, curate
from ebbtide_streams.group import GroupStage
from ebbtide_streams.judge import JudgeStage
from ebbtide_streams.quarantine import Quarantine
from ebbtide_streams.redact import RedactStage
from ebbtide_streams.route import RouteStage
from ebbtide_streams.runner import StageRunner
from ebbtide_streams.settle import SettleStage
from golden.acts import Act, Fact, Garbage, Post, Tick
from golden.keyring import Keyring, door_of, keyring_of

FRONT = frozenset(topic.name for topic in (STEPS, ALIASES, REWARDS, FACTS, TICKS))
"""Topics that no stage writes: from these the rest of the log follows."""
DRAIN_S = 30.0
_STAGES = (RouteStage, RedactStage, SettleStage, JudgeStage, GroupStage)


class LogEntry(msgspec.Struct, array_like=True, frozen=True):
    """One record of a recorded log."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    at_ms: int


class WrittenLog(MemoryLog):
    """A log of one partition that also remembers the order between its topics."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(1, now_ms=lambda: platform.now_ms)
        self.written: list[LogEntry] = []
        self._platform = platform

    def write(self, records: Sequence[OutRecord]) -> None:
        super().write(records)
        at_ms = self._platform.now_ms
        self.written += [LogEntry(out.topic, out.key, out.value, out.headers, at_ms) for out in records]


class Platform:
    """The parts of a platform; ``log`` has all that they wrote."""

    def __init__(self, keyring: Keyring) -> None:
        self.now_ms = 0
        self.door = door_of(keyring, lambda: self.now_ms)
        self.sealer = Sealer(self.door)
        self.log = WrittenLog(self)
        self.facts = FactsState()
        self.rendered = MemorySegmentStore()
        self._keyring = keyring
        self._curated: dict[str, Entry] = {}
        self._decisions = self.log.follow([DECISIONS])
        context = StageContext(
            settings=Settings(),
            sealer=self.sealer,
            facts=lambda: self.facts,
            raw_segments=MemorySegmentStore(),
            rendered_segments=self.rendered,
            pool=PatternDetector(),
            now_ms=lambda: self.now_ms,
        )
        self._runners = [
            (
                StageRunner(
                    stage(0, context),
                    MemoryStageStore(),
                    self.log,
                    Quarantine(stage.name, self.sealer, context.now_ms),
                    partitions=1,
                ),
                self.log.follow(stage.inputs),
            )
            for stage in _STAGES
        ]

    @property
    def keyring(self) -> Keyring:
        """Every key that there is or was."""
        return keyring_of(self.door, self._keyring)

    def perform(self, acts: Iterable[Act], folder: Path) -> list[str]:
        """Have a history happen, with an outbox in ``folder``; what its producers were answered, in short."""
        answers = []
        with Outbox(folder, self.log, max_bytes=100_000_000, clock_ms=lambda: self.now_ms) as outbox:
            events = EventDoor(self.door, self.sealer, outbox, lambda: self.now_ms)
            for act in acts:
                self.now_ms = act.at_ms
                if isinstance(act, Post):
                    answers.append(self._post(act, events, outbox))
                else:
                    self.append([self._record(act)])
        return answers

    def replay(self, entries: Iterable[LogEntry]) -> None:
        """Have everything behind the door happen again from what the door and the clock have written."""
        for entry in entries:
            if entry.topic in FRONT:
                self.now_ms = entry.at_ms
                self.append([OutRecord(entry.topic, entry.key, entry.value, entry.headers)])

    def append(self, records: Sequence[OutRecord]) -> None:
        """Write records and let every stage take them in."""
        for record in records:
            if record.topic == FACTS.name:
                fact = decode(record.value, FactRecord)
                self.erase(fact)
                self.facts.apply(self.facts.offset, fact)
        self.log.write(records)
        self._run()

    def erase(self, fact: FactRecord) -> None:
        """Destroy the key of the person whose erasure ``fact`` tells; nothing for another fact."""
        if fact.kind != "erasure" or fact.tenant is None:
            return
        self._keyring = self.keyring
        known = self._keyring.tenants[fact.tenant].subjects
        (identity,) = (name for name, reference in known.items() if reference == fact.subject)
        self.door.destroy_subject(fact.tenant, identity)

    # --- acts ---------------------------------------------------------------------------------------------------

    def _post(self, act: Post, events: EventDoor, outbox: Outbox) -> str:
        before = len(self.log.written)
        limit = act.record_bytes
        with nullcontext() if limit is None else mock.patch.object(codec, "MAX_RECORD_BYTES", limit):
            _, answer = events.take(
                Principal(act.tenant, "golden", frozenset({"ingest"})), act.event.encode(), "application/json"
            )
        assert outbox.wait_drained(DRAIN_S)
        new = self.log.written[before:]
        for _ in range(1, act.delivered):
            self.log.write([OutRecord(entry.topic, entry.key, entry.value, entry.headers) for entry in new])
        self._run()
        return _in_short(answer)

    def _record(self, act: Fact | Garbage | Tick) -> OutRecord:
        if isinstance(act, Garbage):
            return OutRecord(act.topic, b"garbage", act.text.encode())
        if isinstance(act, Tick):
            return _out(TICKS.name, "", TickRecord(tick_ms=act.at_ms), act.at_ms, None)
        subject = trajectory = None
        if act.tenant is not None and act.subject is not None:
            reference = self.door.subject_refs(act.tenant, [act.subject])[0]
            assert isinstance(reference, str)
            subject = reference
        if act.tenant is not None and act.trajectory is not None:
            trajectory = trajectory_id(self.door.identity_key(act.tenant), act.trajectory)
        fact = FactRecord(
            kind=act.kind,
            tenant=act.tenant,
            fact_ms=act.at_ms,
            subject=subject,
            trajectory=trajectory,
            purpose=act.purpose,
            state=act.state,
            policy=act.policy,
        )
        return _out(FACTS.name, subject or "", fact, act.at_ms, act.tenant)

    # --- what happens then ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Let the stages read until none of them finds anything new, then the curator."""
        is_news = True
        while is_news:
            is_news = False
            for runner, follower in self._runners:
                if records := follower.poll(0.0):
                    runner.run(records)
                    is_news = True
        for record in self._decisions.poll(0.0):
            self._curate(decode(record.value, DecisionRecord))

    def _curate(self, decision: DecisionRecord) -> None:
        """What the curator does in a transaction; the trajectory alone is a name, since tenants' ids never meet."""
        settled = decision.settled
        curation = curate(decision, self._curated.get(settled.trajectory), self.facts.view())
        if curation is None:
            return
        self._curated[settled.trajectory] = curation.entry
        written: list[CuratedTopicRecord] = [self._sample(decision, chain) for chain in curation.chains]
        for record in (*written, *curation.withdrawals):
            topic = curated(settled.tenant).name
            self.log.write([_out(topic, settled.trajectory, record, decision.decided_ms, settled.tenant)])

    def _sample(self, decision: DecisionRecord, chain: Chain) -> CuratedRecord:
        trajectory, space = decision.settled.trajectory, rendered_space(decision.settled.revision)
        return assemble(decision, chain, lambda segment: self.rendered.chunks(trajectory, space, segment))


def _out(topic: str, key: str, record: LogRecord, at_ms: int, tenant: str | None) -> OutRecord:
    kind = type(record).__struct_config__.tag
    stamped = headers(event=key or str(at_ms), kind=str(kind), source="golden", time_ms=at_ms, tenant=tenant)
    return OutRecord(topic, key.encode(), encode(record), tuple(stamped))


def _in_short(answer: Answer) -> str:
    (result,) = answer.results
    return result.status if result.status != "error" else f"{result.code}: {result.field} {result.rule}"
