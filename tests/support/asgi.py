"""Asks an ASGI application in this process, without a socket and without async in the test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx


class AppClient:
    """An HTTP client of one application; each request is complete when it returns."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> httpx.Response:
        """Send one request and read the whole answer."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                return await client.request(method, path, headers=headers, content=content)

        return asyncio.run(send())

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """GET ``path``."""
        return self.request("GET", path, headers=headers)
