"""``ebbtide up``: the whole platform in the foreground, on one machine, with one log."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ebbtide_platform import topics
from ebbtide_platform.adapters.kafka import KafkaLogWriter, create_topics
from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.key import TENANT_SCOPES
from ebbtide_platform.cli.tenant import ensure_tenant
from ebbtide_platform.errors import Misconfigured, Unauthenticated
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.local.broker import Broker
from ebbtide_platform.local.ports import answers, is_free, socket_answers, socket_problem
from ebbtide_platform.local.supervisor import Process, Supervisor
from ebbtide_platform.ports import KeyDoor
from ebbtide_platform.settings import Settings

BROKER_GRACE_S = 30.0
"""A clean end lets the broker write its snapshot, so that the next start need not check every segment."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--tenant", action="append", default=[], metavar="NAME", help="make this tenant and a key file; may be repeated"
    )
    parser.add_argument("--reward-window", type=float, metavar="S", help="seconds in which a reward is on time")
    parser.add_argument("--idle", type=float, metavar="S", help="seconds of silence after which a trajectory is over")
    parser.add_argument("--ready-file", type=Path, help="written, as JSON, when everything answers")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run until Ctrl-C or SIGTERM.

    Raises:
        InvalidInput: a tenant's name is not allowed.
        Misconfigured: something of this machine is missing or taken.
        Unavailable: a part did not become ready.
    """
    for tenant in arguments.tenant:
        topics.check_tenant(tenant)
    chosen = {"reward_window_s": arguments.reward_window, "idle_s": arguments.idle}
    settings = replace(settings, **{name: value for name, value in chosen.items() if value is not None})
    if (problem := socket_problem(settings.socket_path)) is not None:
        raise Misconfigured(problem, try_this="set EBBTIDE_KEYDOOR_SOCKET to a short path")
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if arguments.ready_file is not None:
        arguments.ready_file.unlink(missing_ok=True)

    def check() -> None:
        if not is_free(settings.host, settings.port):
            raise Misconfigured(
                f"port {settings.port} of {settings.host}, which the API needs, is taken",
                try_this="end the other program, or set EBBTIDE_PORT",
            )

    def announce() -> None:
        found = _announcement(settings, arguments.tenant)
        print(json.dumps(found) if arguments.json else _greeting(settings, arguments.tenant), flush=True)
        if arguments.ready_file is not None:
            _write_whole(arguments.ready_file, json.dumps(found))

    Supervisor(settings, processes(settings, arguments.tenant), check=check, on_ready=announce).run()
    return 0


def processes(settings: Settings, tenants: Sequence[str]) -> list[Process]:
    """Every part of the platform in the order of its start; the broker only if no cluster was named."""
    parts = []
    if not settings.bootstrap_servers:
        broker = Broker(settings)
        parts.append(
            Process(
                "broker",
                broker.command(),
                prepare=broker.prepare,
                is_ready=broker.is_ready,
                base=True,
                death_signal=broker.death_signal,
                grace_s=BROKER_GRACE_S,
            )
        )
    return [
        *parts,
        Process("keydoor", _command("keydoor"), is_ready=lambda: socket_answers(settings.socket_path), base=True),
        Process(
            "api",
            _command("api"),
            prepare=lambda: _furnish(settings, tenants),
            is_ready=lambda: answers(settings.host, settings.port),
        ),
        *(Process(name, _command(name)) for name in ("processors", "curator", "projector")),
    ]


def _command(name: str) -> tuple[str, ...]:
    # -P keeps the working directory off the path: a checkout's folder `platform` is not the standard library's.
    return (sys.executable, "-P", "-m", "ebbtide_platform.cli.main", "run", name)


def _furnish(settings: Settings, tenants: Sequence[str]) -> None:
    """Topics, tenants and their key files; harmless when repeated."""
    create_topics(settings, topics.SHARED)
    if not tenants:
        return
    door = RemoteKeyDoor(settings.socket_path, settings.token())
    with contextlib.closing(door), KafkaLogWriter(settings) as writer:
        for tenant in tenants:
            ensure_tenant(settings, door, writer, tenant)
            ensure_key_file(door, key_file(settings, tenant), tenant)


def key_file(settings: Settings, tenant: str) -> Path:
    """Where the key of a tenant of this machine is kept."""
    return settings.run_dir / f"{tenant}.key"


def ensure_key_file(door: KeyDoor, path: Path, tenant: str) -> None:
    """A file, readable by its owner alone, with a key of the tenant that is in force; an old one is kept if it is."""
    if path.exists():
        with contextlib.suppress(Unauthenticated):
            if door.authenticate(path.read_text(encoding="ascii").strip()).tenant == tenant:
                return
    _write_whole(path, door.create_api_key(tenant, "up", TENANT_SCOPES))


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees all of it or nothing, and nobody else sees any of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    fresh.replace(path)


def _announcement(settings: Settings, tenants: Sequence[str]) -> dict[str, object]:
    return {
        "api": settings.api_url,
        "brokers": settings.brokers,
        "data_dir": str(settings.data_dir),
        "pid": os.getpid(),
        "keys": {tenant: str(key_file(settings, tenant)) for tenant in tenants},
    }


def _greeting(settings: Settings, tenants: Sequence[str]) -> str:
    lines = [f"Ebbtide answers at {settings.api_url} (data in {settings.data_dir}; Ctrl-C ends it)"]
    lines += [
        f"  export EBBTIDE_URL={settings.api_url} EBBTIDE_API_KEY=$(cat {key_file(settings, tenant)})  # {tenant}"
        for tenant in tenants
    ]
    return "\n".join(lines if tenants else [*lines, "  next: ebbtide tenant create NAME, ebbtide key create NAME"])


command = Command("Run the whole platform in the foreground until Ctrl-C.", configure, run)
