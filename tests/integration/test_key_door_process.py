"""The key door as a process of its own: who gets in, what a restart costs, and how it ends."""

from __future__ import annotations

import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from ebbtide_platform.errors import Denied, Misconfigured, Unavailable
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.keydoor.protocol import MAX_HELLO_BYTES, Hello, read_frame, write_frame
from ebbtide_platform.keydoor.server import DoorServer, write_tokens
from ebbtide_platform.ports import Erased, KeyScope
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Secret, Settings, child_environment

SERVE = "from ebbtide_platform.keydoor.server import serve; from ebbtide_platform.settings import read_settings; "
START_S = 30.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def start(settings: Settings) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts key door processes; none outlives the test."""
    with ExitStack() as running:

        def start() -> subprocess.Popen[bytes]:
            door = subprocess.Popen(
                [sys.executable, "-c", SERVE + "serve(read_settings())"],
                env=child_environment(settings),
                stderr=subprocess.PIPE,
            )
            running.enter_context(door)
            running.callback(door.kill)
            return door

        yield start


@pytest.fixture
def remote(settings: Settings) -> Iterator[RemoteKeyDoor]:
    """A client with the deployment's own token, which waits for the door to start."""
    token = {workload: token for token, workload in write_tokens(settings).items()}["admin"]
    with RemoteKeyDoor(settings.socket_path, token, patience_s=START_S) as door:
        yield door


def test_the_door_serves_until_sigterm_and_leaves_no_socket(
    settings: Settings, start: Callable[[], subprocess.Popen[bytes]], remote: RemoteKeyDoor
) -> None:
    door = start()
    assert remote.create_tenant("acme")
    assert stat.S_IMODE((settings.run_dir / "workload.token").stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.socket_path.stat().st_mode) == 0o600
    door.terminate()
    assert door.wait(START_S) == 0
    assert not settings.socket_path.exists()


def test_a_door_killed_and_restarted_is_the_same_to_its_clients(
    start: Callable[[], subprocess.Popen[bytes]], remote: RemoteKeyDoor
) -> None:
    first = start()
    remote.create_tenant("acme")
    sealer = Sealer(remote)
    refs = remote.subject_refs("acme", ["ines"])
    scope = sealer.key_scope("acme", "t", [ref for ref in refs if isinstance(ref, str)], "raw")
    sealed = sealer.seal(scope, "e-1", "s-1", b"text")
    assert not isinstance(sealed, Erased)
    first.send_signal(signal.SIGKILL)
    first.wait(START_S)
    start()
    assert Sealer(remote).open(sealed) == b"text"
    assert sealer.open(sealed) == b"text"


def test_a_second_door_on_the_same_keys_does_not_disturb_the_first(
    start: Callable[[], subprocess.Popen[bytes]], remote: RemoteKeyDoor
) -> None:
    start()
    assert remote.tenants() == []
    second = start()
    _, told = second.communicate(timeout=START_S)
    assert second.returncode != 0
    assert b"another process has the key store open" in told
    assert remote.tenants() == []


def test_a_door_that_is_not_there_is_unavailable(settings: Settings) -> None:
    with RemoteKeyDoor(settings.socket_path, "token", patience_s=0) as door, pytest.raises(Unavailable):
        door.fence()


# --- in this process, to see both sides -----------------------------------------------------------------------


@pytest.fixture
def served(settings: Settings) -> Iterator[Settings]:
    """A door in memory behind a real socket."""
    tokens = write_tokens(settings)
    with DoorServer(MemoryKeyDoor("acme"), settings.socket_path, tokens):
        yield settings


@pytest.mark.parametrize("token", ["", "admin.", "wrong"])
def test_a_wrong_token_is_denied(served: Settings, token: str) -> None:
    with RemoteKeyDoor(served.socket_path, token) as door:
        for _ in range(2):
            with pytest.raises(Denied):
                door.fence()


