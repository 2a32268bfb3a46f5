"""What a producer is answered: per event, by field and rule, and only when it is safe on disk."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import Erased
from ebbtide_platform.sealing.identity import event_id
from ebbtide_platform.topics import ALIASES, REWARDS, STEPS
from ebbtide_schemas.records import RewardRecord, StepRecord
from ebbtide_schemas.validation import MAX_BATCH_BYTES
from support.atdp import encoded, reward, step
from support.doors import StandingDoors, standing_doors

NDJSON = "application/x-ndjson"
SECRET = "Ann-Miller-4711"


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[StandingDoors]:
    with standing_doors(tmp_path) as standing:
        yield standing


def _steps(doors: StandingDoors, tenant: str = "acme") -> list[StepRecord]:
    records = [record for record in doors.records(STEPS) if isinstance(record, StepRecord)]
    return [record for record in records if record.header.tenant == tenant]


def _texts(doors: StandingDoors, tenant: str = "acme") -> dict[str, Any]:
    """What can be read back, by the log's id of the step."""
    found: dict[str, Any] = {}
    for record in _steps(doors, tenant):
        plain = doors.sealer.open(record.sealed[:1])
        found[record.header.event] = "" if isinstance(plain, Erased) else json.loads(plain)["content"]
    return found


def _said(text: str, **members: Any) -> dict[str, Any]:
    return step(observation={"segments": [{"role": "user", "content": text}]}, **members)


