"""Asks the API for one of its views, and turns its refusals into Ebbtide's own errors."""

from __future__ import annotations

from typing import TypeVar

import httpx
import msgspec

from ebbtide_platform.cli.connection import Connection
from ebbtide_platform.errors import EbbtideError, Forbidden, NotFound, Unauthenticated, Unavailable

ViewT = TypeVar("ViewT", bound=msgspec.Struct)

_REFUSALS: dict[int, EbbtideError] = {
    401: Unauthenticated("the API key is unknown or revoked", try_this="ebbtide key create TENANT"),
    403: Forbidden("this API key may not do this", try_this="ask for a key with the scope `read`"),
}


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
        raise Unavailable(f"the API at {connection.url} does not answer", try_this="ebbtide up, then again") from None
    if answer.status_code == 404:
        raise NotFound(missing)
    if answer.status_code in _REFUSALS:
        raise _REFUSALS[answer.status_code]
    try:
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=view)
    except (httpx.HTTPStatusError, msgspec.DecodeError):
        raise Unavailable(f"the API answered {answer.status_code}", try_this="look into the platform's log") from None
