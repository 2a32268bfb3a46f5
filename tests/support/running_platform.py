"""A whole platform as `ebbtide up` runs it, for tests that kill parts of it or look at all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.settings import Settings, child_environment, read_settings
from support.waiting import wait_until

START_S = 90.0
STOP_S = 45.0
ANSWER_S = 30.0


@dataclass
class Platform:
    """One `ebbtide up`, its settings and its tenants' keys."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log: Path
    options: tuple[str, ...]

    def key(self, tenant: str) -> str:
        """The tenant's API key."""
        return (self.settings.run_dir / f"{tenant}.key").read_text().strip()

    def get(self, tenant: str, path: str, **parameters: str) -> httpx.Response:
        """One authenticated read."""
        headers = {"authorization": f"Bearer {self.key(tenant)}"}
        return httpx.get(self.settings.api_url + path, headers=headers, params=parameters, timeout=ANSWER_S)

    def status(self, tenant: str) -> dict[str, Any]:
        """The tenant's status; empty while the API is away."""
        try:
            answer = self.get(tenant, "/v1/status")
        except httpx.HTTPError:
            return {}
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    def post_events(self, tenant: str, lines: Sequence[bytes], *, give_up_s: float = 120.0) -> httpx.Response:
        """Post a batch until it is answered for good, as every client does."""
        headers = {"authorization": f"Bearer {self.key(tenant)}", "content-type": "application/x-ndjson"}
        deadline = time.monotonic() + give_up_s
        while True:
            try:
                answer = httpx.post(
                    f"{self.settings.api_url}/v1/events", content=b"\n".join(lines), headers=headers, timeout=ANSWER_S
                )
                if answer.status_code != 429 and answer.status_code < 500:
                    return answer
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, "the API did not come back"
            time.sleep(0.1)

    def pid_of(self, part: str) -> int | None:
        """The process id of a part (``api``, ``broker``, ...) or None while it is away."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and _is_part(words, part):
                return int(folder.name)
        return None

    def kill(self, part: str) -> None:
        """Kill -9 a part, and wait until the supervisor has started another."""
        wait_until(lambda: self.pid_of(part) is not None, f"{part} runs", START_S)
        old = self.pid_of(part)
        assert old is not None
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: self.pid_of(part) not in (None, old), f"{part} was started again", START_S)

    def stop(self) -> None:
        """End it as Ctrl-C would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)


def _is_part(words: Sequence[bytes], part: str) -> bool:
    if part == "broker":
        return b"kafka.Kafka" in words
    return b"run" in words and words[words.index(b"run") + 1] == part.encode()


@contextmanager
def running_platform(
    folder: Path, *tenants: str, reward_window_s: float = 6.0, idle_s: float = 3.0, **settings: Any
) -> Iterator[Platform]:
    """Start a platform with data under ``folder``, and end every process of it afterwards."""
    port = free_ports(3)
    own = replace(read_settings({}), data_dir=folder, port=port, broker_port=port + 1, partitions=2, **settings)
    options = tuple(word for tenant in tenants for word in ("--tenant", tenant))
    options += ("--reward-window", str(reward_window_s), "--idle", str(idle_s))
    platform = start(own, options)
    try:
        yield platform
    finally:
        platform.stop()


def start(settings: Settings, options: tuple[str, ...]) -> Platform:
    """Start (or start again) a platform and return when everything answers."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    ready, log = settings.data_dir / "ready", settings.data_dir.with_suffix(".log")
    ready.unlink(missing_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ebbtide_platform.cli.main", "up", *options, "--ready-file", str(ready)],
            env=child_environment(settings),
            stdout=output,
            stderr=output,
        )
    platform = Platform(settings, process, log, options)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the platform is ready", START_S)
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
    except BaseException:
        process.kill()
        process.wait()
        raise
    return platform
