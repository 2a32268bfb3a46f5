"""The identity vectors hold for Ebbtide, and for ten lines written from ATDP.md alone."""

from __future__ import annotations

import hashlib
import hmac
import uuid

from ebbtide_platform.sealing import identity
from support.atdp import vectors

VECTORS = vectors("identity")
KEY = bytes.fromhex(VECTORS["key"])


def _from_the_page(digest: bytes) -> str:
    number = int.from_bytes(digest[:16])
    number = number & ~(0xF << 76) | 0x8 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def _joined(parts: list[str]) -> bytes:
    return b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)


def test_an_id_is_that_of_its_vector() -> None:
    for vector in VECTORS["vectors"]:
        parts = vector["parts"]
        assert identity.uuid8(KEY, *parts) == vector["id"]
        assert _from_the_page(hmac.digest(KEY, _joined(parts), hashlib.sha256)) == vector["id"]
        assert uuid.UUID(vector["id"]).version == 8


def test_the_id_of_a_sample_needs_no_key() -> None:
    for vector in VECTORS["samples"]:
        named = [vector["trajectory"], vector["first_step"]]
        assert identity.sample_id(*named) == vector["id"]
        assert _from_the_page(hashlib.sha256(_joined(["sample", *named])).digest()) == vector["id"]


def test_each_name_is_its_vector() -> None:
    by_parts = {tuple(vector["parts"]): vector["id"] for vector in VECTORS["vectors"]}
    assert identity.event_id(KEY, "s-1") == by_parts["event", "s-1"]
    assert identity.trajectory_id(KEY, "t-1") == by_parts["trajectory", "t-1"]
    assert identity.session_id(KEY, "sess-1") == by_parts["session", "sess-1"]
    assert identity.group_id(KEY, "g-1") == by_parts["group", "g-1"]
    assert identity.task_id(KEY, "task-1") == by_parts["task", "task-1"]
    assert identity.alias_id(KEY, "trajectory", "t-1") == by_parts["trajectory", "t-1"]
    assert identity.alias_id(KEY, "response", "chatcmpl-1") == by_parts["alias", "response", "chatcmpl-1"]
