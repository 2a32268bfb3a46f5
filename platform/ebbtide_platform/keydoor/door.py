"""The key door itself: key store and port behind the one protocol that all others know."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import select

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.keydoor.keystore.contents import Contents, Days
from ebbtide_platform.keydoor.keystore.destruction import Destroyer
from ebbtide_platform.keydoor.keystore.port import FileKeyPort, KeyPort
from ebbtide_platform.keydoor.keystore.registry import Registry
from ebbtide_platform.keydoor.keystore.store import KeyStore
from ebbtide_platform.keydoor.keystore.subjects import Subjects, Suppression, identity_digest
from ebbtide_platform.keydoor.keystore.tables import facts
from ebbtide_platform.keydoor.leases import now_ms
from ebbtide_platform.ports import ContentKey, Destruction, Erased, KeyScope, Principal, Scope
from ebbtide_platform.settings import Settings


class LocalKeyDoor:
    """Implements `ports.KeyDoor` in this process, over ``data_dir/keys``, as the only one that has it open.

    Opening it finishes destructions that a kill interrupted and destroys day keys whose time is over.

    Raises:
        Misconfigured: another process has the key store open, or it is of another version.
        Unavailable: its files cannot be read or written.
    """

    def __init__(
        self, settings: Settings, *, port: KeyPort | None = None, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        folder = settings.data_dir / "keys"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        port = port or FileKeyPort(folder / "kek", clock_ms=clock_ms)
        # One call at a time acts on the key tree: a rotation has several transactions, and none may come between.
        self._turn = threading.RLock()
        with contextlib.ExitStack() as opened:
            opened.enter_context(_sole_owner(folder / "lock"))
            self._store = KeyStore(folder)
            opened.callback(self._store.close)
            with self._store.transaction() as connection:
                self._suppression = Suppression(port, clock_ms, connection)
            self._registry = Registry(port, clock_ms)
            self._subjects = Subjects(port, self._suppression)
            self._contents = Contents(self._registry, self._subjects)
            self._days = Days(port, self._registry, clock_ms)
            self._destroyer = Destroyer(self._store, port, self._subjects, clock_ms)
            self._destroyer.recover()
            self.sweep()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Give up the key store."""
        with self._turn:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def sweep(self) -> None:
        """Destroy the day keys and forget the entries whose time is over; to be called every hour."""
        with self._turn, self._store.transaction() as connection:
            self._days.sweep(connection)
            self._destroyer.sweep(connection)
            self._suppression.sweep(connection)

    def authenticate(self, api_key: str) -> Principal:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.authenticate(connection, api_key)

    def create_tenant(self, tenant: str) -> bool:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.create_tenant(connection, tenant)

    def tenants(self) -> list[str]:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.tenants(connection)

    def create_api_key(self, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.create_api_key(connection, tenant, name, scopes)

    def api_keys(self, tenant: str) -> list[tuple[str, str, list[Scope], bool]]:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.api_keys(connection, tenant)

    def revoke_api_key(self, tenant: str, key_id: str) -> None:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            self._registry.revoke_api_key(connection, tenant, key_id)

    def identity_key(self, tenant: str) -> bytes:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._registry.keys(connection, tenant).identity

    def subject_refs(self, tenant: str, identities: Sequence[str]) -> list[str | Erased]:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            key = self._registry.keys(connection, tenant).identity
            return [self._subjects.refer(connection, tenant, key, identity) for identity in identities]

    def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return [self._contents.key(connection, scope, create=create) for scope in scopes]

    def day_key(self, tenant: str | None, day: str) -> ContentKey | Erased:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return self._days.key(connection, tenant, day)

    def destroy_subject(self, tenant: str, identity: str) -> Destruction | None:
        """See `ports.KeyDoor`."""
        with self._turn:
            return self._destroyer.destroy(tenant, identity_digest(self.identity_key(tenant), identity))

    def fence(self) -> int:
        """See `ports.KeyDoor`."""
        with self._turn, self._store.transaction() as connection:
            return int(connection.scalars(select(facts.c.number).where(facts.c.name == "fence")).one())


@contextlib.contextmanager
def _sole_owner(path: Path) -> Iterator[None]:
    """Hold the lock that the kernel releases whichever way this process ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misconfigured(
                "another process has the key store open", try_this="ask the running key door, or stop it first"
            ) from None
        yield
    finally:
        os.close(handle)
