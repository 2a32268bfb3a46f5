"""Seals and opens segments with keys on lease from the key door.

Keys stay in memory until their lease ends or a destruction anywhere raises the door's fence, whichever is
first. `Erased` is what a caller gets where a key was destroyed: an ordinary answer, never an exception.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ebbtide_platform.errors import Corrupt, Denied, InvalidInput, NotFound
from ebbtide_platform.ports import ContentKey, Erased, KeyDoor, KeyScope
from ebbtide_platform.sealing.aead import check_whole, derive_key, open_segment, seal_segment
from ebbtide_platform.sealing.identity import random_id, uuid8_of
from ebbtide_schemas.records import SealClass, SealedChunk

FENCE_EVERY_S = 0.5
"""A destroyed key is out of every cache within this time and one call; the promise is two seconds."""
CACHED_KEYS = 8_192
"""About 4 MB."""
ERASED_S = 60.0
"""How long `Erased` is remembered; as long as a lease."""


class _Day(NamedTuple):
    """The name of a day key; tenant None is the deployment's own."""

    tenant: str | None
    day: str


_Name = KeyScope | _Day
_State = ContentKey | Erased


class Sealer:
    """Bytes in, sealed chunks out, and back; safe from any thread.

    All calls may raise `Denied` (the door refuses this workload) and `Unavailable` (it does not answer).
    """

    def __init__(self, door: KeyDoor) -> None:
        self._door = door
        self._keys = _KeyCache(CACHED_KEYS)
        self._fence_lock = threading.Lock()
        self._fence: int | None = None
        self._fence_checked = float("-inf")

    @staticmethod
    def key_scope(tenant: str, trajectory: str | None, subjects: Iterable[str], seal_class: SealClass) -> KeyScope:
        """The scope of a segment's key; about nobody (no subjects) it is the tenant's, whatever the trajectory."""
        people = tuple(sorted(set(subjects)))
        return KeyScope(tenant, trajectory if people else None, people, seal_class)

    def warm(self, scopes: Iterable[KeyScope], *, create: bool = True) -> None:
        """Fetch the keys of all ``scopes`` in one call, so that the next calls need none."""
        self._states(tuple(dict.fromkeys(scopes)), create=create)

    def segment_id(self, scope: KeyScope, canonical: bytes) -> str | Erased:
        """The UUIDv8 of a canonical segment; it says nothing to who has not the key, and dies with it."""
        key = self._derived(scope, "segment-id")
        return key if isinstance(key, Erased) else uuid8_of(hmac.digest(key, canonical, hashlib.sha256))

    def entity_key(self, scope: KeyScope) -> bytes | Erased:
        """The 32-byte key under which found values of this scope are digested."""
        return self._derived(scope, "entity")

    def seal(
        self, scope: KeyScope, first_event: str, segment_id: str, plain: bytes
    ) -> tuple[SealedChunk, ...] | Erased:
        """``plain`` as chunks of at most 400 kB that open only as this segment of this scope.

        Raises:
            TooLarge: it has more than 64 MiB.
        """
        state = self._made(scope)
        if isinstance(state, Erased):
            return state
        return seal_segment(state.key, scope, first_event=first_event, segment=segment_id, plain=plain)

    def open(self, chunks: Sequence[SealedChunk]) -> bytes | Erased:
        """The plain bytes of one segment, given all its chunks in order.

        Raises:
            Corrupt: they were changed, or are being opened as something they are not.
        """
        return self.open_many([chunks])[0]

    def open_many(self, segments: Sequence[Sequence[SealedChunk]]) -> list[bytes | Erased]:
        """Each segment's plain bytes, with at most one question to the door about all of them.

        Raises:
            Corrupt: one of them is; open them one by one to learn which.
        """
        for chunks in segments:
            check_whole(chunks)
        names = [_name_of(chunks[0]) for chunks in segments]
        states = self._states(names, create=False)
        return [
            state if isinstance(state, Erased) else _opened(state, chunks)
            for state, chunks in zip(states, segments, strict=True)
        ]

    def seal_quarantine(self, tenant: str | None, event: str, plain: bytes, now_ms: int) -> tuple[SealedChunk, ...]:
        """``plain`` under the key of the day of ``now_ms`` (UTC), which is destroyed within 21 days.

        A tenant that the door does not know counts as None: what is quarantined may claim anything.
        """
        day = datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()
        try:
            owner, state = tenant, self._day_state(_Day(tenant, day))
        except (NotFound, InvalidInput):
            owner, state = None, self._day_state(_Day(None, day))
        if isinstance(state, Erased):
            raise Denied("the key of that day is destroyed", try_this="check the clocks of this machine")
        scope = KeyScope(owner or "", None, (), "quarantine")
        return seal_segment(state.key, scope, first_event=event, segment=random_id(), plain=plain, day=day)

    def _derived(self, scope: KeyScope, label: str) -> bytes | Erased:
        state = self._made(scope)
        return state if isinstance(state, Erased) else derive_key(state.key, label)

    def _made(self, scope: KeyScope) -> _State:
        state = self._states([scope], create=True)[0]
        if state is None:
            raise Denied("the key door made no key")
        return state

    def _day_state(self, name: _Day) -> _State:
        self._check_fence()
        generation = self._keys.generation
        state = self._keys.get(name)
        if state is None:
            state = self._door.day_key(name.tenant, name.day)
            self._keys.put(name, state, generation)
        return state

    def _states(self, names: Sequence[_Name], *, create: bool) -> list[_State | None]:
        """What the door says of each name; None where there is no such key, so that nothing can open."""
        self._check_fence()
        generation = self._keys.generation
        known = {name: self._keys.get(name) for name in names}
        missing = [name for name, state in known.items() if state is None and isinstance(name, KeyScope)]
        if missing:
            for scope, answer in zip(missing, self._door.content_keys(missing, create=create), strict=True):
                known[scope] = answer
                if answer is not None:
                    self._keys.put(scope, answer, generation)
        for name, state in known.items():
            if state is None and isinstance(name, _Day):
                try:
                    known[name] = self._day_state(name)
                except (NotFound, InvalidInput):
                    continue
        return [known[name] for name in names]

    def _check_fence(self) -> None:
        with self._fence_lock:
            if time.monotonic() - self._fence_checked < FENCE_EVERY_S:
                return
            fence = self._door.fence()
            if fence != self._fence:
                self._keys.empty()
                self._fence = fence
            self._fence_checked = time.monotonic()


