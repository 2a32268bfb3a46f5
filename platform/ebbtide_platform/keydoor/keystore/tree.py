"""Wrapping, the one operation of the key tree; pure but for the nonce.

::

    tenant's KEK -> page key (wraps at most 256 subject keys) -> subject key -> content key
    tenant's KEK -> tenant key -> content key of what is about nobody

A content key about several people is wrapped under each of their keys, one inside the other, in the order of
their sorted references: who loses one loses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ebbtide_platform.errors import Corrupt

_NONCE_BYTES = 12


def wrap(key: bytes, plain: bytes, *bound: str) -> bytes:
    """``plain`` under ``key`` by AES-256-GCM; it unwraps only with the same ``bound`` names."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, _joined(bound))


def unwrap(key: bytes, wrapped: bytes, *bound: str) -> bytes:
    """What `wrap` was given.

    Raises:
        Corrupt: another key, other names or other bytes.
    """
    try:
        return AESGCM(key).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], _joined(bound))
    except (InvalidTag, ValueError):
        raise Corrupt("a wrapped key does not open as what it claims to be") from None


def wrap_nested(keys: Sequence[bytes], plain: bytes, *bound: str) -> bytes:
    """``plain`` under every one of ``keys``, the first outermost."""
    for key in reversed(keys):
        plain = wrap(key, plain, *bound)
    return plain


def unwrap_nested(keys: Sequence[bytes], wrapped: bytes, *bound: str) -> bytes:
    """What `wrap_nested` was given.

    Raises:
        Corrupt: any one of the keys is another.
    """
    for key in keys:
        wrapped = unwrap(key, wrapped, *bound)
    return wrapped


def _joined(names: Sequence[str]) -> bytes:
    octets = [name.encode() for name in names]
    return b"".join(len(name).to_bytes(4) + name for name in octets)
