"""The key door from another process: `RemoteKeyDoor` speaks to the Unix socket, from any thread."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from ebbtide_platform.errors import Unavailable
from ebbtide_platform.keydoor.protocol import (
    Answer,
    Call,
    Failure,
    Hello,
    KeyAnswer,
    error_of,
    read_frame,
    unpack_key,
    write_frame,
)
from ebbtide_platform.ports import ContentKey, Destruction, Erased, KeyScope, Principal, Scope

ANSWER_S = 30.0
"""A door that is silent for so long counts as not answering."""
IDLE_CONNECTIONS = 8
"""Kept for the next calls; threads beyond these open their own."""
_RETRY_EVERY_S = 0.05
ResultT = TypeVar("ResultT")


class RemoteKeyDoor:
    """Implements `ports.KeyDoor` over a socket.

    A call waits up to ``patience_s`` for a door that is being restarted, and then raises `Unavailable`; so it
    does when the connection breaks in the middle of a call, because the door may have acted on it.
    """

    def __init__(self, socket_path: Path, token: str, *, patience_s: float = 5.0) -> None:
        self._path = socket_path
        self._token = token
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []

    def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for peer in idle:
            peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def authenticate(self, api_key: str) -> Principal:
        """See `ports.KeyDoor`."""
        return self._call(Principal, "authenticate", api_key)

    def create_tenant(self, tenant: str) -> bool:
        """See `ports.KeyDoor`."""
        return self._call(bool, "create_tenant", tenant)

    def tenants(self) -> list[str]:
        """See `ports.KeyDoor`."""
        return self._call(list[str], "tenants")

    def create_api_key(self, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """See `ports.KeyDoor`."""
        return self._call(str, "create_api_key", tenant, name, list(scopes))

    def api_keys(self, tenant: str) -> list[tuple[str, str, list[Scope], bool]]:
        """See `ports.KeyDoor`."""
        return self._call(list[tuple[str, str, list[Scope], bool]], "api_keys", tenant)

    def revoke_api_key(self, tenant: str, key_id: str) -> None:
        """See `ports.KeyDoor`."""
        self._value("revoke_api_key", (tenant, key_id))

    def identity_key(self, tenant: str) -> bytes:
        """See `ports.KeyDoor`."""
        return self._call(bytes, "identity_key", tenant)

    def subject_refs(self, tenant: str, identities: Sequence[str]) -> list[str | Erased]:
        """See `ports.KeyDoor`."""
        refs = self._call(list[str | None], "subject_refs", tenant, list(identities))
        return [Erased() if ref is None else ref for ref in refs]

    def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
        """See `ports.KeyDoor`."""
        asked = time.monotonic()
        answers = self._call(list[KeyAnswer], "content_keys", list(scopes), create)
        return [unpack_key(key, asked) for key in answers]

    def day_key(self, tenant: str | None, day: str) -> ContentKey | Erased:
        """See `ports.KeyDoor`."""
        asked = time.monotonic()
        key: KeyAnswer = msgspec.msgpack.decode(self._value("day_key", (tenant, day)), type=KeyAnswer)
        return unpack_key(key, asked) or Erased()

    def destroy_subject(self, tenant: str, identity: str) -> Destruction | None:
        """See `ports.KeyDoor`."""
        ended = self._call(list[Destruction], "destroy_subject", tenant, identity)
        return ended[0] if ended else None

    def fence(self) -> int:
        """See `ports.KeyDoor`."""
        return self._call(int, "fence")

    def _call(self, result: type[ResultT], name: str, *arguments: Any) -> ResultT:
        """One call. Raises what the door tells, and `Unavailable`."""
        return msgspec.msgpack.decode(self._value(name, arguments), type=result)

    def _value(self, name: str, arguments: Sequence[Any]) -> msgspec.Raw:
        call = Call(name, msgspec.Raw(msgspec.msgpack.encode(arguments)))
        with self._connection() as peer:
            answer = _ask(peer, call)
        return _told(answer)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        """A connection of one's own; it goes back to the idle ones unless it broke."""
        peer = self._take_idle() or self._connect()
        try:
            yield peer
        except (OSError, msgspec.MsgspecError):
            peer.close()
            raise _silent() from None
        except BaseException:
            peer.close()
            raise
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(peer)
                return
        peer.close()

    def _take_idle(self) -> socket.socket | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                peer = self._idle.pop()
            # Something to read before anything was asked: the door hung up.
            if not select.select([peer], [], [], 0)[0]:
                return peer
            peer.close()

    def _connect(self) -> socket.socket:
        """A greeted connection. Raises `Denied` and `Unavailable`."""
        deadline = time.monotonic() + self._patience_s
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.settimeout(ANSWER_S)
                peer.connect(str(self._path))
                _told(_ask(peer, Hello(self._token)))
                return peer
            except (OSError, msgspec.MsgspecError):
                peer.close()
                if time.monotonic() >= deadline:
                    raise _silent() from None
            except BaseException:
                peer.close()
                raise
            time.sleep(_RETRY_EVERY_S)


def _ask(peer: socket.socket, question: Call | Hello) -> Answer:
    """The answer to one frame. Raises `OSError` and `MsgspecError`."""
    write_frame(peer, msgspec.msgpack.encode(question))
    frame = read_frame(peer)
    if frame is None:
        raise ConnectionError("the key door hung up")
    return msgspec.msgpack.decode(frame, type=Answer)


def _told(answer: Answer) -> msgspec.Raw:
    """The result. Raises the error that the door tells."""
    if isinstance(answer, Failure):
        raise error_of(answer)
    return answer.value


def _silent() -> Unavailable:
    return Unavailable("the key door does not answer", try_this="start it with `ebbtide up` or `ebbtide run keydoor`")
