"""The keys of a recorded history, in the clear: without them its log opens for nobody, and never again.

They protect made-up people only. A door that stands up from a keyring knows everybody and every key from the
beginning, also those that the history goes on to destroy.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import KeyScope
from ebbtide_schemas.records import SealClass

NOTE = "Test keys of a made-up history. They protect nothing; use them nowhere else."


class SealedUnder(msgspec.Struct, frozen=True, order=True):
    """One content key; keys are in hex."""

    trajectory: str
    """Empty: the tenant's own."""
    subjects: tuple[str, ...]
    seal_class: SealClass
    key: str


class DayKey(msgspec.Struct, frozen=True, order=True):
    """What is quarantined on one day is sealed under it; tenant empty: the deployment's own."""

    tenant: str
    day: str
    key: str


class TenantKeys(msgspec.Struct, frozen=True):
    """All that one tenant has."""

    identity_key: str
    subjects: dict[str, str]
    """Reference by identity."""
    contents: tuple[SealedUnder, ...]


class Keyring(msgspec.Struct, frozen=True):
    """All keys of a door in memory."""

    tenants: dict[str, TenantKeys]
    days: tuple[DayKey, ...] = ()
    note: str = NOTE


def keyring_of(door: MemoryKeyDoor, before: Keyring | None = None) -> Keyring:
    """The keys that ``door`` has, and those it had ``before``."""
    known = before or Keyring({})
    tenants = {}
    for name, own in door._tenants.items():
        had = known.tenants.get(name, TenantKeys("", {}, ()))
        contents = {
            SealedUnder(scope.trajectory or "", scope.subjects, scope.seal_class, key.hex())
            for scope, key in own.keys.items()
        }
        subjects = dict(sorted((had.subjects | own.subjects).items()))
        tenants[name] = TenantKeys(own.identity_key.hex(), subjects, tuple(sorted(contents.union(had.contents))))
    days = {DayKey(tenant or "", day, key.hex()) for (tenant, day), key in door._days.items()}
    return Keyring(tenants, tuple(sorted(days.union(known.days))))


def door_of(keyring: Keyring, clock_ms: Callable[[], int]) -> MemoryKeyDoor:
    """A door with the keys of ``keyring``; it makes new ones where it is asked for others."""
    door = MemoryKeyDoor(*keyring.tenants, clock_ms=clock_ms)
    for name, keys in keyring.tenants.items():
        own = door._tenants[name]
        own.identity_key = bytes.fromhex(keys.identity_key)
        own.subjects = dict(keys.subjects)
        own.keys = {
            KeyScope(name, kept.trajectory or None, kept.subjects, kept.seal_class): bytes.fromhex(kept.key)
            for kept in keys.contents
        }
    door._days = {(kept.tenant or None, kept.day): bytes.fromhex(kept.key) for kept in keyring.days}
    return door
