"""What passes over the key door's socket: frames of msgpack, a greeting first, then calls and answers in turn.

A frame is its length (4 bytes, big-endian) and that many bytes. The client's first frame is a `Hello`; the door
answers it like a call. Keys travel with the seconds that are left of their lease, since clocks are not shared.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ebbtide_platform import errors
from ebbtide_platform.errors import EbbtideError, InvalidInput, Unavailable
from ebbtide_platform.ports import ContentKey, Erased, KeyScope, Scope

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""Tens of thousands of keys; more is not asked for at once."""
MAX_HELLO_BYTES = 4_096
"""All that is read from a peer that has not shown its token."""
_LENGTH_BYTES = 4


class Hello(msgspec.Struct, frozen=True):
    """The greeting: who asks."""

    token: str


class Call(msgspec.Struct, frozen=True):
    """One call of `ports.KeyDoor`, by name, with its arguments in order."""

    name: str
    arguments: msgspec.Raw


class Success(msgspec.Struct, frozen=True, tag="ok"):
    """The call's result."""

    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, tag="error"):
    """The error that the call raised; its texts never repeat input."""

    code: str
    happened: str
    try_this: str = ""
    field: str = ""
    rule: str = ""


Answer = Success | Failure
KeyAnswer = tuple[bytes, float] | Literal["erased"] | None
"""A key and the seconds left of its lease."""

ARGUMENTS: Mapping[str, Any] = {
    "authenticate": tuple[str],
    "create_tenant": tuple[str],
    "tenants": tuple[()],
    "create_api_key": tuple[str, str, list[Scope]],
    "api_keys": tuple[str],
    "revoke_api_key": tuple[str, str],
    "identity_key": tuple[str],
    "subject_refs": tuple[str, list[str]],
    "content_keys": tuple[list[KeyScope], bool],
    "day_key": tuple[str | None, str],
    "destroy_subject": tuple[str, str],
    "fence": tuple[()],
}
"""Every call, and the types of its arguments."""

_ERRORS: Mapping[str, type[EbbtideError]] = {
    kind.code: kind
    for kind in (
        errors.Unauthenticated,
        errors.Forbidden,
        errors.NotFound,
        errors.Misconfigured,
        errors.Corrupt,
        errors.Denied,
        errors.Unavailable,
    )
}
_INVALID: Mapping[str, type[InvalidInput]] = {kind.code: kind for kind in (errors.InvalidInput, errors.TooLarge)}


def failure_of(error: EbbtideError) -> Failure:
    """``error`` for the wire."""
    if isinstance(error, InvalidInput):
        return Failure(error.code, error.happened, error.try_this, error.field, error.rule)
    return Failure(error.code, error.happened, error.try_this)


def error_of(failure: Failure) -> EbbtideError:
    """``failure`` as the error it was; one that this side does not know is `Unavailable`."""
    if failure.code in _INVALID:
        return _INVALID[failure.code](failure.field, failure.rule, try_this=failure.try_this)
    return _ERRORS.get(failure.code, Unavailable)(failure.happened, try_this=failure.try_this)


def pack_key(key: ContentKey | Erased | None) -> KeyAnswer:
    """A key for the wire."""
    if isinstance(key, ContentKey):
        return key.key, key.expires - time.monotonic()
    return "erased" if isinstance(key, Erased) else None


def unpack_key(answer: KeyAnswer, asked: float) -> ContentKey | Erased | None:
    """A key off the wire; its lease runs from ``asked``, before the door can have given it."""
    if isinstance(answer, tuple):
        return ContentKey(answer[0], asked + answer[1])
    return None if answer is None else Erased()


def write_frame(peer: socket.socket, content: bytes) -> None:
    """Send one frame. Raises `OSError`."""
    peer.sendall(len(content).to_bytes(_LENGTH_BYTES) + content)


def read_frame(peer: socket.socket, limit: int = MAX_FRAME_BYTES) -> bytes | None:
    """The next frame; None when the peer closed between two.

    Raises:
        OSError: the connection broke, or the frame is larger than ``limit``.
    """
    head = _read(peer, _LENGTH_BYTES)
    if not head:
        return None
    length = int.from_bytes(head)
    if len(head) < _LENGTH_BYTES or length > limit:
        raise ConnectionError("no frame of the key door's protocol")
    content = _read(peer, length)
    if len(content) < length:
        raise ConnectionError("the frame ends early")
    return content


def _read(peer: socket.socket, count: int) -> bytes:
    """``count`` bytes, or fewer if the peer closed."""
    content = bytearray()
    while len(content) < count and (piece := peer.recv(count - len(content))):
        content += piece
    return bytes(content)
