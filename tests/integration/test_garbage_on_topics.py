"""Every topic that a stage reads is poisoned: nothing stops or is lost, and what is good still becomes a sample."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.codec import decode
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.topics import (
    ALIASES,
    DECISIONS,
    FACTS,
    FINDINGS,
    MEMBERS,
    QUARANTINE,
    REWARDS,
    ROUTED,
    STEPS,
    TICKS,
    TRAJECTORIES,
    Topic,
)
from ebbtide_schemas.records import QuarantineRecord
from support.atdp import encoded, reward, step
from support.running_platform import Platform, running_platform
from support.waiting import wait_until

pytestmark = pytest.mark.platform

TENANT = "acme"
PERSON = b"Ines Varga"
YEAR_2099_MS, UINT64 = 4_070_908_800_000, 2**64 - 1

READERS = {
    STEPS: ("redact",),
    ALIASES: ("route",),
    REWARDS: ("route",),
    FINDINGS: ("settle",),
    ROUTED: ("settle",),
    TRAJECTORIES: ("settle", "judge"),
    DECISIONS: ("curator",),
    MEMBERS: ("group",),
    TICKS: ("settle", "judge", "group"),
}

Reason = tuple[str, str, str]
"""(topic, stage, reason)."""


def _id(number: int) -> str:
    return f"{number:08x}-0000-8000-8000-000000000000"


def _packed(tag: str, **members: Any) -> bytes:
    return msgspec.msgpack.encode({"type": tag, **members})


def _step(number: int, *, chunk: dict[str, Any] | None = None, **members: Any) -> bytes:
    """A step about nobody whose sealed bytes are none."""
    segment = _id(number)
    header = {
        "event": segment,
        "tenant": TENANT,
        "trajectory": _id(number),
        "session": segment,
        "ordinal": 0,
        "parent": None,
        "branch": "continue",
        "observation": [{"id": segment, "kind": "message", "role": "user", "about_nobody": True}],
        "end": "terminated",
    }
    sealed: dict[str, Any] = {
        "segment": segment,
        "tenant": TENANT,
        "trajectory": None,
        "subjects": [],
        "seal_class": "raw",
        "first_event": segment,
        "nonce": b"\0" * 12,
        "data": b"\0" * 40,
    }
    return _packed("step", header=header | members, sealed=[sealed | (chunk or {})])


def _reward(number: int, **members: Any) -> bytes:
    target = {"alias": _id(number), "trajectory": _id(number)}
    known = {"event": _id(number), "tenant": TENANT, "value": 1.0, "name": "r", "source": "rule", "received_ms": 1}
    return _packed("reward", **{**target, **known, **members})


def _settled(number: int, **members: Any) -> dict[str, Any]:
    chain = {
        "sample": _id(number),
        "steps": [_id(number)],
        "segments": [{"segment": _id(number), "role": "assistant", "trained": True}],
        "rollout_weight": 1.0,
    }
    return {
        "tenant": TENANT,
        "trajectory": _id(number),
        "session": _id(number),
        "revision": 0,
        "supersedes": None,
        "digest": "d",
        "root": "r",
        "chains": [chain],
        "rewards": [],
        "steps": 1,
        "subjects": [],
        "subject_declared": True,
        "end": "terminated",
        "agent": "a",
        **members,
    }


def _decision(number: int, *, settled: dict[str, Any] | None = None, **members: Any) -> bytes:
    verdict = {"verdict": "eligible", "reasons": [], "policy": "p@1", "facts_offset": 2**40, "decided_ms": 1}
    return _packed("decision", settled=_settled(number, **(settled or {})), **{**verdict, **members})


def _member(number: int, **members: Any) -> bytes:
    verdict = {"revision": 0, "facts_offset": 0, "verdict": "eligible", "reasons": [], "decided_ms": 1}
    known = {"group": {"id": _id(number), "size": 2}, "tenant": TENANT, "trajectory": _id(number)}
    return _packed("member", **{**known, **verdict, **members})


def _alias(number: int, **members: Any) -> bytes:
    known = {"alias": _id(number), "tenant": TENANT, "trajectory": _id(number), "step": None, "received_ms": 1}
    return _packed("alias", **{**known, **members})


def _findings(number: int, **members: Any) -> bytes:
    step_record = msgspec.msgpack.decode(_step(number, **members))
    return _packed("findings", header=step_record["header"], segments=[], redaction="v")


ANYWHERE: list[tuple[bytes | None, str]] = [
    (None, "null_value"),
    (b"", "undecodable"),
    (b"null", "undecodable"),
    (b"I am " + PERSON, "undecodable"),
    (_step(1)[:-50], "undecodable"),
    (b"\x91" * 100_000, "undecodable"),
    (_packed("tick", tick_ms="\0").replace(b"\0", b"\xff"), "undecodable"),
    (_packed("vision-2027"), "undecodable"),
    (_packed("tick", tick_ms=1, version=2, mail="ines.varga@example.org"), "unknown_version"),
    (_packed("withdrawal", sample="s", tenant="t", trajectory="t", revision=0, facts_offset=0, reasons=[]),
     "unexpected_record_type"),
]  # fmt: skip
"""What no topic that a stage reads may hold, and why it is set aside."""

OF_ITS_OWN: dict[Topic, list[tuple[bytes, str]]] = {
    STEPS: [
        (_step(10), "corrupt"),
        (_step(11, tenant="ghost", chunk={"tenant": "ghost"}), "corrupt"),
        (_step(12, chunk={"tenant": "other"}), "foreign_segment"),
        (_step(13, chunk={"chunk": UINT64}), "undecodable"),
        (_step(14, chunk={"segment": _id(99)}), "segment_missing"),
        (_step(15, received_ms=UINT64), "undecodable"),
        (_step(16, ordinal=-1), "undecodable"),
        (_step(17, event="e" * 300, observation=[]), "unusable_id"),
        (_packed("chunk", tenant=TENANT, trajectory=_id(0), sealed={}), "undecodable"),
    ],
    ALIASES: [
        (_alias(20, alias=""), "unusable_id"),
        (_alias(21, received_ms=-1), "undecodable"),
        (_alias(22, received_ms=UINT64), "undecodable"),
    ],
    REWARDS: [
        (_reward(30, value=float("nan")), "undecodable"),
        (_reward(31, value=float("inf")), "undecodable"),
        (_reward(32, received_ms=2**62), "undecodable"),
        (_reward(33, event_ms=-UINT64 // 4), "undecodable"),
        (_reward(34, event=""), "unusable_id"),
    ],
    ROUTED: [
        (_reward(40, value=float("-inf")), "undecodable"),
        (_reward(41, trajectory=None), "unrouted"),
        (_reward(42, trajectory="t" * 256), "unusable_id"),
    ],
    FINDINGS: [(_findings(50, received_ms=UINT64), "undecodable"), (_findings(51, event=""), "unusable_id")],
    TRAJECTORIES: [
        (_packed("settled", **_settled(60, settled_ms=UINT64)), "undecodable"),
        (_packed("settled", **_settled(61, trajectory="")), "unusable_id"),
        (_packed("settled", **_settled(62, revision=-1)), "undecodable"),
    ],
    DECISIONS: [
        (_decision(70, decided_ms=2**60), "undecodable"),
        (_decision(71, settled={"tenant": "../other"}), "invalid_tenant"),
        (_decision(72), "rendering_missing"),
    ],
    MEMBERS: [
        (_member(80, decided_ms=UINT64), "undecodable"),
        (_member(81, group={"id": "", "size": 2}), "unusable_id"),
        (_member(82, group={"id": _id(82), "size": -1}), "undecodable"),
    ],
    TICKS: [
        (_packed("tick", tick_ms=YEAR_2099_MS), "tick_ahead"),
        (_packed("tick", tick_ms=UINT64), "undecodable"),
        (_packed("tick", tick_ms=-1), "undecodable"),
    ],
}

HARMLESS: dict[Topic, list[bytes]] = {
    TICKS: [_packed("tick", tick_ms=1_000)],
    FINDINGS: [_findings(90)],
    FACTS: [
        b"I am " + PERSON,
        _packed("fact", kind="erasure", tenant=TENANT, fact_ms=1, subject=""),
        _packed("fact", kind="policy", tenant=None, fact_ms=1, policy={"reward_window_s": float("inf")}),
        _packed("fact", kind="policy", tenant=None, fact_ms=1, policy={"idle_s": float("nan")}),
    ],
}
"""What is taken or passed over, and must hold up nothing: an old tick, findings of a step that never was, no facts."""


def _key(value: bytes | None) -> bytes:
    """The key that the record's own writer would have given it."""
    try:
        record = msgspec.msgpack.decode(value or b"")
        inside = record.get("header") or record.get("settled") or record.get("group") or record
        return str(inside.get("alias") or inside.get("trajectory") or inside.get("id") or "k").encode()
    except (AttributeError, ValueError, RecursionError):
        return b"k"


