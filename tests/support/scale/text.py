"""What text costs on its way from an agent to a settled trajectory, over the turns of one conversation."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from ebbtide.session import Session, open_session
from ebbtide_governance.facts import FactsState
from ebbtide_platform.adapters.segments.memory import MemorySegmentStore
from ebbtide_platform.adapters.segments.sqlite import SqliteSegmentStore
from ebbtide_platform.codec import decode_any
from ebbtide_platform.doors.intake import Names, draft_step, identities, outline_step
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FINDINGS, STEPS
from ebbtide_schemas.events import Segment, Step
from ebbtide_schemas.records import ChunkRecord, StepRecord
from ebbtide_schemas.validation import parse_event
from ebbtide_streams.context import StageContext
from ebbtide_streams.redact import RedactStage
from support.scale.claim import ROW_BYTES, Claim
from support.scale.counting import CountedStage, CountingDetector, count_calls
from support.scale.stages import LATE_MS, steps_of_one
from support.stages import Pipeline

BATCH = 50
"""Steps that redaction takes at once."""


def conversation(turns: int) -> list[bytes]:
    """What the SDK sends for an agent that resends its whole history with every call."""
    sent: list[bytes] = []
    messages: list[dict[str, str]] = []
    session = _session(sent)
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}, from ines.varga{turn}@example.org"})
        answer = f"Answer {turn}: it is on its way"
        session.record(messages, answer)
        messages.append({"role": "assistant", "content": answer})
    return sent


def resending_conversation(turns: int) -> list[bytes]:
    """The same from a producer that does not know which segments are new, and sends all with every step."""
    history: list[Segment] = []
    sent = []
    for raw in conversation(turns):
        step = msgspec.json.decode(raw, type=Step)
        assert step.action is not None
        history += step.observation.segments
        observation = msgspec.structs.replace(step.observation, segments=list(history), prefix=0)
        sent.append(msgspec.json.encode(msgspec.structs.replace(step, observation=observation)))
        history.append(step.action.segment)
    return sent


def _session(sent: list[bytes]) -> Session:
    return open_session(
        sent.append,
        lambda: None,
        agent="support",
        subject="ines",
        purpose="training",
        session=None,
        trajectory=None,
        model=None,
        group=None,
        labels={},
    )


# --- costs ------------------------------------------------------------------------------------------------------


def bytes_sent(turns: int, folder: Path) -> float:
    """Bytes that the SDK sends."""
    return sum(map(len, conversation(turns)))


def bytes_sealed(turns: int, folder: Path) -> float:
    """Bytes that the door seals and appends."""
    return sum(len(record.value) for record in intake(conversation(turns), MemoryKeyDoor("acme")))


def texts_searched(turns: int, folder: Path) -> float:
    """Texts that a detector looks at."""
    return _redact(conversation(turns), folder)[0]


def texts_searched_of_resent(turns: int, folder: Path) -> float:
    """Texts that a detector looks at when every step carries the whole history."""
    return _redact(resending_conversation(turns), folder)[0]


def rows_stored_of_resent(turns: int, folder: Path) -> float:
    """Rows of the segment store when every step carries the whole history."""
    return _redact(resending_conversation(turns), folder)[1]


def rows_stored(turns: int, folder: Path) -> float:
    """Rows of the segment store."""
    return _redact(conversation(turns), folder)[1]


def redaction_rows(turns: int, folder: Path) -> float:
    """Bytes of redaction's largest row of state."""
    return _redact(conversation(turns), folder)[2]


def settling_calls(turns: int, folder: Path) -> float:
    """Calls of opening, rendering and sealing one trajectory, with a name found in each turn."""
    return _settle(turns, "Varga{}")


def settling_calls_of_like_values(turns: int, folder: Path) -> float:
    """The same when all that is found has its longest word in common, as with one street or one family."""
    return _settle(turns, "Harbour Street {}")


def _settle(turns: int, asks: str) -> int:
    pipeline = Pipeline()
    for record in steps_of_one(pipeline, turns, asks=asks):
        pipeline.feed(FINDINGS.name, record)
    pipeline.end("end", turns, f"s{turns - 1}")
    pipeline.reward("reward")
    calls = count_calls(lambda: pipeline.tick(LATE_MS))
    assert pipeline.settled
    return calls


def intake(events: Sequence[bytes], door: MemoryKeyDoor) -> Iterator[OutRecord]:
    """The records that the door makes of events."""
    sealer = Sealer(door)
    names = Names("acme", door.identity_key("acme"), received_ms=1)
    for raw in events:
        step = parse_event(raw).event
        assert isinstance(step, Step)
        named = sorted(identities(step))
        people = dict(zip(named, door.subject_refs("acme", named), strict=True))
        yield from draft_step(step, (), outline_step(step, names, people), names, people, sealer).seal()


def _redact(events: Sequence[bytes], folder: Path) -> tuple[int, int, int]:
    """(texts looked at, rows in the segment store, bytes of the largest row of state) after all of them."""
    detector, door = CountingDetector(), MemoryKeyDoor("acme")
    path = folder / "raw.sqlite"
    store = SqliteSegmentStore(path)
    context = StageContext(
        settings=Settings(),
        sealer=Sealer(door),
        facts=FactsState,
        raw_segments=store,
        rendered_segments=MemorySegmentStore(),
        pool=detector,
    )
    records = [decode_any(record.value) for record in intake(events, door) if record.topic == STEPS.name]
    steps = [record for record in records if isinstance(record, StepRecord | ChunkRecord)]
    with closing(store), CountedStage(RedactStage(0, context), folder) as stage:
        for start in range(0, len(steps), BATCH):
            stage.feed(STEPS, steps[start : start + BATCH])
        largest = max(stage.row_bytes())
    with closing(sqlite3.connect(path)) as db:
        tables = ("chunks", "findings", "headers")
        rows = sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    return detector.texts, rows, largest


CLAIMS = (
    Claim("the SDK sends new text, not history", "bytes", bytes_sent, "linear", 200, 2_000),
    Claim("the door seals new text, not history", "bytes", bytes_sealed, "linear", 200, 2_000),
    Claim("new text is searched once", "texts", texts_searched, "linear", 200, 2_000),
    Claim("new text is stored once", "rows", rows_stored, "linear", 200, 2_000),
    Claim("resent text is searched once", "texts", texts_searched_of_resent, "linear", 50, 200),
    Claim("resent text is stored once", "rows", rows_stored_of_resent, "linear", 50, 200),
    Claim("a row of redaction is small", "bytes", redaction_rows, ROW_BYTES, 100, 1_000),
    Claim("settling a trajectory is linear in its steps", "calls", settling_calls, "linear", 100, 2_000),
)

OPEN_CLAIMS = (
    Claim("so it is when all found values are alike", "calls", settling_calls_of_like_values, "linear", 100, 2_000),
)
