"""Records and bytes: what cannot be read is poison with a code, and headers hold routing facts only."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide_platform.codec import decode, decode_any, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_schemas.records import FactRecord, TickRecord

TICK = TickRecord(tick_ms=1_700_000_000_000)


def test_a_record_comes_back_as_it_went() -> None:
    assert decode(encode(TICK), TickRecord) == TICK


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null_value"),
        (b"", "undecodable"),
        (b"null", "undecodable"),
        (encode(TICK)[:-1], "undecodable"),
        (b"\x91" * 100_000, "undecodable"),
        (msgspec.msgpack.encode({"type": "tick", "tick_ms": 1, "version": 2}), "unknown_version"),
        (msgspec.msgpack.encode({"type": "vision-2027", "version": 1}), "undecodable"),
    ],
    ids=["null", "empty", "json null", "cut short", "deep", "of a later version", "of an unknown kind"],
)
def test_what_cannot_be_read_is_poison_with_its_reason(value: bytes | None, reason: str) -> None:
    with pytest.raises(Poison) as caught:
        decode_any(value)
    assert caught.value.reason == reason


def test_another_record_than_the_expected_one_is_poison() -> None:
    with pytest.raises(Poison, match="unexpected_record_type"):
        decode(encode(TICK), FactRecord)


def test_members_of_tomorrow_are_passed_over() -> None:
    """A processor of yesterday in the same group does not drop what it does not know."""
    tomorrow = msgspec.msgpack.encode({"type": "tick", "tick_ms": 7, "version": 1, "new_member": {"deep": [1]}})
    assert decode(tomorrow, TickRecord) == TickRecord(tick_ms=7)


def test_headers_are_cloudevents_and_name_nobody() -> None:
    found = dict(headers(event="e-1", kind="step", source="door", time_ms=1_700_000_000_123, tenant="acme"))
    assert found == {
        "ce_specversion": b"1.0",
        "ce_id": b"e-1",
        "ce_type": b"ebbtide.step.v1",
        "ce_source": b"/ebbtide/door",
        "ce_time": b"2023-11-14T22:13:20.123Z",
        "content-type": b"application/msgpack",
        "ce_tenant": b"acme",
    }
