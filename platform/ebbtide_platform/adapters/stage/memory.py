"""Stage state in memory: the fake that ships, with the same transactions and the same order of keys."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager

from ebbtide_platform.ports import OutRecord, StageTransaction


class MemoryStageStore:
    """`StageStore` in a dictionary; what it holds is lost with it."""

    def __init__(self) -> None:
        self._state: dict[bytes, bytes] = {}
        self._offsets: dict[str, int] = {}
        self._pending: list[tuple[int, OutRecord]] = []
        self._number = 0

    def offsets(self) -> dict[str, int]:
        """The next offset to process, by topic name."""
        return dict(self._offsets)

    @contextmanager
    def transaction(self, positions: dict[str, int]) -> Iterator[StageTransaction]:
        """Commit everything done inside together with ``positions``; roll back if it raises."""
        tx = _Transaction(dict(self._state))
        yield tx
        self._state = tx.state
        self._offsets |= positions
        for record in tx.emitted:
            self._number += 1
            self._pending.append((self._number, record))

    def pending(self) -> list[tuple[int, OutRecord]]:
        """Outputs that are committed and not yet known to be delivered, oldest first, with their numbers."""
        return list(self._pending)

    def delivered(self, up_to: int) -> None:
        """Forget pending outputs numbered ``up_to`` or less."""
        self._pending = [item for item in self._pending if item[0] > up_to]

    def close(self) -> None:
        """Nothing to give up."""


class _Transaction:
    """`StageTransaction` over a copy of the state."""

    def __init__(self, state: dict[bytes, bytes]) -> None:
        self.state = state
        self.emitted: list[OutRecord] = []
        self._keys = sorted(state)

    def get(self, key: bytes) -> bytes | None:
        return self.state.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.state:
            insort(self._keys, key)
        self.state[key] = value

    def delete(self, key: bytes) -> None:
        if self.state.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def scan(self, prefix: bytes, *, start: bytes = b"", limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        at, given = bisect_left(self._keys, max(prefix, start)), 0
        while at < len(self._keys) and self._keys[at].startswith(prefix) and given != limit:
            key = self._keys[at]
            yield key, self.state[key]
            given += 1
            # The caller may have written meanwhile: go on behind the key, wherever it stands now.
            at = bisect_left(self._keys, key + b"\0")

    def emit(self, record: OutRecord) -> None:
        self.emitted.append(record)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        state, keys, emitted = dict(self.state), list(self._keys), list(self.emitted)
        try:
            yield
        except BaseException:
            self.state, self._keys, self.emitted = state, keys, emitted
            raise
