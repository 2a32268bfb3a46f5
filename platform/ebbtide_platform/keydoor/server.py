"""The key door as a process: a Unix socket, one thread for each connection, one token for each workload."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import msgspec

from ebbtide_platform.errors import Denied, EbbtideError, Misconfigured, Unavailable
from ebbtide_platform.keydoor.credentials import GRANTS, check_call, check_classes, recognise, workload_token
from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.keydoor.leases import clean_scope
from ebbtide_platform.keydoor.protocol import (
    ARGUMENTS,
    MAX_HELLO_BYTES,
    Answer,
    Call,
    Failure,
    Hello,
    Success,
    failure_of,
    pack_key,
    read_frame,
    write_frame,
)
from ebbtide_platform.ports import Erased, KeyDoor, Workload
from ebbtide_platform.settings import Settings

SWEEP_EVERY_S = 3_600.0
"""Day keys end within an hour of their time."""
HELLO_S = 5.0
"""A peer that says nothing for so long is dropped."""
MAX_CONNECTIONS = 256
_SOCKET_PATH_BYTES = 107
"""Of ``sockaddr_un`` on Linux."""
_PEER_CREDENTIALS = struct.Struct("3i")
"""pid, uid, gid, as ``SO_PEERCRED`` gives them."""

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Run the key door until SIGTERM or SIGINT.

    Raises:
        Misconfigured: another door has the key store open, or the socket's path is too long.
        Unavailable: the key store cannot be read or written.
    """
    stop = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with LocalKeyDoor(settings) as door, DoorServer(door, settings.socket_path, write_tokens(settings)):
        while not stop.wait(SWEEP_EVERY_S):
            try:
                door.sweep()
            except Unavailable as error:
                _log.error("sweep failed: %s", error.happened)


def write_tokens(settings: Settings) -> dict[str, Workload]:
    """Every workload's token, each also in ``run/workload-<name>.token``; ``run/workload.token`` may do everything.

    They stay the same when the door is restarted. A token in the settings counts as ``admin``'s too.
    """
    keys, run = settings.data_dir / "keys", settings.run_dir
    for folder in (keys, run):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = _lasting_secret(keys / "workload.secret")
    tokens = {workload_token(secret, workload): workload for workload in GRANTS}
    for token, workload in tokens.items():
        _write_private(run / f"workload-{workload}.token", token.encode())
    _write_private(run / "workload.token", workload_token(secret, "admin").encode())
    if settings.workload_token:
        tokens[settings.workload_token.reveal()] = "admin"
    return tokens


class DoorServer:
    """Answers for ``door`` on a Unix socket while it is entered; only to this user, only with a known token."""

    def __init__(self, door: KeyDoor, path: Path, tokens: Mapping[str, Workload]) -> None:
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
            raise Misconfigured(
                f"the key door's socket path has more than {_SOCKET_PATH_BYTES} bytes",
                try_this="set EBBTIDE_KEYDOOR_SOCKET to a short path such as /run/ebbtide/keydoor.sock",
            )
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Whoever made the door holds the key store's lock, so a socket that lies here is a dead door's.
        path.unlink(missing_ok=True)
        self._listener = _Listener(door, path, tokens)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.1,), name="keydoor-accept")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        self._listener.hang_up()
        self._listener.server_close()


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Accepts connections of this user, up to a number."""

    request_queue_size = 64

    def __init__(self, door: KeyDoor, path: Path, tokens: Mapping[str, Workload]) -> None:
        self.door = door
        self.tokens = tokens
        self._peers: set[socket.socket] = set()
        self._peers_lock = threading.Lock()
        super().__init__(str(path), _Connection)
        path.chmod(0o600)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """False closes the connection unanswered."""
        credentials = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        if _PEER_CREDENTIALS.unpack(credentials)[1] != os.geteuid():
            _log.warning("refused a peer of another user")
            return False
        with self._peers_lock:
            if len(self._peers) >= MAX_CONNECTIONS:
                _log.warning("refused a peer: %d connections are open", MAX_CONNECTIONS)
                return False
            self._peers.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        """Called once for each connection, at its end."""
        with self._peers_lock:
            self._peers.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that breaks off is no event; anything else is named by its kind, never by its text."""
        _log.warning("a connection ended with an error")

    def hang_up(self) -> None:
        """Wake every thread that waits for its peer."""
        with self._peers_lock:
            for peer in self._peers:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.BaseRequestHandler):
    """One workload's conversation."""

    server: _Listener
    request: socket.socket

    def handle(self) -> None:
        """Greet, then answer until the peer closes."""
        with contextlib.suppress(OSError):
            workload = self._greet()
            while workload is not None and (frame := read_frame(self.request)) is not None:
                self._send(answer(self.server.door, workload, frame))

    def _greet(self) -> Workload | None:
        self.request.settimeout(HELLO_S)
        try:
            hello = msgspec.msgpack.decode(read_frame(self.request, MAX_HELLO_BYTES) or b"", type=Hello)
            workload = recognise(self.server.tokens, hello.token)
        except msgspec.MsgspecError:
            return None
        except Denied as error:
            _log.warning("refused a workload: its token is not known")
            self._send(failure_of(error))
            return None
        self.request.settimeout(None)
        self._send(_success(None))
        return workload

    def _send(self, reply: Answer) -> None:
        write_frame(self.request, msgspec.msgpack.encode(reply))


def answer(door: KeyDoor, workload: Workload, frame: bytes) -> Answer:
    """What ``door`` says to one call, as far as ``workload`` may make it; never raises."""
    try:
        call = msgspec.msgpack.decode(frame, type=Call)
        if call.name not in ARGUMENTS:
            raise Denied("the key door knows no such call")
        check_call(workload, call.name)
        arguments = msgspec.msgpack.decode(call.arguments, type=ARGUMENTS[call.name])
        if call.name == "content_keys":
            check_classes(workload, {clean_scope(scope).seal_class for scope in arguments[0]})
        return _success(_ANSWERS.get(call.name, _plain(call.name))(door, *arguments))
    except EbbtideError as error:
        return failure_of(error)
    except msgspec.MsgspecError:
        return Failure("denied", "the key door cannot read this call")
    except Exception as error:  # a bug must not end the door; its text may hold keys, so only its kind is told
        _log.error("call failed: %s", type(error).__name__)
        return Failure("unavailable", "the key door failed at this call")


def _plain(name: str) -> Callable[..., Any]:
    """The call whose result travels as it is."""
    return lambda door, *arguments: getattr(door, name)(*arguments)


_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "content_keys": lambda door, scopes, create: [pack_key(key) for key in door.content_keys(scopes, create=create)],
    "day_key": lambda door, tenant, day: pack_key(door.day_key(tenant, day)),
    "destroy_subject": lambda door, tenant, identity: [
        ended for ended in (door.destroy_subject(tenant, identity),) if ended is not None
    ],
    "subject_refs": lambda door, tenant, identities: [
        None if isinstance(ref, Erased) else ref for ref in door.subject_refs(tenant, identities)
    ],
}


def _success(value: Any) -> Success:
    return Success(msgspec.Raw(msgspec.msgpack.encode(value)))


def _lasting_secret(path: Path) -> bytes:
    if not path.exists():
        _write_private(path, secrets.token_bytes(32))
    return path.read_bytes()


def _write_private(path: Path, content: bytes) -> None:
    """Set the file in one step, readable by its owner only."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
