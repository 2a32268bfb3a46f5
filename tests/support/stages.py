"""Settle, judge and group over stores in memory: what goes in at the front comes out of the last one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.stage.memory import MemoryStageStore
from ebbtide_platform.codec import decode_any, encode
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import Erased, InRecord, OutRecord, rendered_space
from ebbtide_platform.sealing.identity import event_id, group_id, trajectory_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FINDINGS, MEMBERS, ROUTED, TICKS, TRAJECTORIES
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.chain import header_digest
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import (
    DecisionRecord,
    FactRecord,
    Finding,
    FindingsRecord,
    GroupRecord,
    GroupRef,
    LogRecord,
    MemberRecord,
    Policy,
    RewardRecord,
    SegmentFindings,
    SegmentRef,
    SettledRecord,
    StepHeader,
    TickRecord,
)
from ebbtide_streams.context import StageContext
from ebbtide_streams.group import GroupStage
from ebbtide_streams.judge import JudgeStage
from ebbtide_streams.settle import SettleStage
from ebbtide_streams.stage import Stage

POLICY = Policy(idle_s=100, reward_window_s=1000, group_deadline_s=500)
WINDOW_MS = 1_000_000
_ID_KEY = b"k" * 32
_StageType = type[SettleStage] | type[JudgeStage] | type[GroupStage]
_STAGES: tuple[_StageType, ...] = (SettleStage, JudgeStage, GroupStage)
_ROLES = {"user": "read", "assistant": "said", "tool": "results"}


@dataclass
class Worker:
    """A stage with its store, fed one record at a time as the runner does."""

    stage: Stage
    store: MemoryStageStore

    def feed(self, record: InRecord) -> list[OutRecord]:
        """What the stage emits for ``record``.

        Raises:
            Poison: the stage refuses it; its state is as before.
        """
        self.stage.prepare([record])
        with self.store.transaction({record.topic: record.offset + 1}) as tx, tx.savepoint():
            self.stage.process(record, tx)
        pending = self.store.pending()
        if pending:
            self.store.delivered(pending[-1][0])
        return [output for _, output in pending]


class Pipeline:
    """The three stages over one partition, with real sealing; ``settled``, ``decisions`` ... hold their outputs."""

    def __init__(self, *tenants: str) -> None:
        self.door = MemoryKeyDoor(*(tenants or ("acme",)))
        self.facts = FactsState()
        self.raw = MemorySegmentStore()
        self.rendered = MemorySegmentStore()
        self.sealer = Sealer(self.door)
        self.stores: dict[_StageType, MemoryStageStore] = {stage: MemoryStageStore() for stage in _STAGES}
        self.settled: list[SettledRecord] = []
        self.decisions: list[DecisionRecord] = []
        self.members: list[MemberRecord] = []
        self.groups: list[GroupRecord] = []
        self._offsets = count()
        self.start()
        self.fact("policy", tenant=None, policy=POLICY)

    def start(self) -> None:
        """Start the stages anew over the state that is there, with nothing in memory."""
        self.sealer = Sealer(self.door)
        context = StageContext(
            settings=Settings(),
            sealer=self.sealer,
            facts=lambda: self.facts,
            raw_segments=self.raw,
            rendered_segments=self.rendered,
        )
        self.workers = {stage: Worker(stage(0, context), store) for stage, store in self.stores.items()}

    # --- what goes in -------------------------------------------------------------------------------------------

    def subject(self, name: str, tenant: str = "acme") -> str:
        """The reference of a person."""
        (reference,) = self.door.subject_refs(tenant, [name])
        assert isinstance(reference, str)
        return reference

    def header(
        self,
        name: str,
        ordinal: int = 0,
        parent: str | None = None,
        *,
        says: Sequence[tuple[str, str, Iterable[str]]] = (("user", "hello", ()), ("assistant", "hi", ())),
        finds: Sequence[str] = (),
        trajectory: str = "t",
        subject: str = "ada",
        tenant: str = "acme",
        group: GroupRef | None = None,
        **members: Any,
    ) -> FindingsRecord:
        """A step whose segments (role, text, third persons) stand, sealed, in the segment store with its findings."""
        place = trajectory_id(_ID_KEY, f"{tenant}/{trajectory}")
        event = event_id(_ID_KEY, f"{place}/{name}")
        owner = self.subject(subject, tenant)
        refs: dict[str, list[SegmentRef]] = {"read": [], "said": [], "results": []}
        found: list[SegmentFindings] = []
        for role, text, others in says:
            people = tuple(sorted({owner, *(self.subject(other, tenant) for other in others)}))
            call = "call_1" if role == "tool" else None
            plain = canonical(Segment(role=role, content=text, tool_call_id=call))  # type: ignore[arg-type]
            scope = self.sealer.key_scope(tenant, place, people, "raw")
            segment = self.sealer.segment_id(scope, plain)
            assert isinstance(segment, str)
            chunks = self.sealer.seal(scope, event, segment, plain)
            assert not isinstance(chunks, Erased)
            self.raw.put_chunks(place, "raw", chunks)
            refs[_ROLES[role]].append(
                SegmentRef(id=segment, kind="message", role=role, subjects=people, size=len(plain))  # type: ignore[arg-type]
            )
            spans = [(text.index(value), value) for value in finds if value in text]
            found.append(
                SegmentFindings(
                    segment=segment,
                    findings=tuple(
                        Finding(leaf="/content", start=at, end=at + len(value), type="PERSON", score=0.9)
                        for at, value in spans
                    ),
                )
            )
        header = StepHeader(
            **{  # type: ignore[arg-type]
                "event": event,
                "tenant": tenant,
                "trajectory": place,
                "session": place,
                "ordinal": ordinal,
                "parent": None if parent is None else event_id(_ID_KEY, f"{place}/{parent}"),
                "branch": "continue",
                "observation": tuple(refs["read"]),
                "action": refs["said"][0] if refs["said"] else None,
                "outcome": tuple(refs["results"]),
                "agent": "support",
                "purpose": "training",
                "subjects": (owner,),
                "subject_declared": True,
                "received_ms": ordinal,
                "group": group,
            }
            | members
        )
        header = msgspec.structs.replace(header, digest=header_digest(header))
        record = FindingsRecord(header=header, segments=tuple(found), redaction="r1")
        self.raw.put_findings(record)
        return record

    def step(self, name: str, ordinal: int = 0, parent: str | None = None, **members: Any) -> StepHeader:
        """Feed a step and return its header."""
        record = self.header(name, ordinal, parent, **members)
        self.feed(FINDINGS.name, record)
        return record.header

    def end(self, name: str, ordinal: int, parent: str | None, **members: Any) -> StepHeader:
        """Feed a bare end mark."""
        return self.step(name, ordinal, parent, **{"says": (), "end": "terminated"} | members)

    def reward(
        self, key: str, value: float = 1.0, *, trajectory: str = "t", tenant: str = "acme", **members: Any
    ) -> None:
        """Feed a routed reward."""
        place = trajectory_id(_ID_KEY, f"{tenant}/{trajectory}")
        values: dict[str, Any] = {
            "event": event_id(_ID_KEY, key),
            "tenant": tenant,
            "alias": place,
            "trajectory": place,
            "value": value,
            "name": "reward",
            "source": "human",
            "received_ms": 10,
            "digest": f"{value}",
        }
        self.feed(ROUTED.name, RewardRecord(**values | members))

    def fact(self, kind: Any, **members: Any) -> None:
        """Let a fact be known to every stage."""
        values: dict[str, Any] = {"tenant": "acme", "fact_ms": 10**9} | members
        self.facts.apply(self.facts.offset, FactRecord(kind=kind, **values))

    def erase(self, name: str, tenant: str = "acme") -> None:
        """Destroy a person's key, then say so on the facts, as the door does."""
        destruction = self.door.destroy_subject(tenant, name)
        assert destruction is not None
        self.fact("erasure", tenant=tenant, subject=destruction.subject)

    def tick(self, tick_ms: int) -> None:
        """A tick for every stage, in the order of the pipeline."""
        for stage in self.workers:
            value = encode(TickRecord(tick_ms=tick_ms))
            self._feed(stage, InRecord(TICKS.name, 0, next(self._offsets), None, value, timestamp_ms=tick_ms))

    def feed(self, topic: str, record: LogRecord) -> None:
        """A record on the topic of one of the stages."""
        self._feed(_READERS[topic], InRecord(topic, 0, next(self._offsets), None, encode(record)))

    def _feed(self, stage: _StageType, record: InRecord) -> None:
        for output in self.workers[stage].feed(record):
            read = decode_any(output.value)
            self._outputs(read).append(read)
            if output.topic in _READERS:
                self._feed(
                    _READERS[output.topic], InRecord(output.topic, 0, next(self._offsets), output.key, output.value)
                )

    def _outputs(self, record: LogRecord) -> list[Any]:
        by_type: dict[type, list[Any]] = {
            SettledRecord: self.settled,
            DecisionRecord: self.decisions,
            MemberRecord: self.members,
            GroupRecord: self.groups,
        }
        return by_type[type(record)]

    # --- what came out ------------------------------------------------------------------------------------------

    def verdict(self) -> tuple[str, tuple[str, ...]]:
        """The newest verdict with its reasons."""
        return self.decisions[-1].verdict, self.decisions[-1].reasons

    def texts(self, settled: SettledRecord) -> list[str | None]:
        """What the chains of a revision show, segment by segment; None for a hole."""
        shown: list[str | None] = []
        for ref in (ref for chain in settled.chains for ref in chain.segments):
            chunks = self.rendered.chunks(settled.trajectory, rendered_space(settled.revision), ref.segment)
            plain = Erased() if ref.hole else self.sealer.open(chunks)
            text = None if isinstance(plain, Erased) else msgspec.json.decode(plain, type=Segment).content
            shown.append(text if isinstance(text, str) else None)
        return shown


_READERS: dict[str, _StageType] = {
    FINDINGS.name: SettleStage,
    ROUTED.name: SettleStage,
    TRAJECTORIES.name: JudgeStage,
    MEMBERS.name: GroupStage,
}


def group(name: str, size: int, tenant: str = "acme") -> GroupRef:
    """A group whose id is keyed by tenant, as the door makes it."""
    return GroupRef(id=group_id(tenant.encode() * 8, name), size=size)
