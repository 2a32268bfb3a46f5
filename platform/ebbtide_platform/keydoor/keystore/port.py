"""The port to the keys that stand above the key store, and its form as files.

A port makes a key, uses it and destroys it; it never gives one out, so that a KMS or Vault's transit engine
can stand behind it. Nothing at a port may be in the key store's backups.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.keydoor.keystore.tree import unwrap, wrap
from ebbtide_platform.keydoor.leases import now_ms
from ebbtide_platform.sealing.identity import KEY_BYTES

_LOADED_KEYS = 4_096
"""Page keys kept in memory, over a million subjects."""


class KeyGone(Misconfigured):
    """The port has no such key: it was destroyed, or never made here."""

    def __init__(self) -> None:
        super().__init__("a key over the key store is gone", try_this="put back `keys/kek` as the key store knows it")


class KeyName(NamedTuple):
    """Which key; tenant None is the deployment itself."""

    tenant: str | None
    kind: Literal["kek", "page", "day", "suppression"]
    id: str = "0"


class KeyPort(Protocol):
    """Keeps keys and does not give them out. Calls with an unknown name raise `KeyGone`."""

    def create(self, name: KeyName) -> None:
        """Make the key durably; one that exists stays."""

    def wrap(self, name: KeyName, plain: bytes, *bound: str) -> bytes:
        """``plain`` under the key, bound to these names."""

    def unwrap(self, name: KeyName, wrapped: bytes, *bound: str) -> bytes:
        """What `wrap` was given. Raises `Corrupt`."""

    def destroy(self, name: KeyName) -> int:
        """End the key for ever; the instant (milliseconds) at which it was gone. Absent is fine."""


class FileKeyPort:
    """One file a key, readable by the owner only; all but a KEK are wrapped under their tenant's KEK.

    Destroying overwrites, unlinks and syncs. Below a copy-on-write file system or a flash translation layer
    the old bytes may stay for a while: there, use a port with hardware behind it.
    """

    def __init__(self, folder: Path, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._folder = folder
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._loaded: dict[KeyName, bytes] = {}

    def create(self, name: KeyName) -> None:
        """See `KeyPort`."""
        with self._lock:
            self._create(name)

    def wrap(self, name: KeyName, plain: bytes, *bound: str) -> bytes:
        """See `KeyPort`."""
        return wrap(self._key(name), plain, *bound)

    def unwrap(self, name: KeyName, wrapped: bytes, *bound: str) -> bytes:
        """See `KeyPort`."""
        return unwrap(self._key(name), wrapped, *bound)

    def destroy(self, name: KeyName) -> int:
        """See `KeyPort`."""
        path = self._path(name)
        with self._lock:
            self._loaded.pop(name, None)
            with contextlib.suppress(FileNotFoundError):
                with path.open("r+b") as file:
                    file.write(secrets.token_bytes(path.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                _sync_folder(path.parent)
            return self._clock_ms()

    def _create(self, name: KeyName) -> None:
        path = self._path(name)
        if path.exists():
            return
        key = secrets.token_bytes(KEY_BYTES)
        if name.kind != "kek":
            kek = KeyName(name.tenant, "kek")
            if name.tenant is None:
                # A tenant's is made with the tenant: one that is lost must be missed, not replaced.
                self._create(kek)
            key = wrap(self._load(kek), key, *_bound(name))
        for folder in (self._folder, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written beside and renamed, so that a kill leaves a whole key or none.
        draft = path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        with draft.open("wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(path.parent)
        _sync_folder(path.parent.parent)

    def _key(self, name: KeyName) -> bytes:
        with self._lock:
            return self._load(name)

    def _load(self, name: KeyName) -> bytes:
        key = self._loaded.get(name)
        if key is None:
            try:
                key = self._path(name).read_bytes()
            except FileNotFoundError:
                raise KeyGone from None
            if name.kind != "kek":
                key = unwrap(self._load(KeyName(name.tenant, "kek")), key, *_bound(name))
            if len(self._loaded) >= _LOADED_KEYS:
                self._loaded.clear()
            self._loaded[name] = key
        return key

    def _path(self, name: KeyName) -> Path:
        return self._folder / (name.tenant or "_") / f"{name.kind}-{name.id}.key"


def _bound(name: KeyName) -> tuple[str, ...]:
    return (name.tenant or "", name.kind, name.id)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
