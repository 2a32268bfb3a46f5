"""The module's functions over one default client, each with its async twin."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from ebbtide.client import EXIT_FLUSH_S, Client
from ebbtide.configuration import read_configuration
from ebbtide.decorator import tool
from ebbtide.session import Session, current
from ebbtide.verification import Receipt, Verification, verify_document
from ebbtide_schemas.events import EndMark
from ebbtide_schemas.samples import Curated


class _Default:
    """The client that the module's functions share; made at first use, and anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None
        os.register_at_fork(after_in_child=self._forget)

    def get(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = Client(read_configuration())
            return self._client

    def set(self, client: Client) -> None:
        with self._lock:
            old, self._client = self._client, client
        if old is not None:
            old.close()

    def _forget(self) -> None:
        # The parent's thread and connections do not exist here; its queue is the parent's to send.
        self._lock = threading.Lock()
        self._client = None


_default = _Default()


def configure(url: str | None = None, api_key: str | None = None) -> None:
    """Use this server and key instead of ``EBBTIDE_URL`` and ``EBBTIDE_API_KEY``."""
    _default.set(Client(read_configuration(url, api_key)))


def session(*, agent: str, subject: str | None = None, purpose: str | None = "training", **more: Any) -> Session:
    """See `Client.session`."""
    return _default.get().session(agent=agent, subject=subject, purpose=purpose, **more)


def reward(answer_id: str | None, value: float, name: str = "reward", **more: Any) -> str:
    """See `Client.reward`."""
    return _default.get().reward(answer_id, value, name, **more)


def curated(tenant: str, *, follow: bool = False, cursor: str | None = None, **more: Any) -> Iterator[Curated]:
    """See `Client.curated`."""
    return _default.get().curated(tenant, follow=follow, cursor=cursor, **more)


def consent(subject: str, state: Literal["given", "withdrawn"], *, purpose: str | None = None) -> None:
    """See `Client.consent`."""
    _default.get().consent(subject, state, purpose=purpose)


def forget(subject: str) -> Receipt:
    """See `Client.forget`."""
    return _default.get().forget(subject)


def verify(document: Receipt | Mapping[str, Any] | bytes | str | Path, public_key: str | None = None) -> Verification:
    """See `ebbtide.verification.verify_document`; needs no server."""
    return verify_document(document, public_key)


def flush(timeout_s: float = EXIT_FLUSH_S) -> bool:
    """Wait until everything recorded so far is answered by the server; False if it took longer."""
    return _default.get().flush(timeout_s)


# --- async twins ------------------------------------------------------------------------------------------------
# Recording never blocks, so its twins only keep a session's last flush off the event loop.

atool = tool


@asynccontextmanager
async def asession(
    *, agent: str, subject: str | None = None, purpose: str | None = "training", **more: Any
) -> AsyncIterator[Session]:
    """`session` for ``async with``."""
    opened = session(agent=agent, subject=subject, purpose=purpose, **more)
    entered = current.set(opened)
    mark: EndMark = "aborted"
    try:
        yield opened
        mark = "terminated"
    finally:
        current.reset(entered)
        await asyncio.to_thread(opened.finish, mark)


async def areward(answer_id: str | None, value: float, name: str = "reward", **more: Any) -> str:
    """`reward` for async code."""
    return reward(answer_id, value, name, **more)


async def acurated(
    tenant: str, *, follow: bool = False, cursor: str | None = None, **more: Any
) -> AsyncIterator[Curated]:
    """`curated` for ``async for``; each page is fetched off the event loop."""
    records = curated(tenant, follow=follow, cursor=cursor, **more)
    while (record := await asyncio.to_thread(next, records, None)) is not None:
        yield record


async def aforget(subject: str) -> Receipt:
    """`forget` for async code."""
    return await asyncio.to_thread(forget, subject)


async def averify(
    document: Receipt | Mapping[str, Any] | bytes | str | Path, public_key: str | None = None
) -> Verification:
    """`verify` for async code."""
    return await asyncio.to_thread(verify, document, public_key)
