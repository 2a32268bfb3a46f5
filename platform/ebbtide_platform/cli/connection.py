"""How a command reaches the API: URL and key from options, files or the environment."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from ebbtide.client import Client
from ebbtide.configuration import DEFAULT_URL, Configuration, read_configuration
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.settings import Settings

TIMEOUT_S = 60.0


class Connection:
    """An HTTP client with the key in place."""

    def __init__(self, configuration: Configuration) -> None:
        headers = {"authorization": f"Bearer {configuration.api_key}"} if configuration.api_key else {}
        self.url = configuration.url
        self.http = httpx.Client(base_url=configuration.url, headers=headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that every command of the API has."""
    parser.add_argument("--url", help="where the API answers (default: EBBTIDE_URL, else this machine's)")
    parser.add_argument(
        "--api-key-file", metavar="FILE", type=Path, help="file with the API key (default: EBBTIDE_API_KEY)"
    )
    parser.add_argument(
        "--tenant", metavar="NAME", help="take the key that `ebbtide up --tenant NAME` left under the data directory"
    )


def configuration_of(arguments: argparse.Namespace, settings: Settings) -> Configuration:
    """URL and key that the options, the environment and the data directory give.

    Raises:
        Misconfigured: a key file cannot be read, there is no key at all, or one of the two is none.
    """
    file = arguments.api_key_file
    if file is None and arguments.tenant:
        file = settings.run_dir / f"{arguments.tenant}.key"
    try:
        key = file.read_text(encoding="ascii").strip() if file else None
    except (OSError, UnicodeDecodeError):
        raise Misconfigured("the API key file cannot be read", try_this="ebbtide key create TENANT") from None
    found = read_configuration(arguments.url, key)
    if found.url == DEFAULT_URL:
        found = Configuration(url=settings.api_url, api_key=found.api_key)
    if not found.api_key:
        raise Misconfigured(
            "no API key is set", try_this="set EBBTIDE_API_KEY, or pass --tenant NAME beside a platform of this machine"
        )
    if found.problem is not None:
        raise Misconfigured(found.problem, try_this="check --url, EBBTIDE_URL and where the key comes from")
    return found


def connect(arguments: argparse.Namespace, settings: Settings) -> Connection:
    """A connection to the API; see `configuration_of`."""
    return Connection(configuration_of(arguments, settings))


def connect_client(arguments: argparse.Namespace, settings: Settings) -> Client:
    """The SDK's client with the same configuration."""
    return Client(configuration_of(arguments, settings))
