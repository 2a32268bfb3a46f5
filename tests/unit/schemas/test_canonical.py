"""RFC 8785: one value, one byte form."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest

from ebbtide_schemas.canonical import MAX_NESTING, CanonicalError, canonical
from ebbtide_schemas.events import Segment, ToolCall
from support.atdp import vectors

VECTORS = vectors("canonical")


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_a_value_has_the_bytes_of_its_vector(vector: dict[str, str]) -> None:
    written = canonical(json.loads(vector["json"]))
    assert written.decode() == vector["canonical"]
    assert hashlib.sha256(written).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["name"])
def test_a_value_that_is_not_the_same_everywhere_has_no_form(vector: dict[str, str]) -> None:
    with pytest.raises(CanonicalError):
        canonical(json.loads(vector["json"]))


@pytest.mark.parametrize(
    ("number", "text"),
    # Appendix B of RFC 8785, by bit pattern.
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_a_double_is_written_as_ecmascript_writes_it(number: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(number))
    assert canonical(value).decode() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")], {1: 2}, {"a": object()}])
def test_what_json_does_not_know_is_refused(value: object) -> None:
    with pytest.raises(CanonicalError):
        canonical(value)


def test_deep_nesting_is_refused_and_never_recurses_out() -> None:
    deep: list[Any] = []
    for _ in range(MAX_NESTING):
        deep = [deep]
    with pytest.raises(CanonicalError):
        canonical(deep)
    assert canonical(deep[0]) == b"[" * MAX_NESTING + b"]" * MAX_NESTING


def test_a_struct_leaves_out_its_defaults_so_that_new_members_change_no_digest() -> None:
    call = ToolCall(id="c1", name="lookup")
    assert canonical(Segment(role="assistant", tool_calls=[call])) == (
        b'{"role":"assistant","tool_calls":[{"id":"c1","name":"lookup"}]}'
    )


def test_an_error_repeats_nothing_of_the_value() -> None:
    with pytest.raises(CanonicalError) as refused:
        canonical({"ines.varga@example.org": 2**60 + 1})
    assert "ines" not in str(refused.value)
