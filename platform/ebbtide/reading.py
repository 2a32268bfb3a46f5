"""Reads curated samples page by page over HTTP, resumable at every record; finds other ways to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol, cast

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


class Page(Protocol):
    """A piece of what stands between two cursors; ``lines`` are JSON, ``cursor`` is where the next piece begins."""

    @property
    def lines(self) -> Sequence[bytes]: ...
    @property
    def cursor(self) -> str: ...
    @property
    def at_end(self) -> bool: ...


Fetch = Callable[[str, str, float], Page]
"""From a cursor (empty: the beginning) up to another (empty: now), waiting so many seconds for something new."""


def read_pages(fetch: Fetch, *, until: str, cursor: str | None, withdrawals: bool) -> Iterator[Curated]:
    """Yield what stands between ``cursor`` and ``until``; with an empty ``until`` go on for ever."""
    at = cursor or ""
    while True:
        page = fetch(at, until, 0 if until else FOLLOW_WAIT_S)
        for line in page.lines:
            record = _decoder.decode(line)
            if isinstance(record, Sample) or withdrawals:
                yield record
        at = page.cursor
        if until and page.at_end:
            return


class _Answer(NamedTuple):
    """A page as HTTP brings it."""

    lines: Sequence[bytes]
    cursor: str
    at_end: bool


def read_curated(get: Get, tenant: str, *, follow: bool, cursor: str | None, withdrawals: bool) -> Iterator[Curated]:
    """Yield what stands between ``cursor`` and now; with ``follow`` go on for ever.

    Raises:
        ServerUnreachable, RequestRefused: from the first page or, when following, from any later one.
    """

    def fetch(at: str, until: str, wait_s: float) -> Page:
        asked = {"cursor": at, "until": until, "wait_s": str(wait_s) if wait_s else ""}
        given = {name: value for name, value in asked.items() if value}
        answer = get("/v1/curated", {"tenant": tenant, "limit": str(PAGE)} | given)
        headers = answer.headers
        return _Answer(answer.content.splitlines(), headers["x-ebbtide-cursor"], headers["x-ebbtide-at-end"] == "true")

    cut = "" if follow else get("/v1/curated/cut", {"tenant": tenant}).headers["x-ebbtide-cursor"]
    yield from read_pages(fetch, until=cut, cursor=cursor, withdrawals=withdrawals)