# --- taking ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (encoded([step(), reward()]), "application/json"),
        (encoded(step()) + b"\n\n" + encoded(reward()) + b"\n", NDJSON),
        (gzip.compress(encoded([step(), reward()])), "application/json"),
    ],
    ids=["array", "ndjson", "gzip"],
)
def test_a_batch_is_taken_and_each_event_answered_by_its_position(doors: StandingDoors, body: bytes, kind: str) -> None:
    coding = {"content_encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
    answer = doors.post("/v1/events", body, kind=kind, **coding)
    key = doors.door.identity_key("acme")
    assert answer.status_code == 202
    assert answer.json() == {
        "accepted": 2,
        "results": [
            {"index": 0, "status": "accepted", "id": "s-1", "event": event_id(key, "s-1")},
            {"index": 1, "status": "accepted", "id": "r-1", "event": event_id(key, "r-1")},
        ],
    }
    assert [record.header.event for record in _steps(doors)] == [event_id(key, "s-1")]
    assert [record.value for record in doors.records(REWARDS) if isinstance(record, RewardRecord)] == [1.0]
    assert len(doors.records(ALIASES)) == 1


def test_a_single_object_is_taken(doors: StandingDoors) -> None:
    assert doors.post("/v1/events", step()).status_code == 202


def test_the_rest_of_a_batch_is_taken_when_some_of_it_is_wrong(doors: StandingDoors) -> None:
    answer = doors.post("/v1/events", [step(), step(id="s-2", ordinal=-1), step(id="s-3", meta={})])
    assert answer.status_code == 207
    first, *refused = answer.json()["results"]
    assert (answer.json()["accepted"], first["status"]) == (1, "accepted")
    assert [(item["index"], item["status"], item["field"]) for item in refused] == [
        (1, "error", "ordinal"),
        (2, "error", "meta.agent"),
    ]
    assert len(_steps(doors)) == 1


def test_a_batch_that_is_wrong_altogether_gets_the_worst_status(doors: StandingDoors) -> None:
    foreign = step(meta={"agent": "a", "tenant": "globex"})
    assert doors.post("/v1/events", [foreign]).status_code == 403
    assert doors.post("/v1/events", [foreign, step(ordinal=-1)]).status_code == 422


def test_the_same_event_again_is_a_duplicate_and_with_other_content_a_conflict(doors: StandingDoors) -> None:
    assert doors.post("/v1/events", step()).status_code == 202
    again = doors.post("/v1/events", [step(), _said("other"), reward(), reward(), reward(value=0.0)])
    assert again.status_code == 207
    statuses = [(item["status"], item.get("code")) for item in again.json()["results"]]
    assert statuses == [
        ("duplicate", None),
        ("error", "conflict"),
        ("accepted", None),
        ("duplicate", None),
        ("error", "conflict"),
    ]
    assert doors.post("/v1/events", _said("other")).status_code == 409
    assert doors.post("/v1/events", step()).status_code == 202
    assert len(_steps(doors)) == 1


def test_the_rewards_route_takes_rewards_and_nothing_else(doors: StandingDoors) -> None:
    answer = doors.post("/v1/rewards", [reward(), step()])
    assert answer.status_code == 207
    assert [item.get("field") for item in answer.json()["results"]] == [None, "type"]


def test_an_event_about_somebody_erased_is_gone(doors: StandingDoors) -> None:
    meta = {"agent": "a", "subjects": ["u-1"]}
    doors.post("/v1/events", step(meta=meta))
    doors.door.destroy_subject("acme", "u-1")
    answer = doors.post("/v1/events", [step(id="s-2", meta=meta), step(id="s-3")])
    assert answer.status_code == 207
    assert answer.json()["results"][0]["code"] == "subject_erased"
    assert doors.post("/v1/events", step(id="s-2", meta=meta)).status_code == 410


def test_lone_surrogates_and_nul_are_mended_and_flagged_and_the_rest_stays(doors: StandingDoors) -> None:
    lines = [
        encoded(_said("plain 1", id="e-1")),
        encoded(_said("bad X half", id="e-2")).replace(b"X", b"\\udcb2"),
        encoded(_said("plain 3", id="e-3")),
        encoded(_said("nul Y here and the literal text Z", id="e-4"))
        .replace(b"Y", b"\\u0000")
        .replace(b"Z", b"\\\\u0000"),
        encoded(_said("plain 5", id="e-5")),
    ]
    answer = doors.post("/v1/events", b"\n".join(lines), kind=NDJSON)
    assert answer.status_code == 202
    key, texts = doors.door.identity_key("acme"), _texts(doors)
    assert [texts[event_id(key, f"e-{number}")] for number in range(1, 6)] == [
        "plain 1",
        "bad � half",
        "plain 3",
        "nul � here and the literal text \\u0000",
        "plain 5",
    ]
    flags = [record.header.flags for record in _steps(doors)]
    assert flags == [(), ("surrogates_replaced",), (), ("nul_replaced",), ()]


def test_two_tenants_with_the_same_ids_never_meet(doors: StandingDoors) -> None:
    def batch(text: str) -> list[dict[str, Any]]:
        meta = {"agent": "support", "subjects": ["u-1"]}
        return [_said(text, meta=meta), _said(f"{text} 2", id="s-2", meta=meta), reward(id="rw-1")]

    for tenant, text in (("acme", "alpha"), ("globex", "beta")):
        answer = doors.post("/v1/events", batch(text), tenant)
        assert [item["status"] for item in answer.json()["results"]] == ["accepted"] * 3
    assert doors.post("/v1/erasures", {"subject": "u-1"}).status_code == 200
    assert set(_texts(doors, "globex").values()) == {"beta", "beta 2"}
    assert {record.header.event for record in _steps(doors, "acme")}.isdisjoint(_texts(doors, "globex"))
    aliases = {record.alias for record in doors.records(REWARDS) if isinstance(record, RewardRecord)}
    assert len(aliases) == 2


def test_the_keys_of_a_batch_are_asked_for_at_once(doors: StandingDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    content_keys = doors.door.content_keys

    def counted(scopes: Any, *, create: bool) -> Any:
        asked.append(len(scopes))
        return content_keys(scopes, create=create)

    monkeypatch.setattr(doors.door, "content_keys", counted)
    doors.post("/v1/events", [step(id=f"s-{number}", trajectory=f"t-{number}") for number in range(40)])
    assert asked == [40]


# --- what is not the sender's fault ----------------------------------------------------------------------------


def test_events_are_taken_while_the_broker_is_away_and_arrive_later(doors: StandingDoors) -> None:
    doors.log.available = False
    assert doors.post("/v1/events", step()).status_code == 202
    assert doors.log.records(STEPS) == []
    doors.log.available = True
    assert len(_steps(doors)) == 1


def test_a_full_outbox_answers_429_and_says_when_to_come_back(tmp_path: Path) -> None:
    with standing_doors(tmp_path, outbox_bytes=2000) as doors:
        doors.log.available = False
        batch = [step(id=f"s-{number}") for number in range(20)]
        answer = doors.post("/v1/events", batch)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
        doors.log.available = True
        assert doors.post("/v1/events", step()).status_code == 202


def test_a_key_door_that_is_away_answers_503_and_takes_nothing(
    doors: StandingDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(doors.door, "identity_key", away)
    answer = doors.post("/v1/events", step())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert _steps(doors) == []


def test_a_fault_of_the_server_says_nothing_of_the_input(
    doors: StandingDoors, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr(Outbox, "append", broken)
    answer = doors.post("/v1/events", _said(SECRET))
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "error")
    assert SECRET not in answer.text + caplog.text
    assert "ValueError" in caplog.text


# --- bounds ------------------------------------------------------------------------------------------------------


def test_without_a_valid_key_nothing_is_read(doors: StandingDoors) -> None:
    def ask(authorization: bytes) -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("the body was read")

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "query_string": b"",
            "headers": [(b"authorization", authorization), (b"content-encoding", b"gzip")],
        }
        asyncio.run(doors.app(scope, receive, send))
        return sent

    assert ask(b"Bearer ebb_wrong_key")[0]["status"] == 401
    assert ask(b"")[0]["status"] == 401


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (gzip.compress(bytes(MAX_BATCH_BYTES + 1)), "gzip", 413),
        (gzip.compress(gzip.compress(encoded(step()))), "gzip", 422),
        (gzip.compress(encoded(step()))[:-8] + bytes(8), "gzip", 415),
        (gzip.compress(encoded(step()))[:-9], "gzip", 415),
        (gzip.compress(encoded(step())) * 2, "gzip", 415),
        (encoded(step()), "gzip", 415),
        (b"", "gzip", 415),
        (encoded(step()), "zstd", 415),
        (encoded(step()), "gzip, gzip", 415),
        (bytes(MAX_BATCH_BYTES + 1), "identity", 413),
    ],
    ids=["bomb", "twice", "forged", "cut", "two", "plain", "empty", "zstd", "list", "large"],
)
def test_packed_and_large_bodies_are_bounded(doors: StandingDoors, body: bytes, coding: str, status: int) -> None:
    assert doors.post("/v1/events", body, content_encoding=coding).status_code == status
    assert doors.post("/v1/events", step()).status_code == 202


