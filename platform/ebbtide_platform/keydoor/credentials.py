"""API keys of tenants, tokens of workloads, and what each workload may ask of the key door.

An API key is ``ebb_<id>_<secret>``; only a digest of the secret is kept. A workload's token is an HMAC of its
name under the door's own secret, so that it stays the same when the door is restarted.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple, get_args

from ebbtide_platform.errors import Denied, InvalidInput, Unauthenticated
from ebbtide_platform.ports import Scope, Workload
from ebbtide_schemas.records import SealClass

_API_KEY = re.compile(r"ebb_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_ID_BYTES = 8
_SECRET_BYTES = 32
"""43 characters of URL-safe base64: nothing that could be guessed, so a plain digest is enough."""
_SCOPES: tuple[Scope, ...] = get_args(Scope)
_NO_DIGEST = bytes(hashlib.sha256().digest_size)


class MintedKey(NamedTuple):
    """A new API key: ``text`` is shown once, ``digest`` is kept."""

    text: str
    key_id: str
    digest: bytes


def mint_api_key() -> MintedKey:
    """A new random API key."""
    key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    return MintedKey(f"ebb_{key_id}_{secret}", key_id, hashlib.sha256(secret.encode()).digest())


def parse_api_key(text: str) -> tuple[str, bytes]:
    """(id, digest of the secret).

    Raises:
        Unauthenticated: it does not look like an API key.
    """
    match = _API_KEY.match(text)
    if match is None:
        raise refusal()
    return match[1], hashlib.sha256(match[2].encode()).digest()


def same_digest(kept: bytes | None, shown: bytes) -> bool:
    """Compare in constant time; None (an unknown id) takes as long and is False."""
    return hmac.compare_digest(kept or _NO_DIGEST, shown) and kept is not None


def refusal() -> Unauthenticated:
    """The one answer to every key that is not good: it does not say why."""
    return Unauthenticated("the API key is not known", try_this="ebbtide key create TENANT")


def check_scopes(scopes: Iterable[Scope]) -> list[Scope]:
    """``scopes`` in their fixed order, each once.

    Raises:
        InvalidInput: there is none, or one that does not exist.
    """
    asked = set(scopes)
    if not asked or not asked <= set(_SCOPES):
        raise InvalidInput("scopes", f"must be some of {', '.join(_SCOPES)}")
    return [scope for scope in _SCOPES if scope in asked]


# --- workloads ----------------------------------------------------------------------------------------------


class Grant(NamedTuple):
    """What one workload may do at the key door."""

    calls: frozenset[str]
    classes: frozenset[SealClass]
    """Of content keys."""


_EVERY_CALL = frozenset(
    {
        "authenticate",
        "create_tenant",
        "tenants",
        "create_api_key",
        "api_keys",
        "revoke_api_key",
        "identity_key",
        "subject_refs",
        "content_keys",
        "day_key",
        "destroy_subject",
        "fence",
    }
)
_ACTS = frozenset({"create_tenant", "create_api_key", "api_keys", "revoke_api_key"})
_PROCESSING = frozenset({"tenants", "content_keys", "day_key", "fence"})

GRANTS: Mapping[Workload, Grant] = {
    "admin": Grant(_EVERY_CALL, frozenset({"raw", "redacted"})),
    "api": Grant(_EVERY_CALL - _ACTS, frozenset({"raw", "redacted"})),
    "redact": Grant(_PROCESSING, frozenset({"raw"})),
    "settle": Grant(_PROCESSING, frozenset({"raw", "redacted"})),
}


def workload_token(secret: bytes, workload: Workload) -> str:
    """The token that ``workload`` shows; it names itself, the rest proves it."""
    return f"{workload}.{hmac.digest(secret, workload.encode(), hashlib.sha256).hex()}"


def recognise(tokens: Mapping[str, Workload], shown: str) -> Workload:
    """Whose token ``shown`` is, given every token there is; in constant time.

    Raises:
        Denied: nobody's.
    """
    found: Workload | None = None
    for token, workload in tokens.items():
        if hmac.compare_digest(token.encode(), shown.encode("utf-8", "replace")):
            found = workload
    if found is None:
        raise Denied("the key door does not know this workload", try_this="use the token in run/workload.token")
    return found


def check_call(workload: Workload, call: str) -> None:
    """Let ``workload`` make ``call``.

    Raises:
        Denied: it may not.
    """
    if call not in GRANTS[workload].calls:
        raise Denied(f"workload {workload} may not ask the key door for this")


def check_classes(workload: Workload, classes: Iterable[SealClass]) -> None:
    """Let ``workload`` have content keys of ``classes``.

    Raises:
        Denied: it may not have one of them.
    """
    if not set(classes) <= GRANTS[workload].classes:
        raise Denied(f"workload {workload} may not have keys of this class")
