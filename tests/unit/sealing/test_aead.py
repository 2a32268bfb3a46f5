"""A chunk opens as what it was sealed as, and as nothing else."""

from __future__ import annotations

import hashlib
import hmac
import json
from importlib import resources
from typing import Any

import msgspec
import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from ebbtide_platform.errors import Corrupt, TooLarge
from ebbtide_platform.ports import KeyScope
from ebbtide_platform.sealing import aead
from ebbtide_platform.sealing.identity import uuid8_of
from ebbtide_schemas.records import SealedChunk

VECTORS: dict[str, Any] = json.loads(
    resources.files("ebbtide_schemas").joinpath("vectors/sealing.json").read_text(encoding="utf-8")
)
KEY = bytes.fromhex(VECTORS["key"])
SCOPE = KeyScope("acme", "t-1", ("p-1",), "raw")


def _chunk(members: dict[str, Any]) -> SealedChunk:
    known = {name: value for name, value in members.items() if name != "associated_data"}
    known["nonce"], known["data"] = bytes.fromhex(known["nonce"]), bytes.fromhex(known["data"])
    return msgspec.convert(known, SealedChunk)


def _seal(plain: bytes) -> tuple[SealedChunk, ...]:
    return aead.seal_segment(KEY, SCOPE, first_event="e-1", segment="s-1", plain=plain)


@pytest.mark.parametrize("vector", VECTORS["segments"], ids=lambda vector: vector["name"])
def test_a_sealed_segment_opens_as_its_vector_says(vector: dict[str, Any]) -> None:
    chunks = [_chunk(members) for members in vector["chunks"]]
    assert [aead.associated_data(chunk).hex() for chunk in chunks] == [c["associated_data"] for c in vector["chunks"]]
    assert aead.open_segment(KEY, chunks).decode() == vector["plain"]


@pytest.mark.parametrize("vector", VECTORS["corrupt"], ids=lambda vector: vector["why"])
def test_a_segment_with_a_changed_member_is_corrupt(vector: dict[str, Any]) -> None:
    chunks = [_chunk(members | vector["change"]) for members in VECTORS["segments"][vector["of"]]["chunks"]]
    with pytest.raises(Corrupt):
        aead.open_segment(KEY, chunks)


@pytest.mark.parametrize("vector", VECTORS["orders"], ids=lambda vector: vector["why"])
def test_chunks_open_only_whole_and_in_order(vector: dict[str, Any]) -> None:
    chunks = VECTORS["segments"][vector["of"]]["chunks"]
    with pytest.raises(Corrupt):
        aead.open_segment(KEY, [_chunk(chunks[number]) for number in vector["order"]])


def test_the_vectors_change_every_member_of_a_chunk() -> None:
    changed = {name for vector in VECTORS["corrupt"] for name in vector["change"]}
    assert changed == set(SealedChunk.__struct_fields__)


def test_derived_keys_and_segment_ids_are_those_of_the_vectors() -> None:
    assert {label: aead.derive_key(KEY, label).hex() for label in VECTORS["derived"]} == VECTORS["derived"]
    for vector in VECTORS["segment_ids"]:
        digest = hmac.digest(aead.derive_key(KEY, "segment-id"), vector["canonical"].encode(), hashlib.sha256)
        assert uuid8_of(digest) == vector["id"]


@given(st.binary(max_size=2_000))
def test_what_was_sealed_comes_back(plain: bytes) -> None:
    assert aead.open_segment(KEY, _seal(plain)) == plain


def test_a_large_segment_is_several_chunks_that_fit_a_record(random_bytes: bytes) -> None:
    chunks = _seal(random_bytes)
    assert len(chunks) == 3
    assert all(len(chunk.data) <= aead.CHUNK_BYTES + 16 for chunk in chunks)
    assert aead.open_segment(KEY, chunks) == random_bytes


def test_chunks_of_two_segments_do_not_mix(random_bytes: bytes) -> None:
    one = _seal(random_bytes)
    two = aead.seal_segment(KEY, SCOPE, first_event="e-1", segment="s-2", plain=random_bytes)
    with pytest.raises(Corrupt):
        aead.open_segment(KEY, (one[0], two[1], one[2]))


def test_sealing_twice_shares_no_nonce() -> None:
    assert _seal(b"once")[0].nonce != _seal(b"once")[0].nonce


def test_another_key_does_not_open() -> None:
    with pytest.raises(Corrupt):
        aead.open_segment(bytes(32), _seal(b"text"))


@pytest.mark.parametrize("number", [-1, 2**40])
def test_a_number_out_of_range_is_corrupt(number: int) -> None:
    chunk = msgspec.structs.replace(_seal(b"text")[0], chunk=number)
    with pytest.raises(Corrupt):
        aead.associated_data(chunk)


def test_a_segment_that_claims_a_billion_chunks_is_refused_at_once() -> None:
    with pytest.raises(Corrupt):
        aead.open_segment(KEY, [msgspec.structs.replace(_seal(b"text")[0], chunks=10**9)])


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"not compressed",
        zstandard.ZstdCompressor().compress(b"text") + b"more",
        zstandard.ZstdCompressor(write_content_size=False).compress(b"size unknown"),
        zstandard.ZstdCompressor().compress(bytes(aead.MAX_PLAIN_BYTES + 1)),
    ],
    ids=["nothing", "no frame", "trailing bytes", "size not told", "bomb"],
)
def test_content_that_is_not_packed_as_it_should_be_is_corrupt(packed: bytes) -> None:
    chunk = _seal(b"text")[0]
    data = AESGCM(KEY).encrypt(chunk.nonce, packed, aead.associated_data(chunk))
    with pytest.raises(Corrupt):
        aead.open_segment(KEY, [msgspec.structs.replace(chunk, data=data)])


def test_a_segment_beyond_the_limit_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aead, "MAX_PLAIN_BYTES", 10)
    with pytest.raises(TooLarge):
        _seal(bytes(11))


@pytest.fixture(scope="module")
def random_bytes() -> bytes:
    """900 kB that cannot be compressed."""
    return hashlib.shake_256(b"seed").digest(900_000)
