"""How a command reaches the read model: over the API with a key, or in this machine's database as its operator."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec
from sqlalchemy import inspect

from ebbtide_governance.tables.database import connect as connect_database
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_platform.cli.connection import Connection, add_connection_options, connect
from ebbtide_platform.errors import EbbtideError, Forbidden, Misconfigured, NotFound, Unauthenticated, Unavailable
from ebbtide_platform.settings import Settings

ViewT = TypeVar("ViewT", bound=msgspec.Struct)


def add_reach_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command that asks the read model."""
    parser.add_argument(
        "--local", action="store_true", help="read this machine's database as its operator (the default without a key)"
    )
    add_connection_options(parser)


@contextmanager
def reach(arguments: argparse.Namespace, settings: Settings) -> Iterator[Connection | None]:
    """A connection to the API, or None: no key is named, so this machine's database is to be read.

    Raises:
        Misconfigured: a key is named and cannot be read.
    """
    if arguments.local:
        yield None
        return
    try:
        connection = connect(arguments, settings)
    except Misconfigured:
        if arguments.api_key_file or arguments.tenant or arguments.url:
            raise
        yield None
        return
    with connection:
        yield connection


@contextmanager
def opened(settings: Settings) -> Iterator[ReadModel]:
    """This deployment's read model, for its operator.

    Raises:
        Misconfigured: nothing has run here yet.
    """
    engine = connect_database(settings)
    try:
        file = Path(engine.url.database or "") if engine.dialect.name == "sqlite" else None
        if (file is not None and not file.exists()) or not inspect(engine).has_table("positions"):
            raise Misconfigured(
                "there is no read model here and no API key is set",
                try_this="set EBBTIDE_API_KEY, or name a running platform's --data-dir",
            )
        yield ReadModel(engine)
    finally:
        engine.dispose()


def ask(connection: Connection, path: str, view: type[ViewT], *, missing: str) -> ViewT:
    """The view at ``path``.

    Raises:
        NotFound: with ``missing`` as what happened.
        Unauthenticated, Forbidden: the key is not good enough.
        Unavailable: the API does not answer as it should.
    """
    try:
        answer = connection.http.get(path)
    except httpx.HTTPError:
        raise Unavailable(
            f"the API at {connection.url} does not answer", try_this="start it with `ebbtide up`, or pass --url"
        ) from None
    if answer.is_error:
        raise _refusal(answer.status_code, missing)
    try:
        return msgspec.json.decode(answer.content, type=view)
    except msgspec.DecodeError:
        raise Unavailable(
            f"the answer of {connection.url} cannot be read", try_this="is it an Ebbtide API of this version?"
        ) from None


def _refusal(status: int, missing: str) -> EbbtideError:
    match status:
        case 401:
            return Unauthenticated("the API key is unknown or revoked", try_this="ebbtide key create TENANT")
        case 403:
            return Forbidden("this API key may not do this", try_this="ask for a key with the scope `read`")
        case 404:
            return NotFound(missing)
        case _:
            return Unavailable(f"the API answered {status}", try_this="look into the platform's log")
