"""A step becomes a header without text, sealed segments, and the names by which rewards find it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from ebbtide_platform import codec
from ebbtide_platform.doors.intake import Draft, Names, draft_reward, draft_step, identities, outline_step
from ebbtide_platform.errors import SubjectErased, TooLarge
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import Erased, OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.chain import header_digest
from ebbtide_schemas.events import Reward, Segment, Step
from ebbtide_schemas.records import AliasRecord, ChunkRecord, RewardRecord, SealedChunk, StepHeader, StepRecord
from ebbtide_schemas.validation import parse_event
from support.atdp import encoded, reward, step

NOW_MS = 1_773_480_000_000
PLANTED = ("user-42", "Ann Miller", "order 88", "s-1", "t-1", "sess-9", "ticket-7", "resp-5", "g-3", "because Ann")

FULL: dict[str, Any] = {
    "meta": {
        "agent": "support",
        "session": "sess-9",
        "subjects": ["user-42"],
        "response_id": "resp-5",
        "correlations": [{"kind": "ticket", "value": "ticket-7"}],
        "group": {"id": "g-3", "size": 2, "index": 1, "task": "task of Ann Miller"},
        "time": "2026-03-14T09:20:00Z",
    },
    "observation": {
        "segments": [{"role": "user", "content": "I am Ann Miller, where is order 88?"}],
        "tools": [{"name": "lookup", "description": "finds orders"}],
    },
    "action": {"segment": {"role": "assistant", "content": "Let me see, Ann Miller."}},
    "outcome": {"error": "no order 88 for Ann Miller"},
    "rewards": [{"value": 0.5, "name": "style", "reason": "because Ann was happy"}],
}


class Bench:
    """A key door and what an intake needs of it."""

    def __init__(self) -> None:
        self.door = MemoryKeyDoor("acme", clock_ms=lambda: NOW_MS)
        self.sealer = Sealer(self.door)

    def draft(self, received_ms: int = NOW_MS, **members: Any) -> Draft:
        parsed = parse_event(encoded(step(**members)))
        assert isinstance(parsed.event, Step)
        named = sorted(identities(parsed.event))
        people = dict(zip(named, self.door.subject_refs("acme", named), strict=True))
        names = Names("acme", self.door.identity_key("acme"), received_ms)
        pieces = outline_step(parsed.event, names, people)
        return draft_step(parsed.event, parsed.flags, pieces, names, people, self.sealer)

    def reward(self, **members: Any) -> RewardRecord:
        parsed = parse_event(encoded(reward(**members)))
        assert isinstance(parsed.event, Reward)
        names = Names("acme", self.door.identity_key("acme"), NOW_MS)
        (record,) = draft_reward(parsed.event, names, self.sealer).seal()
        return codec.decode(record.value, RewardRecord)

    def open(self, chunks: list[SealedChunk]) -> bytes:
        plain = self.sealer.open(chunks)
        assert not isinstance(plain, Erased)
        return plain


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _read(records: tuple[OutRecord, ...]) -> list[Any]:
    return [codec.decode_any(record.value) for record in records]


def _header(draft: Draft) -> StepHeader:
    return next(record.header for record in _read(draft.seal()) if isinstance(record, StepRecord))


def _chunks_by_segment(records: list[Any]) -> dict[str, list[SealedChunk]]:
    found: dict[str, list[SealedChunk]] = {}
    for record in records:
        chunks = record.sealed if isinstance(record, StepRecord) else ()
        for chunk in (record.sealed,) if isinstance(record, ChunkRecord) else chunks:
            found.setdefault(chunk.segment, []).append(chunk)
    return found


def test_nothing_readable_of_a_person_or_an_id_stands_in_any_record(bench: Bench) -> None:
    records = bench.draft(**FULL).seal()
    everything = b"".join(msgspec.msgpack.encode(record) for record in records)
    assert [planted for planted in PLANTED if planted.encode() in everything] == []


def test_the_records_of_a_step_stand_in_the_order_step_aliases_rewards(bench: Bench) -> None:
    records = bench.draft(**FULL).seal()
    assert [record.topic for record in records] == [
        "ebbtide.steps.v1",
        *["ebbtide.aliases.v1"] * 3,
        "ebbtide.rewards.v1",
    ]
    first, *others = _read(records)
    header = first.header
    assert records[0].key.decode() == header.trajectory
    assert {alias.trajectory for alias in others if isinstance(alias, AliasRecord)} == {header.trajectory}
    assert [record.key.decode() for record in records[1:]] == [other.alias for other in others]
    assert dict(records[0].headers)["ce_id"].decode() == header.event
    assert header.digest == header_digest(header)


def test_every_segment_opens_to_what_was_sent_and_names_nobody(bench: Bench) -> None:
    members = FULL | {"observation": {"segments": [{"role": "user", "content": "hi", "subjects": ["user-7"]}]}}
    records = _read(bench.draft(**members).seal())
    header, chunks = records[0].header, _chunks_by_segment(records)
    assert msgspec.json.decode(bench.open(chunks[header.observation[0].id]), type=Segment) == Segment(
        role="user", content="hi"
    )
    assert b"no order 88" in bench.open(chunks[header.hidden.id])
    assert all(chunk.first_event == header.event for found in chunks.values() for chunk in found)


def test_a_retry_has_the_same_id_digest_and_segments_whenever_it_comes(bench: Bench) -> None:
    first, again = bench.draft(**FULL), bench.draft(NOW_MS + 3_600_000, **FULL)
    assert (first.event, first.digest) == (again.event, again.digest)
    assert _header(first).observation == _header(again).observation


@pytest.mark.parametrize(
    "change",
    [
        {"action": {"segment": {"role": "assistant", "content": "Something else."}}},
        {"rewards": [{"value": 0.6, "name": "style"}]},
        {"outcome": {"error": "another"}},
        {"meta": FULL["meta"] | {"response_id": "resp-6"}},
        {"meta": FULL["meta"] | {"purpose": "training"}},
        {"end": "terminated"},
    ],
)
def test_another_content_under_the_same_id_has_another_digest(bench: Bench, change: dict[str, Any]) -> None:
    first, other = bench.draft(**FULL), bench.draft(**FULL | change)
    assert first.event == other.event
    assert first.digest != other.digest


def test_each_segment_is_sealed_under_the_people_it_is_about(bench: Bench) -> None:
    ann, bob = bench.door.subject_refs("acme", ["ann", "bob"])
    header = _header(
        bench.draft(
            meta={"agent": "support", "subjects": ["ann"]},
            observation={
                "segments": [
                    {"role": "user", "content": "inherits"},
                    {"role": "user", "content": "says who", "subjects": ["bob", "ann"]},
                    {"role": "system", "content": "about nobody", "subjects": []},
                ],
                "tools": [{"name": "lookup"}],
            },
        )
    )
    inherits, says, nobody = header.observation
    assert inherits.subjects == (ann,)
    assert says.subjects == tuple(sorted([str(ann), str(bob)]))
    assert (nobody.subjects, nobody.about_nobody) == ((), True)
    assert header.tools[0].about_nobody
    assert (header.subjects, header.subject_declared) == ((ann,), True)


def test_a_step_that_names_nobody_is_about_its_session(bench: Bench) -> None:
    first = _header(bench.draft(meta={"agent": "support", "session": "sess-9"}))
    same = _header(bench.draft(id="s-2", trajectory="t-2", meta={"agent": "support", "session": "sess-9"}))
    other = _header(bench.draft(id="s-3", meta={"agent": "support"}))
    assert not first.subject_declared
    assert first.subjects == same.subjects
    assert first.subjects == (bench.door.subject_refs("acme", ["session:sess-9"])[0],)
    assert other.subjects == (bench.door.subject_refs("acme", ["session:t-1"])[0],)


def test_segments_about_nobody_are_the_same_in_every_trajectory_and_others_are_not(bench: Bench) -> None:
    system = {"role": "system", "content": "You help.", "subjects": []}
    said = {"role": "user", "content": "hello"}
    meta = {"agent": "support", "subjects": ["ann"]}
    headers = [
        _header(bench.draft(id=name, trajectory=name, meta=meta, observation={"segments": [system, said]}))
        for name in ("a", "b")
    ]
    assert headers[0].observation[0].id == headers[1].observation[0].id
    assert headers[0].observation[1].id != headers[1].observation[1].id


def test_a_segment_about_somebody_erased_refuses_the_step(bench: Bench) -> None:
    bench.draft(meta={"agent": "support", "subjects": ["ann", "bob"]})
    bench.door.destroy_subject("acme", "bob")
    with pytest.raises(SubjectErased) as refused:
        bench.draft(observation={"segments": [{"role": "user", "content": "x", "subjects": ["bob"]}]})
    assert refused.value.field == "observation.segments[0].subjects"
    with pytest.raises(SubjectErased):
        bench.draft(meta={"agent": "support", "subjects": ["BOB "]})


def test_an_erasure_between_the_strokes_refuses_the_step(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drafted = bench.draft(meta={"agent": "support", "subjects": ["ann"]})
    bench.door.destroy_subject("acme", "ann")
    monkeypatch.setattr("ebbtide_platform.sealing.sealer.FENCE_EVERY_S", 0.0)
    with pytest.raises(SubjectErased):
        drafted.seal()


def test_a_step_that_no_record_holds_travels_in_chunks_before_itself(bench: Bench) -> None:
    noise = random.Random(7).randbytes(2_000_000).hex()
    records = bench.draft(observation={"segments": [{"role": "user", "content": noise}]}).seal()
    assert all(len(record.value) <= codec.MAX_RECORD_BYTES for record in records)
    read = [record for record in _read(records) if isinstance(record, StepRecord | ChunkRecord)]
    assert [type(record) for record in read[-2:]] == [ChunkRecord, StepRecord]
    assert len({record.key for record in records[: len(read)]}) == 1
    ((_, chunks),) = _chunks_by_segment(read).items()
    assert noise.encode() in bench.open(chunks)


def test_a_step_about_too_many_people_is_refused(bench: Bench) -> None:
    crowd = [
        {"role": "user", "content": "x", "subjects": [f"p-{row}-{number}" for number in range(64)]} for row in range(5)
    ]
    with pytest.raises(TooLarge):
        bench.draft(observation={"segments": crowd})


def test_a_sampler_record_is_sealed_under_everybody_the_step_is_about(bench: Bench) -> None:
    tokens = {"dtype": "u32le", "data": "AQAAAA=="}
    sampler = {
        "prompt_delta": tokens,
        "prompt_digest": "d",
        "tokenizer": "t",
        "chat_template": "c",
        "base_model": "b",
        "output": tokens,
    }
    header = _header(
        bench.draft(
            meta={"agent": "support", "subjects": ["ann"]},
            observation={"segments": [{"role": "user", "content": "x", "subjects": ["bob"]}]},
            action={"segment": {"role": "assistant", "content": "y"}, "sampler": sampler},
        )
    )
    refs = bench.door.subject_refs("acme", ["ann", "bob"])
    assert header.sampler is not None
    assert header.sampler.subjects == tuple(sorted(map(str, refs)))
    assert header.level == "token-exact"


@pytest.mark.parametrize(
    ("time", "event_ms", "suspect"),
    [
        ("2026-03-14T09:20:00Z", NOW_MS, False),
        ("2051-01-01T00:00:00Z", 2_556_144_000_000, True),
        ("1970-01-01T00:00:01Z", 1000, True),
        (1_773_480_000_018_000, NOW_MS + 18, True),
        ("2026-03-29T02:30:00", 1_774_751_400_000, True),
    ],
)
def test_event_times_are_kept_as_given_and_flagged_when_suspect(
    bench: Bench, time: Any, event_ms: int, suspect: bool
) -> None:
    header = _header(bench.draft(meta={"agent": "support", "time": time}))
    assert (header.event_ms, header.time_suspect, header.received_ms) == (event_ms, suspect, NOW_MS)


def test_rewards_known_at_emission_are_events_of_their_own_that_name_their_step(bench: Bench) -> None:
    rewards = [{"value": 1.0}, {"value": 1.0}]
    records = _read(bench.draft(rewards=rewards).seal())
    step_record, alias, *told = records
    assert [(one.value, one.source, one.alias) for one in told] == [(1.0, "environment", alias.alias)] * 2
    assert {(one.trajectory, one.step) for one in told} == {(step_record.header.trajectory, step_record.header.event)}
    assert len({one.event for one in told}) == 2
    again = _read(bench.draft(NOW_MS + 5, rewards=rewards).seal())
    assert [one.event for one in again[2:]] == [one.event for one in told]


@pytest.mark.parametrize(
    "target", [{"step": "s-1"}, {"response": "resp-5"}, {"correlation": {"kind": "ticket", "value": "ticket-7"}}]
)
def test_a_reward_has_the_alias_that_its_step_was_given(bench: Bench, target: dict[str, Any]) -> None:
    aliases = {record.alias for record in _read(bench.draft(**FULL).seal()) if isinstance(record, AliasRecord)}
    assert bench.reward(target=target).alias in aliases


def test_a_reward_on_a_trajectory_names_it_by_its_own_id(bench: Bench) -> None:
    header = _header(bench.draft())
    record = bench.reward(target={"trajectory": "t-1"})
    assert record.alias == record.trajectory == header.trajectory


def test_a_late_rewards_reason_is_sealed_and_its_digest_keyed(bench: Bench) -> None:
    record = bench.reward(reason="Ann said so", supersedes="r-0")
    assert bench.open(list(record.reason)) == b"Ann said so"
    assert record.supersedes not in (None, "r-0")
    assert record.digest != bench.reward(reason="Bob said so", supersedes="r-0").digest
    assert record.digest == bench.reward(reason="Ann said so", supersedes="r-0").digest
    other = Bench()
    assert record.digest != other.reward(reason="Ann said so", supersedes="r-0").digest
