"""Reads curated samples page by page over HTTP, resumable at every record; finds other ways to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Protocol, cast

import httpx
import msgspec

from ebbtide_schemas.samples import Curated, Sample

PAGE = 200
"""Records asked for at once: a few megabytes of samples."""
FOLLOW_WAIT_S = 20
"""How long the server may hold a request open until something new comes."""

Get = Callable[[str, Mapping[str, str]], httpx.Response]
_decoder: msgspec.json.Decoder[Curated] = msgspec.json.Decoder(Curated)


class Transport(Protocol):
    """What an entry point of the group ``ebbtide.transports`` is: a way to read curated samples."""

    def __call__(self, tenant: str, *, follow: bool, cursor: str | None, withdrawals: bool) -> Iterator[Curated]: ...


def find_transport(name: str) -> Transport:
    """The installed transport of this name.

    Raises:
        ValueError: there is none, or what it needs is not installed.
    """
    found = [point for point in entry_points(group="ebbtide.transports") if point.name == name]
    if not found:
        raise ValueError(f"there is no transport {name!r}; use 'http', or 'kafka' with the extra ebbtide[trainer]")
    try:
        return cast(Transport, found[0].load())
    except ImportError as error:
        raise ValueError(f"transport {name!r} needs {error.name}: pip install 'ebbtide[trainer]'") from None


def read_curated(get: Get, tenant: str, *, follow: bool, cursor: str | None, withdrawals: bool) -> Iterator[Curated]:
    """Yield what stands between ``cursor`` and now; with ``follow`` go on for ever.

    Raises:
        ServerUnreachable, RequestRefused: from the first page or, when following, from any later one.
    """
    until = "" if follow else get("/v1/curated/cut", {"tenant": tenant}).headers["x-ebbtide-cursor"]
    while True:
        parameters = {"tenant": tenant, "limit": str(PAGE)}
        parameters |= {"cursor": cursor} if cursor else {}
        parameters |= {"wait_s": str(FOLLOW_WAIT_S)} if follow else {"until": until}
        answer = get("/v1/curated", parameters)
        for line in answer.content.splitlines():
            record = _decoder.decode(line)
            if isinstance(record, Sample) or withdrawals:
                yield record
        cursor = answer.headers["x-ebbtide-cursor"]
        if not follow and answer.headers["x-ebbtide-at-end"] == "true":
            return
