"""Content keys and day keys: what segments are sealed under."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import Connection, select

from ebbtide_platform.errors import Denied, NotFound
from ebbtide_platform.keydoor.keystore.port import KeyGone, KeyName, KeyPort
from ebbtide_platform.keydoor.keystore.registry import Registry
from ebbtide_platform.keydoor.keystore.subjects import Subjects
from ebbtide_platform.keydoor.keystore.tables import contents, days
from ebbtide_platform.keydoor.keystore.tree import unwrap_nested, wrap_nested
from ebbtide_platform.keydoor.leases import clean_scope, day_is_over, lease
from ebbtide_platform.ports import ContentKey, Erased, KeyScope
from ebbtide_platform.sealing.identity import KEY_BYTES


class Contents:
    """One random key for each (trajectory, subject set, class), under the keys of all its subjects."""

    def __init__(self, registry: Registry, subjects: Subjects) -> None:
        self._registry = registry
        self._subjects = subjects

    def key(self, connection: Connection, asked: KeyScope, *, create: bool) -> ContentKey | Erased | None:
        """The key of a scope; None where there is none and none is to be made.

        Raises:
            Denied: it is to be made for a subject that nobody ever referred to.
            NotFound: it is to be made for a tenant that does not exist.
        """
        scope = clean_scope(asked)
        try:
            tenant_key = self._registry.keys(connection, scope.tenant).content
        except NotFound:
            if create:
                raise
            return None
        holders = self._subjects.keys(connection, scope.tenant, scope.subjects)
        if isinstance(holders, Erased):
            return holders
        if holders is None:
            if create:
                raise Denied("a content key is made for known subjects only")
            return None
        names = _row_names(scope)
        where = [contents.c[name] == value for name, value in names.items()]
        wrapped = connection.scalar(select(contents.c.wrapped).where(*where))
        if wrapped is not None:
            return lease(unwrap_nested(holders or [tenant_key], wrapped, *names.values()))
        if not create:
            return None
        key = secrets.token_bytes(KEY_BYTES)
        wrapped = wrap_nested(holders or [tenant_key], key, *names.values())
        connection.execute(contents.insert(), {**names, "wrapped": wrapped})
        return lease(key)


class Days:
    """One key for each day of a tenant, or of the deployment, destroyed at its port after 21 days."""

    def __init__(self, port: KeyPort, registry: Registry, clock_ms: Callable[[], int]) -> None:
        self._port = port
        self._registry = registry
        self._clock_ms = clock_ms

    def key(self, connection: Connection, tenant: str | None, day: str) -> ContentKey | Erased:
        """The key of ``day``, made at first sight. Raises `InvalidInput` and `NotFound`."""
        if tenant is not None:
            self._registry.keys(connection, tenant)
        if day_is_over(day, self._clock_ms()):
            return Erased()
        name, owner = KeyName(tenant, "day", day), tenant or ""
        own = (days.c.tenant == owner) & (days.c.day == day)
        wrapped = connection.scalar(select(days.c.wrapped).where(own))
        if wrapped is not None:
            try:
                return lease(self._port.unwrap(name, wrapped, owner, day))
            except KeyGone:
                return Erased()
        self._port.create(name)
        key = secrets.token_bytes(KEY_BYTES)
        row = {"tenant": owner, "day": day, "wrapped": self._port.wrap(name, key, owner, day)}
        connection.execute(days.insert(), row)
        return lease(key)

    def sweep(self, connection: Connection) -> None:
        """Destroy the keys of days that are over."""
        for row in connection.execute(select(days.c.tenant, days.c.day)).all():
            if day_is_over(row.day, self._clock_ms()):
                self._port.destroy(KeyName(row.tenant or None, "day", row.day))
                connection.execute(days.delete().where(days.c.tenant == row.tenant, days.c.day == row.day))


def _row_names(scope: KeyScope) -> dict[str, str]:
    return {
        "tenant": scope.tenant,
        "trajectory": scope.trajectory or "",
        "subjects": " ".join(scope.subjects),
        "seal_class": scope.seal_class,
    }
