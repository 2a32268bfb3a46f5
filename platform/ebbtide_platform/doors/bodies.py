"""Reads request bodies within bounds: of one body, packed and unpacked, and of all that are in memory at once."""

from __future__ import annotations

import asyncio
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from ebbtide_platform.errors import InvalidInput, Overloaded, TooLarge, Unsupported
from ebbtide_schemas.validation import MAX_BATCH_BYTES, EventError, scan

MAX_BYTES_AT_ONCE = 128 * 1024 * 1024
"""Of all bodies whose events are not yet in the outbox: four of the largest."""
ARRIVAL_S = 60.0
"""A body that takes longer holds its share of memory for nothing."""
RETRY_AFTER_S = 1.0
MAX_FORM_BYTES = 65_536
_PIECE_BYTES = 1024 * 1024
_GZIP_WINDOW = 31  # zlib's word for: gzip framing, largest window

FormT = TypeVar("FormT", bound=msgspec.Struct)


class Budget:
    """Bytes that all requests share; safe from any thread."""

    def __init__(self, limit: int = MAX_BYTES_AT_ONCE) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._taken = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """One request's part, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self._add(-share.taken)

    def _add(self, count: int) -> None:
        with self._lock:
            if count > 0 and self._taken + count > self._limit:
                raise Overloaded("too many large requests at once", retry_after_s=RETRY_AFTER_S)
            self._taken += count


class Share:
    """What one request holds of a budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, count: int) -> None:
        """Hold ``count`` bytes more. Raises `Overloaded` when all requests together would have too many."""
        self._budget._add(count)
        self.taken += count


async def read_body(request: Request, share: Share) -> bytes:
    """The body, unpacked; ask only after the key was recognised.

    Raises:
        TooLarge: it has more than `MAX_BATCH_BYTES`, packed or unpacked.
        Unsupported: its content coding is not gzip, or it is not what its coding says.
        Overloaded: all requests together hold too much.
        InvalidInput: it did not arrive in time.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", ""):
        raise Unsupported("content-encoding", "must be gzip or absent")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > MAX_BATCH_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(ARRIVAL_S):
            packed = await _arrive(request, share)
    except TimeoutError:
        raise InvalidInput("$", f"a body arrives within {ARRIVAL_S:.0f} s") from None
    return await run_in_threadpool(unpack, packed, share) if coding == "gzip" else packed


async def _arrive(request: Request, share: Share) -> bytes:
    pieces = []
    async for piece in request.stream():
        if share.taken + len(piece) > MAX_BATCH_BYTES:
            raise _too_large()
        share.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def unpack(packed: bytes, share: Share) -> bytes:
    """One gzip member, to its end and no further than a body may be.

    Raises:
        TooLarge, Unsupported, Overloaded: as `read_body`.
    """
    reader = zlib.decompressobj(_GZIP_WINDOW)
    pieces: list[bytes] = []
    size = 0
    while not reader.eof:
        try:
            piece = reader.decompress(packed, _PIECE_BYTES)
        except zlib.error:
            raise Unsupported("content-encoding", "the body is not what gzip makes") from None
        packed = reader.unconsumed_tail
        size += len(piece)
        if size > MAX_BATCH_BYTES:
            raise _too_large()
        if not piece and not packed and not reader.eof:
            raise Unsupported("content-encoding", "the gzip body does not end")
        share.take(len(piece))
        pieces.append(piece)
    if reader.unused_data:
        raise Unsupported("content-encoding", "something follows the gzip body")
    return b"".join(pieces)


def _too_large() -> TooLarge:
    return TooLarge("$", f"a body has at most {MAX_BATCH_BYTES} bytes", try_this="send several smaller batches")


def read_form(body: bytes, form: type[FormT]) -> FormT:
    """A small JSON object whose members are those of ``form``.

    Raises:
        TooLarge: it is too large or too deep.
        InvalidInput: it is not such an object; names the member, never its value.
    """
    if len(body) > MAX_FORM_BYTES:
        raise TooLarge("$", f"has at most {MAX_FORM_BYTES} bytes")
    try:
        text = body.decode()
        scan(text)
        return msgspec.json.decode(text, type=form)
    except EventError as error:
        raise (TooLarge if error.code == "too_large" else InvalidInput)(error.field, error.rule) from None
    except msgspec.ValidationError as error:
        # msgspec's own words may repeat a value; the names of our members are all that is taken from them.
        named = set(re.findall(r"`\$?\.?(\w+)`", str(error))) & set(form.__struct_fields__)
        rule = "is required, with a value that this route takes" if named else "is not what this route takes"
        raise InvalidInput(min(named, default="$"), rule) from None
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidInput("$", "is not well-formed JSON") from None
