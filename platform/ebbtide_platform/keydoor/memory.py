"""A key door that keeps everything in memory: for tests, and for trying things out."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ebbtide_platform.errors import Denied, NotFound
from ebbtide_platform.keydoor.credentials import check_scopes, mint_api_key, parse_api_key, refusal, same_digest
from ebbtide_platform.keydoor.leases import clean_scope, day_is_over, lease, now_ms
from ebbtide_platform.ports import ContentKey, Destruction, Erased, KeyScope, Principal, Scope
from ebbtide_platform.sealing.identity import KEY_BYTES, normal_identity, random_id
from ebbtide_platform.topics import check_tenant


@dataclass
class _ApiKey:
    """An API key as the door remembers it."""

    tenant: str
    name: str
    scopes: list[Scope]
    digest: bytes
    revoked: bool = False


@dataclass
class _Tenant:
    """All that one tenant has; nothing is shared between two."""

    identity_key: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))
    subjects: dict[str, str] = field(default_factory=dict)
    """By normal identity."""
    destroyed: dict[str, Destruction] = field(default_factory=dict)
    """By normal identity: the suppression list."""
    dead: set[str] = field(default_factory=set)
    """References of destroyed subjects: the tombstones."""
    keys: dict[KeyScope, bytes] = field(default_factory=dict)


class MemoryKeyDoor:
    """Implements `ports.KeyDoor` with dictionaries; it forgets everything with the process."""

    def __init__(self, *tenants: str, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.RLock()
        self._tenants: dict[str, _Tenant] = {}
        self._api_keys: dict[str, _ApiKey] = {}
        self._days: dict[tuple[str | None, str], bytes] = {}
        self._fence = 0
        for tenant in tenants:
            self.create_tenant(tenant)

    def authenticate(self, api_key: str) -> Principal:
        """See `ports.KeyDoor`."""
        key_id, digest = parse_api_key(api_key)
        with self._lock:
            known = self._api_keys.get(key_id)
            if not same_digest(known.digest if known else None, digest) or known is None or known.revoked:
                raise refusal()
            return Principal(known.tenant, key_id, frozenset(known.scopes))

    def create_tenant(self, tenant: str) -> bool:
        """See `ports.KeyDoor`."""
        with self._lock:
            if check_tenant(tenant) in self._tenants:
                return False
            self._tenants[tenant] = _Tenant()
            return True

    def tenants(self) -> list[str]:
        """See `ports.KeyDoor`."""
        with self._lock:
            return sorted(self._tenants)

    def create_api_key(self, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """See `ports.KeyDoor`."""
        allowed, minted = check_scopes(scopes), mint_api_key()
        with self._lock:
            self._tenant(tenant)
            self._api_keys[minted.key_id] = _ApiKey(tenant, name, allowed, minted.digest)
        return minted.text

    def api_keys(self, tenant: str) -> list[tuple[str, str, list[Scope], bool]]:
        """See `ports.KeyDoor`."""
        with self._lock:
            self._tenant(tenant)
            own = [(key_id, key) for key_id, key in self._api_keys.items() if key.tenant == tenant]
            return [(key_id, key.name, list(key.scopes), key.revoked) for key_id, key in own]

    def revoke_api_key(self, tenant: str, key_id: str) -> None:
        """See `ports.KeyDoor`."""
        with self._lock:
            known = self._api_keys.get(key_id)
            if known is None or known.tenant != tenant:
                raise NotFound("there is no such API key")
            known.revoked = True

    def identity_key(self, tenant: str) -> bytes:
        """See `ports.KeyDoor`."""
        with self._lock:
            return self._tenant(tenant).identity_key

    def subject_refs(self, tenant: str, identities: Sequence[str]) -> list[str | Erased]:
        """See `ports.KeyDoor`."""
        with self._lock:
            own = self._tenant(tenant)
            names = [normal_identity(identity) for identity in identities]
            return [Erased() if name in own.destroyed else own.subjects.setdefault(name, random_id()) for name in names]

    def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
        """See `ports.KeyDoor`."""
        with self._lock:
            return [self._content_key(clean_scope(scope), create) for scope in scopes]

    def day_key(self, tenant: str | None, day: str) -> ContentKey | Erased:
        """See `ports.KeyDoor`."""
        with self._lock:
            if tenant is not None:
                self._tenant(tenant)
            if day_is_over(day, self._clock_ms()):
                self._days.pop((tenant, day), None)
                return Erased()
            return lease(self._days.setdefault((tenant, day), secrets.token_bytes(KEY_BYTES)))

    def destroy_subject(self, tenant: str, identity: str) -> Destruction | None:
        """See `ports.KeyDoor`."""
        with self._lock:
            own = self._tenant(tenant)
            name = normal_identity(identity)
            if name in own.destroyed:
                return own.destroyed[name]
            if name not in own.subjects:
                return None
            subject, at_ms = own.subjects.pop(name), self._clock_ms()
            own.dead.add(subject)
            own.keys = {scope: key for scope, key in own.keys.items() if subject not in scope.subjects}
            self._fence += 1
            return own.destroyed.setdefault(name, Destruction(subject, at_ms, at_ms))

    def fence(self) -> int:
        """See `ports.KeyDoor`."""
        with self._lock:
            return self._fence

    def _content_key(self, scope: KeyScope, create: bool) -> ContentKey | Erased | None:
        own = self._tenants.get(scope.tenant)
        if own is not None and not own.dead.isdisjoint(scope.subjects):
            return Erased()
        key = own.keys.get(scope) if own else None
        if key is None:
            if not create:
                return None
            own = self._tenant(scope.tenant)
            if not own.dead.union(own.subjects.values()).issuperset(scope.subjects):
                raise Denied("a content key is made for known subjects only")
            key = own.keys[scope] = secrets.token_bytes(KEY_BYTES)
        return lease(key)

    def _tenant(self, tenant: str) -> _Tenant:
        try:
            return self._tenants[tenant]
        except KeyError:
            raise NotFound("there is no such tenant", try_this="ebbtide tenant create NAME") from None