def _output(topic: Topic, value: bytes | None) -> OutRecord:
    partition = 0 if topic is TICKS else None
    return OutRecord(topic.name, _key(value), value, partition=partition)  # type: ignore[arg-type]  # null is garbage


def _poison() -> Iterator[tuple[OutRecord, list[Reason]]]:
    """Each poisonous record, and all that is to be said of it."""
    for topic, stages in READERS.items():
        for value, reason in (*ANYWHERE, *OF_ITS_OWN[topic]):
            yield _output(topic, value), [(topic.name, stage, reason) for stage in stages]
    strayed = OutRecord(STEPS.name, b"another trajectory", _step(100))
    yield strayed, [(STEPS.name, "redact", "misplaced")]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform all of whose topics were poisoned before anything good came."""
    with running_platform(tmp_path_factory.mktemp("garbage") / "data", TENANT) as platform:
        harmless = [_output(topic, value) for topic, values in HARMLESS.items() for value in values]
        with KafkaLogWriter(platform.settings) as writer:
            writer.write([*harmless, *(output for output, _ in _poison())])
        yield platform


def _quarantined(platform: Platform) -> list[QuarantineRecord]:
    with Follower(platform.settings, [QUARANTINE]) as follower:
        return [decode(record.value, QuarantineRecord) for record in follower.read_to_end()]


def _samples(platform: Platform) -> list[dict[str, Any]]:
    answer = platform.get(TENANT, "/v1/curated")
    return [json.loads(line) for line in answer.text.splitlines()] if answer.status_code == 200 else []


def test_what_is_good_still_becomes_a_sample(platform: Platform) -> None:
    action = {"segment": {"role": "assistant", "content": "On its way."}}
    for number in range(8):
        meta = {"agent": "support", "purpose": "training"}
        name = {"id": f"s-{number}", "trajectory": f"t-{number}"}
        good = [
            step(**name, meta=meta, action=action, end="terminated"),
            reward(id=f"r-{number}", target={"step": name["id"]}),
        ]
        assert platform.post_events(TENANT, [encoded(event) for event in good]).status_code == 202
    wait_until(lambda: len(_samples(platform)) == 8, "every good trajectory is a sample, in whichever partition", 60)
    assert {sample["messages"][-1]["content"] for sample in _samples(platform)} == {"On its way."}


def test_all_else_is_set_aside_sealed_under_its_reason(platform: Platform) -> None:
    expected = Counter(reason for _, reasons in _poison() for reason in reasons)

    def found() -> Counter[Reason]:
        return Counter((record.topic, record.stage, record.reason) for record in _quarantined(platform))

    wait_until(lambda: found().total() >= expected.total(), "every record is set aside", 60)
    assert found() == expected
    assert all(record.sealed for record in _quarantined(platform))


def test_no_process_ended_over_it(platform: Platform) -> None:
    assert "starts again" not in platform.log.read_text()


def test_facts_that_are_none_are_named_by_their_offset(platform: Platform) -> None:
    log = platform.log.read_text()
    passed_over = [line for line in log.splitlines() if "processors" in line and "is passed over" in line]
    assert len(passed_over) == len(HARMLESS[FACTS])


def test_nothing_personal_of_it_is_repeated(platform: Platform) -> None:
    assert PERSON not in platform.log.read_bytes()
    for path in [path for path in platform.settings.data_dir.rglob("*") if path.is_file() and "sqlite" in path.name]:
        assert PERSON not in path.read_bytes(), path.name
