"""Where the SDK sends to; the one place of the SDK that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

DEFAULT_URL = "http://127.0.0.1:8790"


@dataclass(frozen=True)
class Configuration:
    """One server and one key; the key never prints."""

    url: str = DEFAULT_URL
    api_key: str = field(default="", repr=False)

    @property
    def problem(self) -> str | None:
        """Why nothing can be sent with this, or None; never shows the key."""
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            return "the URL must begin with http:// or https:// and name a host (EBBTIDE_URL)"
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            return "the API key has characters that no key has (EBBTIDE_API_KEY)"
        return None


def read_configuration(
    url: str | None = None, api_key: str | None = None, environ: Mapping[str, str] | None = None
) -> Configuration:
    """What was passed, else ``EBBTIDE_URL`` and ``EBBTIDE_API_KEY``, else the local default."""
    source = os.environ if environ is None else environ
    return Configuration(
        url=(url or source.get("EBBTIDE_URL") or DEFAULT_URL).rstrip("/"),
        api_key=api_key or source.get("EBBTIDE_API_KEY") or "",
    )
