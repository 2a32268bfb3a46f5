"""Reads curated samples page by page over HTTP, resumable at every record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import httpx
import msgspec

from ebbtide_schemas.samples import Curated, Sample

PAGE = 200
"""Records asked for at once: a few megabytes of samples."""
FOLLOW_WAIT_S = 20
"""How long the server may hold a request open until something new comes."""

Get = Callable[[str, Mapping[str, str]], httpx.Response]
_decoder: msgspec.json.Decoder[Curated] = msgspec.json.Decoder(Curated)


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