@pytest.mark.parametrize(
    ("observation", "code"),
    [
        (b'{"segments":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_large"),
        (b'{"tools":[{"name":"t","parameters":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}]}", "too_large"),
        (b"{" + b",".join(b'"k%d":1' % number for number in range(200_000)) + b"}", "too_large"),
        (b"{" + b",".join(b'"k":1' for _ in range(200)) + b"}", "invalid"),
        (b'{"prefix":' + b"1" * 100_000 + b"}", "invalid"),
        (b'{"prefix":1e999999}', "invalid"),
    ],
    ids=["brackets", "schema", "keys", "equal keys", "digits", "exponent"],
)
def test_deep_and_bloated_events_are_refused_alone(doors: StandingDoors, observation: bytes, code: str) -> None:
    bad = encoded(step(observation="X")).replace(b'"X"', observation)
    answer = doors.post("/v1/events", encoded(step(id="good")) + b"\n" + bad, kind=NDJSON)
    good, refused = answer.json()["results"]
    assert (answer.status_code, good["status"], refused["code"]) == (207, "accepted", code)


def test_deep_tool_arguments_are_refused(doors: StandingDoors) -> None:
    call = {"id": "c", "name": "t", "arguments": "[" * 100_000 + "]" * 100_000}
    answer = doors.post("/v1/events", step(action={"segment": {"role": "assistant", "tool_calls": [call]}}))
    assert answer.status_code == 413
    assert answer.json()["results"][0]["field"].endswith("arguments")


@pytest.mark.parametrize(
    ("body", "kind", "status", "field"),
    [
        (b"\n\n", NDJSON, 422, "$"),
        (b"[", "application/json", 422, "$"),
        (b"x", "text/plain", 415, "content-type"),
        (b"[" + b"1," * 1000 + b"1]", "application/json", 413, "$"),
    ],
    ids=["empty", "cut", "media type", "many"],
)
def test_a_body_that_is_refused_whole_says_why(
    doors: StandingDoors, body: bytes, kind: str, status: int, field: str
) -> None:
    answer = doors.post("/v1/events", body, kind=kind)
    error = answer.json()["error"]
    assert (answer.status_code, error["field"], set(error)) == (status, field, {"code", "field", "rule", "try"})


def test_a_refusal_never_repeats_what_was_sent(doors: StandingDoors) -> None:
    batch = [
        step(ordinal=SECRET),
        step(branch=SECRET),
        step(meta={"agent": f"{SECRET} !"}),
        step(meta={"agent": "a", "tenant": SECRET}),
        reward(value=SECRET),
    ]
    answer = doors.post("/v1/events", batch)
    assert [item["status"] for item in answer.json()["results"]] == ["error"] * len(batch)
    assert SECRET not in answer.text


def test_a_url_in_a_message_is_kept_and_never_called(doors: StandingDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    url = "http://169.254.169.254/latest/meta-data/"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    answer = doors.post("/v1/events", step(observation={"segments": [{"role": "user", "content": content}]}))
    assert answer.status_code == 202
    (read,) = _texts(doors).values()
    assert read == content