def test_each_workload_has_a_token_file_of_its_own(served: Settings) -> None:
    token = (served.run_dir / "workload-redact.token").read_text()
    with RemoteKeyDoor(served.socket_path, token) as door:
        assert door.fence() == 0
        for _ in range(2):
            with pytest.raises(Denied):
                door.destroy_subject("acme", "ines")
        with pytest.raises(Denied):
            door.content_keys([KeyScope("acme", None, (), "redacted")], create=True)


def test_a_token_in_the_settings_is_good_for_everything(settings: Settings) -> None:
    given = Settings(data_dir=settings.data_dir, workload_token=Secret("given"))
    tokens = write_tokens(given)
    with (
        DoorServer(MemoryKeyDoor(), given.socket_path, tokens),
        RemoteKeyDoor(given.socket_path, given.token()) as door,
    ):
        assert door.create_tenant("acme")


def test_many_threads_share_a_client(served: Settings) -> None:
    with RemoteKeyDoor(served.socket_path, served.token()) as door, ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: door.fence(), range(200))) == {0}


def test_a_client_finds_its_way_back_after_the_door_hung_up(settings: Settings) -> None:
    tokens, memory = write_tokens(settings), MemoryKeyDoor("acme")
    with RemoteKeyDoor(settings.socket_path, settings.token()) as door:
        for _ in range(2):
            with DoorServer(memory, settings.socket_path, tokens):
                assert door.tenants() == ["acme"]


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x01\xc1", (MAX_HELLO_BYTES + 1).to_bytes(4), b"\x00\x00\x00\x05\x81"],
    ids=["another protocol", "no message", "too long", "cut short"],
)
def test_a_peer_that_does_not_greet_is_dropped_unanswered(served: Settings, first: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.settimeout(START_S)
        peer.connect(str(served.socket_path))
        peer.sendall(first)
        peer.shutdown(socket.SHUT_WR)
        assert _rest(peer) == b""


def test_a_frame_beyond_the_limit_ends_the_conversation(served: Settings) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.settimeout(START_S)
        peer.connect(str(served.socket_path))
        write_frame(peer, msgspec.msgpack.encode(Hello(served.token())))
        assert read_frame(peer)
        peer.sendall(b"\xff" * 4)
        assert _rest(peer) == b""


def test_the_end_of_the_server_ends_every_conversation(settings: Settings) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as peer:
        with DoorServer(MemoryKeyDoor(), settings.socket_path, write_tokens(settings)):
            peer.connect(str(settings.socket_path))
            write_frame(peer, msgspec.msgpack.encode(Hello(settings.token())))
            assert read_frame(peer)
        assert select.select([peer], [], [], START_S)[0]
        assert _rest(peer) == b""


def test_a_path_too_long_for_a_socket_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured) as error:
        DoorServer(MemoryKeyDoor(), tmp_path / ("deep" * 30) / "keydoor.sock", {})
    assert "EBBTIDE_KEYDOOR_SOCKET" in error.value.try_this


def test_the_local_door_behind_the_socket_erases(settings: Settings) -> None:
    with (
        LocalKeyDoor(settings) as local,
        DoorServer(local, settings.socket_path, write_tokens(settings)),
        RemoteKeyDoor(settings.socket_path, settings.token()) as door,
    ):
        door.create_tenant("acme")
        ref = door.subject_refs("acme", ["ines"])[0]
        assert isinstance(ref, str)
        scope = KeyScope("acme", "t", (ref,), "raw")
        sealed = Sealer(door).seal(scope, "e", "s", b"text")
        assert not isinstance(sealed, Erased)
        assert door.destroy_subject("acme", "ines") == local.destroy_subject("acme", "ines")
        assert Sealer(door).open(sealed) == Erased()


def _rest(peer: socket.socket) -> bytes:
    """What still comes before the other side closes; a reset is a close."""
    try:
        return peer.recv(1)
    except ConnectionResetError:
        return b""
