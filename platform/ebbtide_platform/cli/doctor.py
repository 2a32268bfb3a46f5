"""``ebbtide doctor``: what this machine has and lacks for Ebbtide, and what to do about it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

import httpx
from confluent_kafka.admin import AdminClient

from ebbtide_platform.adapters.kafka_connection import client_config, list_topics
from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import EbbtideError
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.local.jars import ThisMachine, find_java, find_runtime
from ebbtide_platform.local.ports import answers, is_free, socket_problem
from ebbtide_platform.settings import Settings

ASK_S = 3.0
LOW_DISK_BYTES = 2 << 30
"""The broker stops with an error on a full disk, so say it before."""
CLOCK_S = 5.0
"""Further apart than this, lateness of rewards and leases of keys are judged wrongly."""
# No clock of a machine that runs this code can be right and show an earlier time.
OLDEST_NOW_S = 1_735_689_600

State = Literal["ok", "off", "warning", "failed"]
MARKS: dict[State, str] = {"ok": "ok  ", "off": "off ", "warning": "WARN", "failed": "FAIL"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``off`` is what need not run yet."""

    name: str
    state: State
    found: str
    try_this: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print every check; exit code 1 if any failed."""
    checks = list(examine(settings))
    if arguments.json:
        print(json.dumps({"checks": [asdict(check) for check in checks]}))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{MARKS[check.state]}  {check.name:<{width}}  {check.found}")
            if check.try_this:
                print(f"      {'':<{width}}  try: {check.try_this}")
    return 1 if any(check.state == "failed" for check in checks) else 0


def examine(settings: Settings) -> Iterator[Check]:
    """Look at the machine first, then at what runs on it."""
    looks: tuple[tuple[str, Callable[[Settings], Check]], ...] = (
        ("java", _java),
        ("kafka", _kafka),
        ("data directory", _data_dir),
        ("clock", _clock),
        ("broker", _broker),
        ("key door", _key_door),
        ("api", _api),
    )
    for name, look in looks:
        try:
            yield look(settings)
        except EbbtideError as error:
            yield Check(name, "failed", error.happened, error.try_this)


def _java(settings: Settings) -> Check:
    if settings.bootstrap_servers:
        return Check("java", "ok", "not needed: another Kafka cluster is used")
    java, problem = find_java(settings, ThisMachine())
    if java is None:
        return Check("java", "warning", problem, "apt install openjdk-17-jre-headless, or install Docker")
    return Check("java", "ok", java)


def _kafka(settings: Settings) -> Check:
    if settings.bootstrap_servers:
        return Check("kafka", "ok", f"another cluster: {settings.bootstrap_servers}")
    runtime = find_runtime(settings, fetch=False)
    found = {"maven": "not fetched yet; the first `ebbtide up` lets Maven fetch it"}.get(runtime.origin, runtime.origin)
    return Check("kafka", "ok", found)


def _data_dir(settings: Settings) -> Check:
    name, there = "data directory", settings.data_dir
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(name, "failed", f"{there} cannot be written", "choose another --data-dir")
    if (problem := socket_problem(settings.socket_path)) is not None:
        return Check(name, "failed", problem, "set EBBTIDE_KEYDOOR_SOCKET to a short path")
    free = shutil.disk_usage(there).free
    if free < LOW_DISK_BYTES:
        return Check(name, "warning", f"only {free >> 20} MB are free on {there}", "make room")
    return Check(name, "ok", f"{settings.data_dir}, {free >> 30} GB free")


def _clock(settings: Settings) -> Check:
    now_s = time.time()
    if now_s < OLDEST_NOW_S:
        return Check("clock", "failed", "this machine's clock is years behind", "set it, and keep it with NTP")
    if answers(settings.host, settings.port):
        with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
            there_s = parsedate_to_datetime(httpx.get(settings.api_url, timeout=ASK_S).headers["date"]).timestamp()
            if abs(there_s - now_s) > CLOCK_S:
                return Check(
                    "clock", "warning", f"{abs(there_s - now_s):.0f} s apart from the API's", "use NTP on both"
                )
    return Check("clock", "ok", "plausible")


def _broker(settings: Settings) -> Check:
    host, port = settings.host, settings.broker_port
    if not settings.bootstrap_servers and not answers(host, port):
        if is_free(host, port + 1):
            return Check("broker", "off", f"does not run; port {port} is free")
        return Check("broker", "failed", f"port {port + 1} is taken by another program", "set EBBTIDE_BROKER_PORT")
    found = list_topics(AdminClient(client_config(settings)), settings, timeout_s=ASK_S)
    mine = sum(name.startswith(settings.topic("ebbtide.")) for name in found.topics)
    return Check("broker", "ok", f"{settings.brokers} answers: {len(found.brokers)} broker(s), {mine} topics")


def _key_door(settings: Settings) -> Check:
    if not settings.socket_path.exists():
        return Check("key door", "off", "does not run")
    with contextlib.closing(RemoteKeyDoor(settings.socket_path, settings.token())) as door:
        return Check("key door", "ok", f"answers; {len(door.tenants())} tenant(s)")


def _api(settings: Settings) -> Check:
    if not answers(settings.host, settings.port):
        return Check("api", "off", f"does not run; port {settings.port} is free")
    try:
        httpx.get(settings.api_url, timeout=ASK_S)
    except httpx.HTTPError:
        return Check("api", "failed", f"what listens on port {settings.port} is no HTTP server", "set EBBTIDE_PORT")
    return Check("api", "ok", f"{settings.api_url} answers")


command = Command("Check what this machine has and lacks, and say what to do about it.", configure, run)
