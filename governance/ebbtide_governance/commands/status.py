"""``ebbtide status``: what came in, what became of it, what waits and what went wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from ebbtide_governance.commands.console import clock, duration, joined, label, listed, say, say_json
from ebbtide_governance.commands.lag import Offsets, read_lag
from ebbtide_governance.tables.views import Status
from ebbtide_governance.web.asking import add_reach_options, ask, opened, reach
from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.settings import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_reach_options(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Ask the API where there is a key; without one, read this machine's database as its operator."""
    with reach(arguments, settings) as api:
        status = ask(api, "/v1/status", Status, missing="the API has no status") if api else read_status(settings)
    if arguments.json:
        say_json({**msgspec.to_builtins(status), "balanced": status.account.balanced})
    else:
        for line in render(status):
            say(line)
    return 0


command = Command(help="counts, lag, latency and last errors", configure=configure, run=run)


def read_status(settings: Settings, lag_of: Callable[[Settings, Offsets], dict[str, int]] = read_lag) -> Status:
    """The status of all tenants, from the database and the broker of this deployment; lag is None without a broker.

    Raises:
        Misconfigured: nothing has run here yet.
    """
    with opened(settings) as model:
        try:
            lag: dict[str, int] | None = lag_of(settings, model.positions())
        except (Unavailable, Misconfigured):
            lag = None
        return model.status(None, lag)


def render(status: Status) -> list[str]:
    """The status in lines for a person."""
    account = status.account
    samples = (
        f"{tenant}: {of.live} live, {of.withdrawn} withdrawn" + (f", {of.misplaced} MISPLACED" if of.misplaced else "")
        for tenant, of in status.samples.items()
    )
    lines = [
        f"tenant {status.tenant}" if status.tenant else "all tenants of this machine",
        label("came in", f"{account.trajectories_in} trajectories, {status.steps} steps, {status.segments} segments"),
        label("findings", listed(status.findings)),
        label(
            "trajectories",
            f"{account.eligible} eligible, {account.rejected} rejected, {account.held} held, {account.open} open, "
            f"{account.quarantined} quarantined{'' if account.balanced else '  (DOES NOT BALANCE)'}",
        ),
    ]
    lines += [label("", f"{verdict}: {listed(codes)}") for verdict, codes in status.reasons.items()]
    rewards = status.rewards
    lines += [
        label("rewards", f"{rewards.seen} seen, {rewards.routed} routed, {rewards.parked} wait for their target"),
        label("samples", joined(samples)),
        label("groups", listed(status.groups)),
        label("latency", _latency(status)),
        label("quarantine", listed(status.quarantine)),
    ]
    if status.lag is not None:
        lines.append(label("lag", ", ".join(f"{stage} {behind}" for stage, behind in sorted(status.lag.items()))))
    for failure in status.last_errors:
        where = f"{failure.topic}[{failure.partition}]@{failure.offset}"
        lines.append(
            label("last errors", f"{clock(failure.quarantined_ms)}  {failure.stage}  {failure.reason}  {where}")
        )
    return lines


def _latency(status: Status) -> str:
    latency = status.latency
    if latency is None:
        return "no sample yet"
    whole = f"p50 {duration(latency.p50_ms)}, p95 {duration(latency.p95_ms)}, max {duration(latency.max_ms)}"
    settled = f"p50 {duration(latency.settled_p50_ms)}, p95 {duration(latency.settled_p95_ms)}"
    return f"last step to sample {whole}; settled to sample {settled} ({latency.samples} samples)"
