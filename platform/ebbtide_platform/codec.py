"""Records to bytes and back: msgpack values with CloudEvents 1.0 headers in binary mode."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from ebbtide_platform.errors import Poison
from ebbtide_schemas.records import RECORD_VERSION, LogRecord

Headers = list[tuple[str, bytes]]
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

MAX_RECORD_BYTES = 900_000
"""Largest record value written; below Kafka's default of 1 MB with room for headers."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LogRecord] = msgspec.msgpack.Decoder(LogRecord)


def encode(record: LogRecord) -> bytes:
    """The record's value on the log."""
    return _encoder.encode(record)


def decode(value: bytes | None, expected: type[RecordT]) -> RecordT:
    """Read a record of type ``expected``.

    Raises:
        Poison: the value is null, is no record, is another record or has another version.
    """
    record = decode_any(value)
    if not isinstance(record, expected):
        raise Poison("unexpected_record_type")
    return record


def decode_any(value: bytes | None) -> LogRecord:
    """Read any record.

    Raises:
        Poison: the value is null, is no record, or has a version that this code does not know.
    """
    if value is None:
        raise Poison("null_value")
    try:
        record = _decoder.decode(value)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        raise Poison("undecodable") from None
    if record.version != RECORD_VERSION:
        raise Poison("unknown_version")
    return record


def headers(*, event: str, kind: str, source: str, time_ms: int, tenant: str | None) -> Headers:
    """CloudEvents attributes and routing facts; never personal data."""
    stamp = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    pairs = [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.encode()),
        ("ce_type", f"ebbtide.{kind}.v{RECORD_VERSION}".encode()),
        ("ce_source", f"/ebbtide/{source}".encode()),
        ("ce_time", stamp.replace("+00:00", "Z").encode()),
        ("content-type", b"application/msgpack"),
    ]
    if tenant is not None:
        pairs.append(("ce_tenant", tenant.encode()))
    return pairs
