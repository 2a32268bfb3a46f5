"""One segment under one key: compressed, cut into chunks, each sealed with all that it claims to be.

A chunk is AES-256-GCM with a random 96-bit nonce. Its associated data are these fields in this order, each
as its length (4 bytes, big-endian) and its bytes, an absent one as the length 2**32 - 1::

    format version, tenant, trajectory, number of subjects, each subject, seal class, first event, segment,
    chunk, chunks, day

Texts are UTF-8, numbers are 4 bytes, big-endian. Everything here is pure but for the nonce, which is an argument.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import msgspec
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ebbtide_platform.errors import Corrupt, TooLarge
from ebbtide_platform.ports import KeyScope
from ebbtide_platform.sealing.identity import KEY_BYTES
from ebbtide_schemas.records import SealedChunk

FORMAT_VERSION = 1
NONCE_BYTES = 12
CHUNK_BYTES = 400_000
"""Compressed bytes in one chunk: two of them and a step's header stay below a record's 900 kB."""
MAX_PLAIN_BYTES = 64 * 1024 * 1024
"""An event has at most 8 MiB, and its canonical form may be five times as long (1e20 is written out)."""
_ZSTD_LEVEL = 3
"""Beyond it the time doubles for a few per cent of chat text."""
_ABSENT = b"\xff\xff\xff\xff"


def derive_key(key: bytes, label: str) -> bytes:
    """A 32-byte key for one purpose: HKDF-SHA-256 without salt, ``ebbtide/<label>/1`` as info."""
    info = f"ebbtide/{label}/{FORMAT_VERSION}".encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


def draw_nonce() -> bytes:
    """96 random bits: a content key seals far fewer than the 2**32 chunks at which they might repeat."""
    return secrets.token_bytes(NONCE_BYTES)


def seal_segment(
    key: bytes,
    scope: KeyScope,
    *,
    first_event: str,
    segment: str,
    plain: bytes,
    day: str | None = None,
    nonce: Callable[[], bytes] = draw_nonce,
) -> tuple[SealedChunk, ...]:
    """``plain`` as one or more chunks that open only together and only as what is said here.

    Raises:
        TooLarge: it has more than `MAX_PLAIN_BYTES`.
    """
    if len(plain) > MAX_PLAIN_BYTES:
        raise TooLarge("segment", f"has at most {MAX_PLAIN_BYTES} bytes in canonical form")
    packed = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(plain)
    pieces = [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]
    cipher = AESGCM(key)
    sealed = []
    for number, piece in enumerate(pieces):
        open_chunk = SealedChunk(
            segment=segment,
            tenant=scope.tenant,
            trajectory=scope.trajectory,
            subjects=scope.subjects,
            seal_class=scope.seal_class,
            first_event=first_event,
            nonce=nonce(),
            data=b"",
            chunk=number,
            chunks=len(pieces),
            day=day,
        )
        data = cipher.encrypt(open_chunk.nonce, piece, associated_data(open_chunk))
        sealed.append(msgspec.structs.replace(open_chunk, data=data))
    return tuple(sealed)


def open_segment(key: bytes, chunks: Sequence[SealedChunk]) -> bytes:
    """The segment that these chunks, in order, are.

    Raises:
        Corrupt: a byte or a field was changed, a chunk is missing, repeated or another segment's, or the
            content is not what `seal_segment` makes.
    """
    check_whole(chunks)
    cipher = AESGCM(key)
    try:
        packed = b"".join(cipher.decrypt(chunk.nonce, chunk.data, associated_data(chunk)) for chunk in chunks)
    except (InvalidTag, ValueError, OverflowError):
        raise Corrupt("sealed segment does not open as what it claims to be") from None
    return _decompress(packed)


def check_whole(chunks: Sequence[SealedChunk]) -> None:
    """See that these are all the chunks of one segment, in order.

    Raises:
        Corrupt: they are not.
    """
    if not chunks or len(chunks) != chunks[0].chunks or any(c.chunk != n for n, c in enumerate(chunks)):
        raise Corrupt("sealed segment is not whole")
    first = _common(chunks[0])
    if any(_common(chunk) != first for chunk in chunks[1:]):
        raise Corrupt("sealed chunks belong to different segments")


def associated_data(chunk: SealedChunk) -> bytes:
    """What is bound to the chunk's ciphertext: every field but ``nonce`` and ``data``."""
    return b"".join(
        (
            _field(_number(FORMAT_VERSION)),
            _text(chunk.tenant),
            _text(chunk.trajectory),
            _field(_number(len(chunk.subjects))),
            *map(_text, chunk.subjects),
            _text(chunk.seal_class),
            _text(chunk.first_event),
            _text(chunk.segment),
            _field(_number(chunk.chunk)),
            _field(_number(chunk.chunks)),
            _text(chunk.day),
        )
    )


def _common(chunk: SealedChunk) -> bytes:
    return associated_data(msgspec.structs.replace(chunk, chunk=0))


def _number(value: int) -> bytes:
    try:
        return value.to_bytes(4)
    except OverflowError:
        raise Corrupt("sealed chunk has a number out of range") from None


def _text(value: str | None) -> bytes:
    return _ABSENT if value is None else _field(value.encode("utf-8", "surrogatepass"))


def _field(value: bytes) -> bytes:
    return _number(len(value)) + value


def _decompress(packed: bytes) -> bytes:
    try:
        size = zstandard.get_frame_parameters(packed).content_size
        if size > MAX_PLAIN_BYTES:
            raise Corrupt("sealed segment unpacks to more than a segment may have")
        return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
    except zstandard.ZstdError:
        raise Corrupt("sealed segment is not compressed as it should be") from None
