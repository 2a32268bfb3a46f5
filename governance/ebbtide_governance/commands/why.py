"""``ebbtide why ID``: every decision on a trajectory with its reasons, and what would change it."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from ebbtide_governance.commands.console import clock, joined, label, listed, say, say_json
from ebbtide_governance.tables.views import DecisionView, TrajectoryView
from ebbtide_governance.web.asking import add_reach_options, ask, opened, reach
from ebbtide_platform.cli.command import Command
from ebbtide_platform.errors import NotFound
from ebbtide_platform.settings import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "id", metavar="ID", help="a trajectory or a step, by Ebbtide's id or, with an API key, by your own"
    )
    add_reach_options(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print why the trajectory stands where it stands."""
    with reach(arguments, settings) as api:
        if api is None:
            view = _local(arguments.id, settings)
        else:
            path = f"/v1/trajectories/{quote(arguments.id, safe='')}"
            view = ask(api, path, TrajectoryView, missing="this tenant has no such trajectory")
    if arguments.json:
        say_json(view)
    else:
        for line in render(view):
            say(line)
    return 0


command = Command(
    help="every decision on a trajectory, with reasons and what would change it", configure=configure, run=run
)


def render(view: TrajectoryView) -> list[str]:
    """The answer in lines for a person."""
    lines = [
        f"trajectory {view.trajectory} of {view.tenant}: {view.state.upper()}",
        label("agent", f"{view.agent or '-'}, purpose {view.purpose or 'none given'}"),
        label("received", f"{clock(view.first_received_ms)} to {clock(view.last_received_ms)} UTC"),
        label("content", f"{view.steps} steps, {view.segments} segments, findings: {listed(view.findings)}"),
    ]
    if view.revision is not None:
        holes = f", {view.holes} erased segments" if view.holes else ""
        lines.append(label("revision", f"{view.revision}, level {view.level}, ended: {view.end}{holes}"))
    if view.group:
        lines.append(label("group", view.group))
    rewards = (
        f"{reward.name}={reward.value:g} ({reward.source})" for reward in view.rewards if reward.value is not None
    )
    lines.append(label("rewards", joined(rewards)))
    for sample in view.samples:
        state = "live" if sample.live else f"withdrawn: {joined(sample.reasons)}"
        lines.append(label("sample", f"{sample.sample} revision {sample.revision}, {state}"))
    for failure in view.quarantine:
        back = f", produced again {clock(failure.replayed_ms)}" if failure.replayed_ms else ""
        lines.append(label("quarantine", f"{clock(failure.quarantined_ms)}  {failure.stage}: {failure.reason}{back}"))
    for decision in view.decisions:
        lines += ["", *_decision(decision)]
    return [*lines, "", f"what would change it: {view.next}"]


def _decision(decision: DecisionView) -> list[str]:
    head = f"revision {decision.revision}: {decision.verdict}, by policy {decision.policy}"
    lines = [f"{clock(decision.decided_ms)}  {head} (facts up to {decision.facts_offset})"]
    for reason in decision.reasons:
        lines += [f"    {reason.code}: {reason.text}", f"        {reason.remedy}"]
    return lines


def _local(given: str, settings: Settings) -> TrajectoryView:
    with opened(settings) as model:
        tenant = model.tenant_of(given)
        view = model.why(tenant, given) if tenant else None
    if view is None:
        raise NotFound(
            "no trajectory of this machine has that id",
            try_this="pass Ebbtide's id; your own ids need the tenant's API key (--tenant NAME or EBBTIDE_API_KEY)",
        )
    return view
