"""Rows of stage state: keys made of ids, values made of small tuples."""

from __future__ import annotations

import uuid
from typing import TypeVar

import msgspec

from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import StageTransaction

RowT = TypeVar("RowT", bound=msgspec.Struct)
_UUID = 0
_UUID_BYTES = 16
MAX_ID_BYTES = 255


def pack(name: str) -> bytes:
    """An id in as few bytes as say it: a UUID in 17, anything else in its UTF-8 and one more.

    No packed id begins another one, so that keys made of several can be searched by their first.

    Raises:
        Poison: it is empty or longer than any id is.
    """
    try:
        known = uuid.UUID(name)
    except ValueError:
        known = None
    if known is not None and str(known) == name:
        return bytes([_UUID]) + known.bytes
    text = name.encode()
    if not 0 < len(text) <= MAX_ID_BYTES:
        raise Poison("unusable_id")
    return bytes([len(text)]) + text


def unpack(packed: bytes) -> str:
    """The id that `pack` made ``packed`` of."""
    if packed[0] == _UUID:
        return str(uuid.UUID(bytes=packed[1 : 1 + _UUID_BYTES]))
    return packed[1:].decode()


def key_of(kind: bytes, *names: str) -> bytes:
    """The key of a row; with fewer names, the prefix of all rows that begin with them."""
    return kind + b"".join(map(pack, names))


def get_row(tx: StageTransaction, key: bytes, kind: type[RowT]) -> RowT | None:
    """The row under ``key``, None if there is none."""
    value = tx.get(key)
    return None if value is None else msgspec.msgpack.decode(value, type=kind)


def put_row(tx: StageTransaction, key: bytes, row: msgspec.Struct) -> None:
    """Set the row under ``key``."""
    tx.put(key, msgspec.msgpack.encode(row))


def rows_of(tx: StageTransaction, prefix: bytes, kind: type[RowT]) -> list[tuple[bytes, RowT]]:
    """(key without ``prefix``, row) of every row under ``prefix``, read before anything is changed."""
    return [(key[len(prefix) :], msgspec.msgpack.decode(value, type=kind)) for key, value in tx.scan(prefix)]
