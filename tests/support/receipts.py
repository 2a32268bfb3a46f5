"""An erasure receipt that is really signed."""

from __future__ import annotations

import base64

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ebbtide.verification import Receipt


def signed_receipt(key: Ed25519PrivateKey | None = None, **members: int | str) -> Receipt:
    """A receipt of ``acme``, some members replaced before it is signed by ``key`` (default: a new one)."""
    key = key or Ed25519PrivateKey.generate()
    unsigned = msgspec.structs.replace(
        Receipt(
            kind="ebbtide.erasure-receipt/1",
            request="request-1",
            tenant="acme",
            requested_ms=1_000,
            unreadable_ms=1_010,
            irrecoverable_ms=1_020,
            public_key=base64.b64encode(key.public_key().public_bytes_raw()).decode(),
            signature="",
        ),
        **members,
    )
    signature = base64.b64encode(key.sign(unsigned.signed_bytes())).decode()
    return msgspec.structs.replace(unsigned, signature=signature)