class _KeyCache:
    """The newest keys by name, each until its lease ends."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Name, tuple[float, _State]] = OrderedDict()
        self.generation = 0
        """Rises when the cache is emptied: a key asked for before that must not come in after it."""

    def get(self, name: _Name) -> _State | None:
        with self._lock:
            expires, state = self._entries.get(name, (0.0, None))
            if state is None:
                return None
            if expires <= time.monotonic():
                del self._entries[name]
                return None
            self._entries.move_to_end(name)
            return state

    def put(self, name: _Name, state: _State, generation: int) -> None:
        expires = time.monotonic() + ERASED_S if isinstance(state, Erased) else state.expires
        with self._lock:
            if generation != self.generation:
                return
            self._entries[name] = (expires, state)
            self._entries.move_to_end(name)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)

    def empty(self) -> None:
        with self._lock:
            self._entries.clear()
            self.generation += 1


def _name_of(chunk: SealedChunk) -> _Name:
    """The key a chunk asks for: a day's if it is quarantined, else its scope's."""
    if chunk.seal_class == "quarantine":
        if chunk.day is None:
            raise Corrupt("quarantined content names no day")
        return _Day(chunk.tenant or None, chunk.day)
    return KeyScope(chunk.tenant, chunk.trajectory, chunk.subjects, chunk.seal_class)


def _opened(state: ContentKey | None, chunks: Sequence[SealedChunk]) -> bytes:
    if state is None:
        raise Corrupt("sealed segment names a key that never was")
    return open_segment(state.key, chunks)
