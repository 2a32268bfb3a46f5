"""``ebbtide reward ANSWER VALUE``: reward an answer, a response, a trajectory or a correlated id."""

from __future__ import annotations

import argparse

import msgspec

from ebbtide_platform.cli.command import Command
from ebbtide_platform.cli.connection import add_connection_options, connect_client
from ebbtide_platform.errors import EbbtideError, InvalidInput, Unavailable
from ebbtide_platform.settings import Settings

ANSWER_WAIT_S = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("answer", nargs="?", help="id of the answer (what `record` returned)")
    parser.add_argument("value", type=float, help="the reward, a finite number")
    parser.add_argument("--name", default="reward", help="name of the reward (default: reward)")
    parser.add_argument("--response", help="instead of an answer: a provider's response id")
    parser.add_argument("--trajectory", help="instead of an answer: a trajectory")
    parser.add_argument(
        "--correlation", metavar="KIND=VALUE", help="instead of an answer: an outside id, e.g. ticket=T-88"
    )
    parser.add_argument("--source", default="human", choices=("human", "rule", "model", "environment"))
    parser.add_argument("--id", help="id of this reward; the same id again is harmless (default: a new one)")
    parser.add_argument("--supersedes", help="id of the reward that this one corrects")
    add_connection_options(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Send the reward and wait until it is taken."""
    targets = [arguments.answer, arguments.response, arguments.trajectory, arguments.correlation]
    if sum(target is not None for target in targets) != 1:
        raise InvalidInput("target", "name exactly one: an answer id, --response, --trajectory or --correlation")
    client = connect_client(arguments, settings)
    try:
        reward = client.reward(
            arguments.answer,
            arguments.value,
            arguments.name,
            response=arguments.response,
            trajectory=arguments.trajectory,
            correlation=_pair(arguments.correlation),
            source=arguments.source,
            reward_id=arguments.id,
            supersedes=arguments.supersedes,
        )
        answered = client.flush(ANSWER_WAIT_S)
    finally:
        client.close()
    if not answered:
        raise Unavailable("the reward was not taken", try_this="check that the platform runs: ebbtide status")
    if client.counts.refused:
        raise EbbtideError("the reward was refused; the reason stands above")
    print(msgspec.json.encode({"id": reward}).decode() if arguments.json else f"reward {reward} is taken")
    return 0


command = Command(help="reward an answer, a response, a trajectory or a correlated id", configure=configure, run=run)


def _pair(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    kind, equals, value = text.partition("=")
    if not equals or not kind or not value:
        raise InvalidInput("--correlation", "must be KIND=VALUE, e.g. ticket=T-88")
    return kind, value
