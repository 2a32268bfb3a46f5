"""One foreground process tree: starts the parts in order, restarts what dies, and leaves nothing behind.

::

    supervisor ──┬── broker       base parts: started first, stopped last, one after the other
                 ├── keydoor
                 ├── api          everything else: stopped together
                 └── ...

Each child is tethered (`ebbtide_platform.local.tether`), so that it dies even when the supervisor is killed
with -9. The supervisor has one thread: the kernel ties a child to the thread that started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.local.broker import tethered
from ebbtide_platform.settings import Settings, child_environment

TURN_S = 0.1
"""How soon the end of a child is noticed."""
PROBE_EVERY_S = 0.1
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
STEADY_S = 60.0
"""Who has lived so long starts anew with the first backoff."""
GIVE_UP = 3
"""Quick ends in a row, before readiness or as misconfigured, that restarting will not mend."""
LONGEST_LINE = 8_192
"""Bytes of a log line; the rest of a longer one is left out."""
READ_BYTES = 65_536
READS_PER_TURN = 16
"""A child that never stops talking must not keep the others unheard."""


def _nothing() -> None:
    """Prepares nothing."""


def _always() -> bool:
    """For what is ready as soon as it runs."""
    return True


@dataclass(frozen=True)
class Process:
    """One part of the platform, as the supervisor sees it."""

    name: str
    argv: tuple[str, ...]
    prepare: Callable[[], None] = _nothing
    """Done once, before the first start, when everything before it is ready."""
    is_ready: Callable[[], bool] = _always
    base: bool = False
    """True: others need it to end cleanly, so it is stopped after them."""
    death_signal: str = "KILL"
    ready_s: float = 60.0
    grace_s: float = 15.0
    """Between SIGTERM and SIGKILL."""


@dataclass
class _Child:
    """A process and its present life."""

    process: Process
    popen: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restart_at: float | None = None
    quick_ends: int = 0
    was_ready: bool = False
    line: bytearray = field(default_factory=bytearray)


class Supervisor:
    """Runs ``processes`` until SIGTERM, SIGINT, SIGHUP or `stop`; one at a time on a data directory.

    ``check`` is done when the data directory is ours and before anything starts, ``on_ready`` when everything answers.
    """

    def __init__(
        self,
        settings: Settings,
        processes: Sequence[Process],
        *,
        log: TextIO | None = None,
        check: Callable[[], None] = _nothing,
        on_ready: Callable[[], None] = _nothing,
    ) -> None:
        self._settings = settings
        self._children = [_Child(process) for process in processes]
        self._log = sys.stderr if log is None else log
        self._check, self._on_ready = check, on_ready
        self._stops = 0
        self._environment = child_environment(settings)
        self._width = max((len(process.name) for process in processes), default=0)
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()

    def run(self) -> None:
        """Start everything, keep it running, and return when all has ended after a request to stop.

        Raises:
            Misconfigured: another supervisor has this data directory, or a part cannot run as configured.
            Unavailable: a part did not become ready.
        """
        for end in (self._waker, self._wake):
            end.setblocking(False)
        self._selector.register(self._waker, selectors.EVENT_READ)
        try:
            with _exclusive(self._settings.run_dir / "up.lock"), self._signals():
                self._check()
                try:
                    self._start_all()
                    while not self._stops:
                        self._turn()
                finally:
                    self._stop_all()
        finally:
            self._selector.close()
            self._waker.close()
            self._wake.close()

    def ready(self) -> bool:
        """Whether every part answers now."""
        return all(child.popen is not None and child.process.is_ready() for child in self._children)

    def stop(self) -> None:
        """Ask for the end, from any thread; a second time, for an end without grace."""
        self._stops += 1
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    # --- starting -----------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        for child in self._children:
            if self._stops:
                return
            child.process.prepare()
            self._start(child)
            self._await_ready(child)
        if not self._stops:
            self._say("ready")
            self._on_ready()

    def _start(self, child: _Child) -> None:
        child.restart_at = None
        child.started = time.monotonic()
        child.popen = subprocess.Popen(  # noqa: S603 - an argument list made here, no shell
            tethered(child.process.argv, child.process.death_signal),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            # Ctrl-C goes to the supervisor alone, and a child's own children can be found by their group.
            start_new_session=True,
        )
        assert child.popen.stdout is not None
        os.set_blocking(child.popen.stdout.fileno(), False)
        self._selector.register(child.popen.stdout, selectors.EVENT_READ, child)
        self._say(f"{child.process.name} started (pid {child.popen.pid})")

    def _await_ready(self, child: _Child) -> None:
        deadline = time.monotonic() + child.process.ready_s
        while not self._stops:
            self._turn(PROBE_EVERY_S)
            if child.popen is not None and child.process.is_ready():
                child.was_ready = True
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{child.process.name} was not ready within {child.process.ready_s:.0f} s",
                    try_this="read its lines above; `ebbtide doctor` says what this machine lacks",
                )

    # --- running ------------------------------------------------------------------------------------------------

    def _turn(self, timeout_s: float = TURN_S) -> None:
        """Pass on what the children say, bury who died, start again whose time has come."""
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, _Child):
                self._pass_on(key.data)
            else:
                with contextlib.suppress(BlockingIOError):
                    self._waker.recv(READ_BYTES)
        for child in self._children:
            code = self._bury(child)
            if code is not None and not self._stops:
                self._plan_restart(child, code)
        now = time.monotonic()
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= now and not self._stops:
                self._start(child)

    def _plan_restart(self, child: _Child, code: int) -> None:
        name = child.process.name
        child.quick_ends = 0 if time.monotonic() - child.started >= STEADY_S else child.quick_ends + 1
        hopeless = code == Misconfigured.exit_code or not child.was_ready
        if hopeless and child.quick_ends >= GIVE_UP:
            raise Misconfigured(
                f"{name} ended {child.quick_ends} times at once ({_how(code)})",
                try_this="read its lines above; `ebbtide doctor` says what this machine lacks",
            )
        wait_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** max(0, child.quick_ends - 1))
        child.restart_at = time.monotonic() + wait_s
        self._say(f"{name} ended ({_how(code)}), starts again in {wait_s:.1f} s")

    def _bury(self, child: _Child) -> int | None:
        """The exit code of a child that has ended just now, after its own children were ended too."""
        popen = child.popen
        if popen is None or os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # The dead leader is not reaped yet, so the group's number cannot have been given to anyone else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
        code = popen.wait()
        self._pass_on(child)
        child.popen = None
        if popen.stdout is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(popen.stdout)
            popen.stdout.close()
        return code

    def _pass_on(self, child: _Child) -> None:
        """Write the whole lines that a child has printed, each with its name before it."""
        if child.popen is None or child.popen.stdout is None:
            return
        for _ in range(READS_PER_TURN):
            try:
                data = os.read(child.popen.stdout.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            ended = not data
            if ended:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(child.popen.stdout)
                data = b"\n" if child.line else b""
            *whole, rest = (bytes(child.line) + data).split(b"\n")
            for line in whole:
                self._write(child.process.name, line[:LONGEST_LINE].decode("utf-8", "replace"))
            child.line = bytearray(rest[:LONGEST_LINE])
            if ended:
                return

    # --- stopping -----------------------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        self._stops = max(1, self._stops)
        self._end([child for child in self._children if not child.process.base])
        for child in reversed([child for child in self._children if child.process.base]):
            self._end([child])
        self._say("ended")

    def _end(self, children: Sequence[_Child]) -> None:
        """SIGTERM, then SIGKILL for who has not ended within its grace or at a second request to stop."""
        living = [child for child in children if child.popen is not None]
        began = time.monotonic()
        for child in living:
            self._signal(child, signal.SIGTERM)
        while any(child.popen is not None for child in living):
            self._turn()
            for child in living:
                late = self._stops > 1 or time.monotonic() - began > child.process.grace_s
                if child.popen is not None and late:
                    self._say(f"{child.process.name} did not end in time and is killed")
                    self._signal(child, signal.SIGKILL)

    def _signal(self, child: _Child, number: signal.Signals) -> None:
        if child.popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.popen.pid, number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into `stop`; in another thread than the main one only `stop` ends the run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- the log ------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._write("up", text)

    def _write(self, name: str, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._log.write(f"{name:<{self._width}} | {text}\n")
            self._log.flush()


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file of a data directory; the kernel gives it back however the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Misconfigured(
                f"a platform runs already on {path.parent.parent} (pid {lock.read().strip() or 'unknown'})",
                try_this="use that one, end it, or choose another --data-dir",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
