"""Tenants and their API keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from sqlalchemy import Connection, select

from ebbtide_platform.errors import NotFound
from ebbtide_platform.keydoor.credentials import check_scopes, mint_api_key, parse_api_key, refusal, same_digest
from ebbtide_platform.keydoor.keystore.port import KeyName, KeyPort
from ebbtide_platform.keydoor.keystore.tables import api_keys, tenants
from ebbtide_platform.ports import Principal, Scope
from ebbtide_platform.sealing.identity import KEY_BYTES
from ebbtide_platform.topics import check_tenant


class TenantKeys(NamedTuple):
    """The two keys that live as long as the tenant."""

    identity: bytes
    """Turns producers' ids into UUIDv8, and identities into digests."""
    content: bytes
    """Wraps the keys of what is about nobody."""


class Registry:
    """Who the tenants are, and which API keys they gave out."""

    def __init__(self, port: KeyPort, clock_ms: Callable[[], int]) -> None:
        self._port = port
        self._clock_ms = clock_ms
        self._keys: dict[str, TenantKeys] = {}

    def create_tenant(self, connection: Connection, tenant: str) -> bool:
        """Make the tenant's keys; False if it exists. Raises `InvalidInput` for a name no topic could have."""
        check_tenant(tenant)
        if connection.scalar(select(tenants.c.tenant).where(tenants.c.tenant == tenant)) is not None:
            return False
        kek = KeyName(tenant, "kek")
        self._port.create(kek)
        identity, content = (
            self._port.wrap(kek, secrets.token_bytes(KEY_BYTES), tenant, use) for use in ("identity", "content")
        )
        row = {"tenant": tenant, "identity_key": identity, "tenant_key": content, "created_ms": self._clock_ms()}
        connection.execute(tenants.insert(), row)
        return True

    def tenants(self, connection: Connection) -> list[str]:
        """Every tenant, sorted."""
        return list(connection.scalars(select(tenants.c.tenant).order_by(tenants.c.tenant)))

    def keys(self, connection: Connection, tenant: str) -> TenantKeys:
        """The tenant's keys. Raises `NotFound`."""
        known = self._keys.get(tenant)
        if known is None:
            row = connection.execute(select(tenants).where(tenants.c.tenant == tenant)).one_or_none()
            if row is None:
                raise NotFound("there is no such tenant", try_this="ebbtide tenant create NAME")
            kek = KeyName(tenant, "kek")
            known = self._keys[tenant] = TenantKeys(
                self._port.unwrap(kek, row.identity_key, tenant, "identity"),
                self._port.unwrap(kek, row.tenant_key, tenant, "content"),
            )
        return known

    def create_api_key(self, connection: Connection, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """A new API key of the tenant. Raises `NotFound` and `InvalidInput`."""
        allowed, minted = check_scopes(scopes), mint_api_key()
        self.keys(connection, tenant)
        row = {
            "id": minted.key_id,
            "tenant": tenant,
            "name": name,
            "scopes": " ".join(allowed),
            "digest": minted.digest,
            "created_ms": self._clock_ms(),
        }
        connection.execute(api_keys.insert(), row)
        return minted.text

    def api_keys(self, connection: Connection, tenant: str) -> list[tuple[str, str, list[Scope], bool]]:
        """(id, name, scopes, revoked) of the tenant's keys, oldest first. Raises `NotFound`."""
        self.keys(connection, tenant)
        query = select(api_keys).where(api_keys.c.tenant == tenant).order_by(api_keys.c.created_ms, api_keys.c.id)
        return [
            (row.id, row.name, _scopes(row.scopes), row.revoked_ms is not None) for row in connection.execute(query)
        ]

    def revoke_api_key(self, connection: Connection, tenant: str, key_id: str) -> None:
        """End the key. Raises `NotFound`, also for another tenant's."""
        own = (api_keys.c.id == key_id) & (api_keys.c.tenant == tenant)
        row = connection.execute(select(api_keys.c.revoked_ms).where(own)).one_or_none()
        if row is None:
            raise NotFound("there is no such API key")
        if row.revoked_ms is None:
            connection.execute(api_keys.update().where(own).values(revoked_ms=self._clock_ms()))

    def authenticate(self, connection: Connection, api_key: str) -> Principal:
        """Whose key this is. Raises `Unauthenticated`."""
        key_id, digest = parse_api_key(api_key)
        row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
        if not same_digest(row.digest if row else None, digest) or row is None or row.revoked_ms is not None:
            raise refusal()
        return Principal(row.tenant, key_id, frozenset(_scopes(row.scopes)))


def _scopes(text: str) -> list[Scope]:
    return cast(list[Scope], text.split())
