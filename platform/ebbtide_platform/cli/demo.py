"""``ebbtide demo``: the main job from end to end on an embedded platform, then what happened."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.progress import Progress
from ebbtide_platform.errors import EbbtideError, Unavailable
from ebbtide_platform.local.demonstration import Result, demonstrate
from ebbtide_platform.local.ports import free_ports
from ebbtide_platform.local.workload import TENANTS, generate
from ebbtide_platform.settings import Settings, child_environment

CONVERSATIONS = 48
REWARD_WINDOW_S = 6.0
"""Days in real life; seconds here, so that a late reward can be shown."""
IDLE_S = 3.0
START_WAIT_S = 120.0
STOP_WAIT_S = 30.0
LOG_LINES_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, help=f"how many (default: {CONVERSATIONS})")
    parser.add_argument("--seed", type=int, default=7, help="of people, words and disorder (default: 7)")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="a new folder for the platform's data (default: temporary)"
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Start a platform, run the job, print the result; exit code 1 if a proof does not hold."""
    with _folder(arguments.keep) as folder:
        port = free_ports(3)  # the API, the broker and its controller
        here = dataclasses.replace(settings, data_dir=folder, port=port, broker_port=port + 1, bootstrap_servers="")
        conversations = list(generate(arguments.conversations, arguments.seed))
        with _platform(here, quiet=arguments.json) as keys, _Phases(quiet=arguments.json) as phases:
            result = demonstrate(here, keys, conversations, REWARD_WINDOW_S, phases.note)
    if arguments.json:
        print(msgspec.json.encode({"ok": result.proofs.hold, **msgspec.to_builtins(result)}).decode())
    else:
        print("\n".join(_report(result)))
    return 0 if result.proofs.hold else 1


command = Command(help="the main job from end to end on an embedded platform", configure=configure, run=run)


class _Phases:
    """One progress bar after the other."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._bar: Progress | None = None

    def note(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase or self._bar is None:
            self._finish()
            self._phase = phase
            self._bar = Progress(f"{phase:18}", total=total, quiet=self._quiet)
            self._bar.__enter__()
        self._bar.reach(done)

    def _finish(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def __enter__(self) -> _Phases:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise EbbtideError("--keep names a folder that is not empty", try_this="name a new one")
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="ebbtide-demo-") as name:
        yield Path(name)


@contextmanager
def _platform(settings: Settings, quiet: bool) -> Iterator[dict[str, str]]:
    """A running platform; gives the API key of each tenant, and ends every process at the end."""
    ready, log = settings.data_dir / "ready", settings.data_dir / "platform.log"
    options = [word for tenant in TENANTS for word in ("--tenant", tenant)]
    options += ["--reward-window", str(REWARD_WINDOW_S), "--idle", str(IDLE_S), "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            [sys.executable, "-P", "-m", "ebbtide_platform.cli.main", "up", *options],
            env=child_environment(settings),
            stdout=output,
            stderr=output,
        )
        try:
            _await_ready(process, ready, log, quiet)
            yield {tenant: (settings.run_dir / f"{tenant}.key").read_text().strip() for tenant in TENANTS}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_WAIT_S)


def _await_ready(process: subprocess.Popen[bytes], ready: Path, log: Path, quiet: bool) -> None:
    began = time.monotonic()
    with Progress("starting the platform", quiet=quiet):
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - began > START_WAIT_S:
                tail = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                raise Unavailable("the platform did not start; the end of its log:\n" + "\n".join(tail))
            time.sleep(0.1)


def _report(result: Result) -> list[str]:
    """The closing table, line by line."""
    total = _sum(result)
    lines = ["", "What happened", "============="]
    lines += _row("conversations", f"{result.conversations} by three agents, in {len(TENANTS)} tenants")
    lines += _row("step events", f"{total['steps']}")
    lines += _row("rewards", f"{result.rewards_sent} sent, {total['rewards']} distinct, all routed")
    lines += _row("segments", f"{total['segments']} redacted once each")
    lines += _row("findings", ", ".join(f"{kind} {n}" for kind, n in sorted(total["findings"].items())))
    planted, removed = result.planted.total(), result.removed.total()
    lines += _row("known values removed", f"{removed} of {planted} ({_percent(removed, planted)})")
    for kind in sorted(result.planted):
        lines += _row(f"  {kind}", f"{result.removed[kind]} of {result.planted[kind]}")
    for verdict in ("eligible", "held", "rejected", "open", "quarantined"):
        codes = ", ".join(f"{code} {n}" for code, n in sorted(total["reasons"].get(verdict, {}).items()))
        lines += _row(verdict, f"{total['account'][verdict]}" + (f"  ({codes})" if codes else ""))
    for tenant, count in result.samples.items():
        lines += _row(f"samples of {tenant}", f"{count}")
    for tenant, status in result.status.items():
        if latency := status["latency"]:
            lines += _row(f"latency of {tenant}", _latency(latency))
    lines += ["", "What was promised", "================="]
    proofs = result.proofs
    lines += _proof("every trajectory stands in exactly one place", proofs.accounts_balance)
    lines += _proof("no tenant's sample stands in another's topic", proofs.samples_in_foreign_topics == 0)
    searched = f"{result.files_searched} files, {result.bytes_searched / 1e6:.0f} MB searched"
    lines += _proof(f"no personal value is readable on disk ({searched})", proofs.readable_values_on_disk == 0)
    lines += _proof("nobody who refused was curated", proofs.refused_people_curated == 0)
    lines += _proof("no sample came twice", proofs.duplicate_samples == 0)
    lines += ["", f"all of it took {result.elapsed_s:.0f} s; `make up` leaves a platform running"]
    return lines


def _sum(result: Result) -> dict[str, Any]:
    """The figures of all tenants together."""
    total: dict[str, Any] = {"steps": 0, "segments": 0, "rewards": 0, "findings": {}, "account": {}, "reasons": {}}
    for status in result.status.values():
        total["steps"] += status["steps"]
        total["segments"] += status["segments"]
        total["rewards"] += status["rewards"]["routed"]
        for part in ("findings", "account"):
            for name, value in status[part].items():
                total[part][name] = total[part].get(name, 0) + value
        for verdict, codes in status["reasons"].items():
            into = total["reasons"].setdefault(verdict, {})
            for code, value in codes.items():
                into[code] = into.get(code, 0) + value
    return total


def _row(name: str, value: str) -> list[str]:
    return [f"  {name:24} {value}"]


def _latency(latency: Mapping[str, int]) -> str:
    """The window of rewards lies between the last step and the sample; what Ebbtide itself takes is the second pair."""
    seconds = {name: f"{value / 1000:.1f} s" for name, value in latency.items()}
    whole = f"last step to sample p50 {seconds['p50_ms']}, p95 {seconds['p95_ms']}"
    return f"{whole}; settled to sample p50 {seconds['settled_p50_ms']}, p95 {seconds['settled_p95_ms']}"


def _proof(promise: str, kept: bool) -> list[str]:
    return [f"  {'yes' if kept else 'NO '}  {promise}"]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "nothing planted"
