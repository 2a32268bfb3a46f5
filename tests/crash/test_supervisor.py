"""The supervisor over stand-in processes: it restarts what dies, ends cleanly, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.local.supervisor import Supervisor
from ebbtide_platform.settings import Settings
from support import stand_in_platform
from support.waiting import lives, wait_until

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor over the named stand-ins as a process; all of them are gone after the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*parts: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-P", stand_in_platform.__file__, str(tmp_path), *parts]
        supervisor = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        begun.append(supervisor)
        return supervisor

    yield start
    for supervisor in begun:
        supervisor.kill()
        supervisor.communicate()


def _pid(folder: Path, name: str) -> int:
    return int((folder / f"{name}.pid").read_text())


def _await_ready(folder: Path) -> None:
    wait_until((folder / "ready").exists, "the supervisor is ready")


def test_what_is_killed_with_9_runs_again(start: Start, tmp_path: Path) -> None:
    start("base=steady", "worker=steady")
    _await_ready(tmp_path)
    for name in ("worker", "base"):
        before = _pid(tmp_path, name)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda name=name, before=before: _pid(tmp_path, name) != before, f"{name} runs again")  # type: ignore[misc]
        assert lives(_pid(tmp_path, name))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_ends_everything_cleanly_and_base_parts_last(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    supervisor = start("base-broker=steady", "base-door=steady", "worker=steady", "other=parent")
    _await_ready(tmp_path)
    pids = [_pid(tmp_path, name) for name in ("base-broker", "base-door", "worker", "other", "other.child")]
    supervisor.send_signal(number)
    assert supervisor.wait(30) == 0
    assert [pid for pid in pids if lives(pid)] == []
    assert (tmp_path / "ended").read_text().split()[-2:] == ["base-door", "base-broker"]


def test_a_stubborn_process_is_killed_after_its_grace(start: Start, tmp_path: Path) -> None:
    supervisor = start("worker=stubborn")
    _await_ready(tmp_path)
    supervisor.terminate()
    _, log = supervisor.communicate(timeout=30)
    assert not lives(_pid(tmp_path, "worker"))
    assert "worker did not end in time and is killed" in log


def test_killing_the_supervisor_itself_with_9_leaves_no_orphan(start: Start, tmp_path: Path) -> None:
    supervisor = start("base=steady", "worker=stubborn")
    _await_ready(tmp_path)
    pids = [_pid(tmp_path, name) for name in ("base", "worker")]
    supervisor.kill()
    wait_until(lambda: not any(map(lives, pids)), "the children of a killed supervisor are gone")


def test_the_children_of_a_killed_process_go_with_it(start: Start, tmp_path: Path) -> None:
    start("worker=parent")
    _await_ready(tmp_path)
    worker, child = _pid(tmp_path, "worker"), _pid(tmp_path, "worker.child")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not lives(child), "the child of a killed process is gone")


def test_two_supervisors_on_one_data_directory_are_one_too_many(start: Start, tmp_path: Path) -> None:
    first = start("worker=steady")
    _await_ready(tmp_path)
    second = start("worker=steady")
    _, log = second.communicate(timeout=30)
    assert second.returncode == Misconfigured.exit_code
    assert f"(pid {first.pid})" in log
    assert first.poll() is None


def test_the_lock_of_a_killed_supervisor_is_free_again(start: Start, tmp_path: Path) -> None:
    first = start("worker=steady")
    _await_ready(tmp_path)
    first.kill()
    first.wait()
    (tmp_path / "ready").unlink()
    start("worker=steady")
    _await_ready(tmp_path)


@pytest.mark.parametrize("behaviour", ["broken", "misconfigured"])
def test_what_cannot_start_ends_the_run_with_a_reason_and_no_orphan(
    start: Start, tmp_path: Path, behaviour: str
) -> None:
    supervisor = start("base=steady", f"worker={behaviour}")
    _, log = supervisor.communicate(timeout=30)
    assert supervisor.returncode == Misconfigured.exit_code
    assert "worker ended 3 times at once" in log
    assert not lives(_pid(tmp_path, "base"))


def test_there_is_one_log_and_each_line_names_its_process(start: Start, tmp_path: Path) -> None:
    supervisor = start("base=steady", "worker=steady")
    _await_ready(tmp_path)
    supervisor.terminate()
    _, log = supervisor.communicate(timeout=30)
    lines = log.splitlines()
    assert "base   | hello from base" in lines
    assert "worker | hello from worker" in lines
    assert all(" | " in line for line in lines)


def test_a_program_may_run_the_supervisor_in_a_thread_and_stop_it(tmp_path: Path) -> None:
    supervisor = Supervisor(Settings(data_dir=tmp_path), [stand_in_platform.process(tmp_path, "worker", "steady")])
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    wait_until(supervisor.ready, "the worker is ready")
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert not lives(_pid(tmp_path, "worker"))
