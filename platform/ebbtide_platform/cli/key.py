"""``ebbtide key create|list|revoke``: API keys of a tenant."""

from __future__ import annotations

import argparse
import json
from typing import get_args

from ebbtide_platform.cli.command import Command
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import Scope
from ebbtide_platform.settings import Settings

TENANT_SCOPES: tuple[Scope, ...] = ("ingest", "read", "govern")
"""What a tenant's own key may do by default: all but administer the platform."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="a new key, shown once")
    create.add_argument("tenant")
    create.add_argument("--name", default="default", help="what it is for")
    create.add_argument(
        "--scope", action="append", choices=get_args(Scope), help="may be repeated (default: ingest, read, govern)"
    )
    listing = actions.add_parser("list", help="the keys of a tenant, without their secrets")
    listing.add_argument("tenant")
    revoke = actions.add_parser("revoke", help="end a key everywhere within two seconds")
    revoke.add_argument("tenant")
    revoke.add_argument("key", help="id of the key, as `list` shows it")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Create, list or revoke keys.

    Raises:
        NotFound: there is no such tenant or key.
        Misconfigured: no platform runs on this data directory.
        Unavailable: the key door does not answer.
    """
    door = RemoteKeyDoor(settings.socket_path, settings.token())
    try:
        if arguments.action == "create":
            key = door.create_api_key(arguments.tenant, arguments.name, arguments.scope or TENANT_SCOPES)
            print(
                json.dumps({"tenant": arguments.tenant, "name": arguments.name, "key": key}) if arguments.json else key
            )
        elif arguments.action == "list":
            _show(door.api_keys(arguments.tenant), as_json=arguments.json)
        else:
            door.revoke_api_key(arguments.tenant, arguments.key)
            print(json.dumps({"revoked": arguments.key}) if arguments.json else f"key {arguments.key} revoked")
    finally:
        door.close()
    return 0


def _show(keys: list[tuple[str, str, list[Scope], bool]], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"id": key, "name": name, "scopes": sorted(scopes), "revoked": gone} for key, name, scopes, gone in keys
        ]
        print(json.dumps({"keys": rows}))
        return
    for key, name, scopes, gone in keys:
        print(f"{key}  {name:<16}  {','.join(sorted(scopes)):<24}  {'revoked' if gone else 'in force'}")


command = Command("Create, list and revoke the API keys of a tenant.", configure, run)
