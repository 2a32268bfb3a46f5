"""Checks a signed erasure receipt with no network and no database."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from ebbtide_schemas.canonical import canonical


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at the end of an erasure: two instants, in milliseconds since the epoch, and a signature."""

    kind: Literal["ebbtide.erasure-receipt/1"]
    request: str
    tenant: str
    requested_ms: int
    unreadable_ms: int
    irrecoverable_ms: int
    public_key: str
    """Ed25519, base64. Compare its fingerprint with the one your operator published."""
    signature: str
    """Ed25519 over the canonical receipt without this member, base64."""

    def signed_bytes(self) -> bytes:
        """What the signature covers: the RFC 8785 form of every member but the signature."""
        body = msgspec.to_builtins(self)
        del body["signature"]
        return canonical(body)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one document; ``ok`` only if every check holds."""

    ok: bool
    kind: str
    checks: dict[str, bool]
    fingerprint: str
    """SHA-256 of the signing key, hex."""


def verify_document(
    document: Receipt | Mapping[str, Any] | bytes | str | Path, public_key: str | None = None
) -> Verification:
    """Check an erasure receipt, given as an object, JSON bytes or the path of a file.

    With ``public_key`` (base64) the receipt must be signed by that key; without, by the one it names.

    Raises:
        ValueError: it is no receipt.
        ImportError: the ``cryptography`` package is not installed.
    """
    try:
        receipt = _read(document)
    except msgspec.ValidationError as error:
        raise ValueError(f"not an Ebbtide document: {error}") from None
    except msgspec.DecodeError:
        raise ValueError("not an Ebbtide document: it is not JSON") from None
    key = _decoded(receipt.public_key)
    checks = {
        "signature": _signed(key, receipt),
        "order of instants": receipt.requested_ms <= receipt.unreadable_ms <= receipt.irrecoverable_ms,
    }
    if public_key is not None:
        checks["expected key"] = bool(key) and key == _decoded(public_key)
    return Verification(
        ok=all(checks.values()), kind=receipt.kind, checks=checks, fingerprint=hashlib.sha256(key).hexdigest()
    )


def _read(document: Receipt | Mapping[str, Any] | bytes | str | Path) -> Receipt:
    if isinstance(document, Receipt):
        return document
    if isinstance(document, str | Path):
        document = Path(document).read_bytes()
    if isinstance(document, bytes):
        return msgspec.json.decode(document, type=Receipt)
    return msgspec.convert(document, Receipt)


def _decoded(text: str) -> bytes:
    """The bytes of base64 text; none if it is something else, which is then no key and no signature."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _signed(key: bytes, receipt: Receipt) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ImportError("checking a signature needs one more package: pip install cryptography") from None
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(_decoded(receipt.signature), receipt.signed_bytes())
    except (InvalidSignature, ValueError):
        return False
    return True
