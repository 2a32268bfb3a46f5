"""How a subject's key ends, in two instants that both survive a kill.

1. *Unreadable*: one transaction makes the tombstone, puts every identity of the subject and its reference on
   the suppression list, deletes the identity map's rows, raises the fence and marks the page as dying.
2. *Irrecoverable*: the living keys of the page move to a new page, and the old page's key is destroyed at its
   port. From then on no old copy of the key store opens the subject's content.

A dying page that is found when the door opens is brought to its end; every part may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, select

from ebbtide_platform.keydoor.keystore.port import KeyName, KeyPort
from ebbtide_platform.keydoor.keystore.store import KeyStore
from ebbtide_platform.keydoor.keystore.subjects import Subjects
from ebbtide_platform.keydoor.keystore.tables import destructions, facts, identities, pages, subjects
from ebbtide_platform.ports import Destruction

REPEATABLE_MS = 7 * 86_400_000
"""So long a repeated request gets the same answer; after it nothing leads from the identity to the reference."""


class Destroyer:
    """Ends subjects' keys; one at a time."""

    def __init__(self, store: KeyStore, port: KeyPort, people: Subjects, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._port = port
        self._people = people
        self._clock_ms = clock_ms

    def destroy(self, tenant: str, digest: bytes) -> Destruction | None:
        """Both instants for the subject behind an identity's digest; None if nothing leads to one."""
        listed = self._people.suppression.digest("identity", tenant, digest)
        with self._store.transaction() as connection:
            subject = self._people.subject_of(connection, tenant, digest)
            if subject is not None:
                self._end(connection, tenant, subject)
            page = connection.scalar(select(destructions.c.page).where(destructions.c.digest == listed))
        if page is None:
            return None
        self._bury(page)
        with self._store.transaction() as connection:
            row = connection.execute(select(destructions).where(destructions.c.digest == listed)).one()
        return Destruction(row.subject, row.unreadable_ms, row.irrecoverable_ms)

    def recover(self) -> None:
        """Bring to its end whatever a kill interrupted."""
        with self._store.transaction() as connection:
            dying = list(connection.scalars(select(pages.c.page).where(pages.c.state == "dying")))
        for page in dying:
            self._bury(page)

    def sweep(self, connection: Connection) -> None:
        """Forget which identities led to which subjects, where the time to ask again is over."""
        connection.execute(destructions.delete().where(destructions.c.forget_ms <= self._clock_ms()))

    def _end(self, connection: Connection, tenant: str, subject: str) -> None:
        """The first instant."""
        at_ms, suppression = self._clock_ms(), self._people.suppression
        own = (subjects.c.tenant == tenant) & (subjects.c.subject == subject)
        page = connection.scalars(select(subjects.c.page).where(own)).one()
        names = (identities.c.tenant == tenant) & (identities.c.subject == subject)
        for digest in connection.scalars(select(identities.c.digest).where(names)).all():
            listed = suppression.digest("identity", tenant, digest)
            suppression.add(connection, "identity", listed)
            row = {"digest": listed, "subject": subject, "page": page, "unreadable_ms": at_ms}
            connection.execute(destructions.insert(), {**row, "forget_ms": at_ms + REPEATABLE_MS})
        suppression.add(connection, "subject", suppression.digest("subject", tenant, subject.encode()))
        connection.execute(identities.delete().where(names))
        connection.execute(subjects.update().where(own).values(wrapped=None))
        connection.execute(pages.update().where(pages.c.page == page).values(state="dying"))
        connection.execute(facts.update().where(facts.c.name == "fence").values(number=facts.c.number + 1))

    def _bury(self, page: str) -> None:
        """The second instant; nothing to do if the page is gone already."""
        with self._store.transaction() as connection:
            tenant = connection.scalar(select(pages.c.tenant).where(pages.c.page == page))
            if tenant is None:
                return
            self._move_living(connection, tenant, page)
        gone_ms = self._port.destroy(KeyName(tenant, "page", page))
        with self._store.transaction() as connection:
            dead = (destructions.c.page == page) & destructions.c.irrecoverable_ms.is_(None)
            connection.execute(destructions.update().where(dead).values(irrecoverable_ms=gone_ms))
            connection.execute(pages.delete().where(pages.c.page == page))

    def _move_living(self, connection: Connection, tenant: str, page: str) -> None:
        living = (subjects.c.page == page) & subjects.c.wrapped.is_not(None)
        rows = connection.execute(select(subjects.c.subject, subjects.c.wrapped).where(living)).all()
        if not rows:
            return
        new = self._people.new_page(connection, tenant)
        for subject, wrapped in rows:
            key = self._people.unwrap(tenant, page, subject, wrapped)
            moved = {"page": new, "wrapped": self._people.wrap(tenant, new, subject, key)}
            own = (subjects.c.tenant == tenant) & (subjects.c.subject == subject)
            connection.execute(subjects.update().where(own).values(**moved))
        connection.execute(pages.update().where(pages.c.page == new).values(filled=len(rows)))
