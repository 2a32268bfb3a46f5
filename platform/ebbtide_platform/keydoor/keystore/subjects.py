"""Subjects, the pages their keys stand on, and the list of those who may not come back."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, select

from ebbtide_platform.errors import Unavailable
from ebbtide_platform.keydoor.keystore.port import KeyGone, KeyName, KeyPort
from ebbtide_platform.keydoor.keystore.tables import identities, pages, subjects, suppressed, suppression_key
from ebbtide_platform.ports import Erased
from ebbtide_platform.sealing.aead import derive_key
from ebbtide_platform.sealing.identity import KEY_BYTES, normal_identity, random_id, uuid8

PAGE_SUBJECTS = 256
"""So many keys at most are wrapped again when one person is erased."""
SUPPRESSED_MS = 3 * 366 * 86_400_000
"""Longer than any log (400 days), outbox or backup from which a person could come back."""


class Suppression:
    """Keyed digests of who was erased, with dates and nothing else."""

    def __init__(self, port: KeyPort, clock_ms: Callable[[], int], connection: Connection) -> None:
        self._clock_ms = clock_ms
        name = KeyName(None, "suppression")
        wrapped = connection.scalar(select(suppression_key.c.wrapped))
        if wrapped is None:
            port.create(name)
            wrapped = port.wrap(name, secrets.token_bytes(KEY_BYTES), "suppression")
            connection.execute(suppression_key.insert(), {"name": "list", "wrapped": wrapped})
        self._key = port.unwrap(name, wrapped, "suppression")

    def digest(self, kind: str, tenant: str, value: bytes) -> bytes:
        """What stands on the list for an identity's digest or a subject's reference."""
        return hmac.digest(self._key, b"\0".join((kind.encode(), tenant.encode(), value)), hashlib.sha256)

    def has(self, connection: Connection, digest: bytes) -> bool:
        """True if it is on the list and not expired."""
        expires = connection.scalar(select(suppressed.c.expires_ms).where(suppressed.c.digest == digest))
        return expires is not None and expires > self._clock_ms()

    def add(self, connection: Connection, kind: str, digest: bytes) -> None:
        """Put it on the list, anew if an expired entry stands there."""
        at_ms = self._clock_ms()
        connection.execute(suppressed.delete().where(suppressed.c.digest == digest))
        row = {"digest": digest, "kind": kind, "suppressed_ms": at_ms, "expires_ms": at_ms + SUPPRESSED_MS}
        connection.execute(suppressed.insert(), row)

    def sweep(self, connection: Connection) -> None:
        """Drop what has expired."""
        connection.execute(suppressed.delete().where(suppressed.c.expires_ms <= self._clock_ms()))


class Subjects:
    """References for identities and keys for references, made once and never again after a destruction."""

    def __init__(self, port: KeyPort, suppression: Suppression) -> None:
        self._port = port
        self.suppression = suppression

    def refer(self, connection: Connection, tenant: str, identity_key: bytes, identity: str) -> str | Erased:
        """The reference of an identity, made at first sight; `Erased` if it is suppressed."""
        digest = identity_digest(identity_key, identity)
        if self.suppression.has(connection, self.suppression.digest("identity", tenant, digest)):
            return Erased()
        known = self.subject_of(connection, tenant, digest)
        if known is not None:
            return known
        subject, page = random_id(), self._open_page(connection, tenant)
        wrapped = self.wrap(tenant, page, subject, secrets.token_bytes(KEY_BYTES))
        row = {"tenant": tenant, "subject": subject, "page": page, "wrapped": wrapped}
        connection.execute(subjects.insert(), row)
        connection.execute(identities.insert(), {"tenant": tenant, "digest": digest, "subject": subject})
        return subject

    def subject_of(self, connection: Connection, tenant: str, digest: bytes) -> str | None:
        """The living subject that an identity's digest points to."""
        own = (identities.c.tenant == tenant) & (identities.c.digest == digest)
        return connection.scalar(select(identities.c.subject).where(own))

    def keys(self, connection: Connection, tenant: str, refs: Sequence[str]) -> list[bytes] | Erased | None:
        """The keys of ``refs`` in order; `Erased` if one was destroyed, else None if one never was.

        Raises:
            Unavailable: a page key is gone though its subject was not erased: this is an old copy of the store.
        """
        query = select(subjects).where(subjects.c.tenant == tenant, subjects.c.subject.in_(refs))
        rows = {row.subject: row for row in connection.execute(query)} if refs else {}
        for subject in refs:
            tombstone = subject in rows and rows[subject].wrapped is None
            # The list is asked too: it outlives a key store that is put back from a backup.
            listed = self.suppression.digest("subject", tenant, subject.encode())
            if tombstone or self.suppression.has(connection, listed):
                return Erased()
        if len(rows) < len(set(refs)):
            return None
        try:
            return [self.unwrap(tenant, rows[subject].page, subject, rows[subject].wrapped) for subject in refs]
        except KeyGone:
            raise Unavailable(
                "the key store is older than the keys over it", try_this="put back its newest backup"
            ) from None

    def wrap(self, tenant: str, page: str, subject: str, key: bytes) -> bytes:
        """A subject's key as it stands on ``page``."""
        return self._port.wrap(KeyName(tenant, "page", page), key, tenant, page, subject)

    def unwrap(self, tenant: str, page: str, subject: str, wrapped: bytes) -> bytes:
        """A subject's key off ``page``. Raises `KeyGone` if the page's key was destroyed."""
        return self._port.unwrap(KeyName(tenant, "page", page), wrapped, tenant, page, subject)

    def new_page(self, connection: Connection, tenant: str) -> str:
        """An empty page with a key at the port."""
        page = random_id()
        self._port.create(KeyName(tenant, "page", page))
        connection.execute(pages.insert(), {"page": page, "tenant": tenant, "filled": 0, "state": "open"})
        return page

    def _open_page(self, connection: Connection, tenant: str) -> str:
        """A page with room, and one place on it taken."""
        room = (pages.c.tenant == tenant) & (pages.c.state == "open") & (pages.c.filled < PAGE_SUBJECTS)
        page = connection.scalar(select(pages.c.page).where(room).limit(1)) or self.new_page(connection, tenant)
        connection.execute(pages.update().where(pages.c.page == page).values(filled=pages.c.filled + 1))
        return page


def identity_digest(identity_key: bytes, identity: str) -> bytes:
    """What stands in the key store for a person's identity."""
    return uuid8(derive_key(identity_key, "identity-map"), normal_identity(identity)).encode()
