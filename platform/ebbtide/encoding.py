"""JSON of events and of what tools return, whatever strange text is in it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="deterministic")


def encode_event(event: msgspec.Struct) -> bytes:
    """One event as one line of JSON; lone surrogates are escaped, and the door replaces and flags them."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(event), separators=(",", ":"), sort_keys=True).encode("ascii")


def json_text(value: Any) -> str:
    """JSON text of a tool's arguments or result; what JSON has no form for is written as its type's name."""
    if isinstance(value, str):
        return value if _is_json(value) else json.dumps(value)
    try:
        return msgspec.json.encode(value, enc_hook=_name_of_type).decode()
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(value, default=_name_of_type)


def _name_of_type(value: object) -> str:
    """Never ``repr``: it may show what the program keeps to itself."""
    return f"<{type(value).__name__}>"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
