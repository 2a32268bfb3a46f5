"""Bad input over HTTP gets a 4xx that names the field and the rule, item by item; the rest of the batch is taken."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.atdp import encoded, reward, step
from support.running_platform import ANSWER_S, Platform, running_platform
from support.waiting import wait_until

pytestmark = pytest.mark.platform

TENANT, OTHER = "acme", "other"
DEEP = "[" * 100_000 + "]" * 100_000
BOMB_BYTES = 100_000_000


def _segment(**members: Any) -> dict[str, Any]:
    return {"segments": [{"role": "user", "content": "x"} | members]}


def _calls(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "name": "look", "arguments": arguments}
    return {"segment": {"role": "assistant", "content": None, "tool_calls": [call]}}


ITEMS: dict[str, tuple[bytes, str, str, str]] = {
    "malformed JSON": (b'{"type": "step", "id', "invalid", "type", "the JSON ends inside a string"),
    "no object": (b"5", "invalid", "$", "expected object, got int"),
    "another type": (encoded(step(type="vision-2027")), "invalid", "type", "must be step or reward"),
    "another version": (encoded(step(specversion="atdp/9")), "invalid", "specversion", "must be atdp/1"),
    "wrong type": (encoded(step(ordinal="0")), "invalid", "ordinal", "expected int, got str"),
    "negative": (encoded(step(ordinal=-1)), "invalid", "ordinal", "expected int >= 0"),
    "huge integer": (encoded(step(ordinal=2**70)), "invalid", "ordinal", "an integer is at most 2**53 - 1"),
    "unknown member": (encoded(step(subjetcs=["u-1"])), "invalid", "subjetcs", "is not a member of ATDP/1"),
    "member twice": (b'{"type":"step","type":"step"}', "invalid", "type", "stands twice in one object"),
    "unknown role": (
        encoded(step(observation=_segment(role="boss"))),
        "invalid",
        "observation.segments[0].role",
        "must be one of",
    ),
    "NaN": (encoded(reward(value=float("nan"))), "invalid", "value", "must be a finite number"),
    "beyond every float": (
        encoded(reward()).replace(b"1.0", b"1e999999"),
        "invalid",
        "value",
        "must be a finite number",
    ),
    "two targets": (encoded(reward(target={"step": "a", "trajectory": "b"})), "invalid", "target", "exactly one of"),
    "another tenant": (
        encoded(step(meta={"agent": "a", "tenant": OTHER})),
        "forbidden",
        "meta.tenant",
        "not that tenant's",
    ),
    "deep": (b'{"messages":' + DEEP.encode() + b"}", "too_large", "messages", "at most 64 levels of nesting"),
    "deep in a string": (
        encoded(step(action=_calls(DEEP))),
        "too_large",
        "action.segment.tool_calls[0].arguments",
        "at most 64 levels of nesting",
    ),
    "oversized": (encoded(step(observation=_segment(content="x" * 9_000_000))), "too_large", "$", "at most 8388608"),
}

BODIES: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "gzip bomb": (gzip.compress(b"\0" * BOMB_BYTES, 1), {"content-encoding": "gzip"}, 413, "at most 33554432 bytes"),
    "gzip that is none": (b"{}", {"content-encoding": "gzip"}, 415, "not what gzip makes"),
    "gzip cut short": (gzip.compress(b"{}")[:-9], {"content-encoding": "gzip"}, 415, "gzip body does not end"),
    "another coding": (b"{}", {"content-encoding": "zstd"}, 415, "must be gzip or absent"),
    "another media type": (b"{}", {"content-type": "text/plain"}, 415, "must be application/json"),
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with running_platform(tmp_path_factory.mktemp("input") / "data", TENANT, OTHER) as platform:
        yield platform


def _post(platform: Platform, body: bytes, tenant: str | None = TENANT, **headers: str) -> httpx.Response:
    if tenant is not None:
        headers["authorization"] = f"Bearer {platform.key(tenant)}"
    sent = {"content-type": "application/json"} | headers
    return httpx.post(f"{platform.settings.api_url}/v1/events", content=body, headers=sent, timeout=ANSWER_S)


@pytest.mark.parametrize("name", ITEMS)
def test_a_bad_event_is_refused_alone_with_field_and_rule(platform: Platform, name: str) -> None:
    bad, code, field, rule = ITEMS[name]
    good = [encoded(step(id=f"{name} {n}", trajectory=f"{name} {n}")) for n in ("before", "after")]
    answer = platform.post_events(TENANT, [good[0], bad, good[1]])
    assert answer.status_code == 207
    before, refused, after = answer.json()["results"]
    assert (before["status"], after["status"]) == ("accepted", "accepted")
    assert (refused["status"], refused["code"], refused["field"]) == ("error", code, field)
    assert rule in refused["rule"]
    assert _post(platform, bad).status_code in {403, 413, 422}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_read_is_refused_whole(platform: Platform, name: str) -> None:
    body, found, status, rule = BODIES[name]
    answer = _post(platform, body, **found)
    assert answer.status_code == status
    assert rule in answer.json()["error"]["rule"]


@pytest.mark.parametrize("name", BODIES)
def test_without_a_key_nothing_is_unpacked(platform: Platform, name: str) -> None:
    body, found, _, _ = BODIES[name]
    assert _post(platform, body, tenant=None, **found).status_code == 401


def test_the_same_id_is_a_duplicate_or_a_conflict_and_another_tenants_is_its_own(platform: Platform) -> None:
    first, other = encoded(step(id="same")), encoded(step(id="same", observation=_segment(content="beta")))
    assert _post(platform, first).json()["results"][0]["status"] == "accepted"
    assert _post(platform, first).json()["results"][0]["status"] == "duplicate"
    conflict = _post(platform, other)
    assert conflict.status_code == 409
    assert conflict.json()["results"][0]["field"] == "id"
    assert _post(platform, other, tenant=OTHER).json()["results"][0]["status"] == "accepted"


def test_half_characters_and_clocks_far_off_are_taken_mended_and_come_out_readable(platform: Platform) -> None:
    texts = ["plain", "bad \udcb2 half", "nul \0 here and the literal \\u0000", "late", "soon"]
    times = [None, None, 1_773_480_000_018_000, "1970-01-01T00:00:01Z", "2051-01-01T00:00:00Z"]
    for number, (text, time) in enumerate(zip(texts, times, strict=True)):
        meta = {"agent": "support", "purpose": "training"} | ({"time": time} if time is not None else {})
        said = step(
            id=f"odd-{number}",
            trajectory="odd",
            ordinal=number,
            meta=meta,
            observation=_segment(content=text) | {"prefix": 2 * number},
            action={"segment": {"role": "assistant", "content": f"Answer {number}."}},
        )
        said |= ({"parent": f"odd-{number - 1}"} if number else {}) | ({"end": "terminated"} if number == 4 else {})
        assert _post(platform, encoded(said)).status_code == 202
    assert _post(platform, encoded(reward(id="odd-r", target={"trajectory": "odd"}))).status_code == 202

    def read() -> list[str]:
        lines = platform.get(TENANT, "/v1/curated").text.splitlines()
        samples = [json.loads(line)["messages"] for line in lines]
        return [message["content"] for messages in samples for message in messages if message["role"] == "user"]

    wait_until(lambda: len(read()) == len(texts), "the odd session is a sample", 60)
    assert read() == ["plain", "bad � half", "nul � here and the literal \\u0000", "late", "soon"]
