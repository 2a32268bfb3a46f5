"""Composes the doors into one application, and gives every refusal the same form."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ebbtide_platform.doors.acts import ActDoor, ReceiptSigner, acts_router
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.bodies import Budget
from ebbtide_platform.doors.curated import CuratedDoor, CuratedIndex, Follow, curated_router
from ebbtide_platform.doors.events import EventDoor, events_router
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.errors import EbbtideError, InvalidInput, Overloaded, Unauthenticated, Unavailable
from ebbtide_platform.ports import KeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings

log = logging.getLogger("ebbtide.doors")

UNAVAILABLE_RETRY_S = 1
_CODES = {404: "not_found", 405: "method_not_allowed"}


def clock_ms() -> int:
    """Receipt time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Doors:
    """What the doors are made of; whoever composes them closes ``outbox`` and the key door afterwards."""

    settings: Settings
    door: KeyDoor
    authenticator: Authenticator
    sealer: Sealer
    outbox: Outbox
    follow: Follow
    """Opens a reader of a curated topic."""
    index: CuratedIndex
    """The read model."""
    now_ms: Callable[[], int] = clock_ms


def create_app(doors: Doors, routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The application: events, curated samples and acts, with further ``routers`` beside them.

    Raises:
        Misconfigured: the receipt key cannot be read.
    """
    signer = ReceiptSigner(doors.settings.data_dir / "keys" / "receipt.ed25519")
    budget = Budget()
    events = EventDoor(doors.door, doors.sealer, doors.outbox, doors.now_ms)
    acts = ActDoor(doors.door, doors.outbox, signer, doors.now_ms)
    curated = CuratedDoor(doors.follow, doors.sealer, doors.index)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        curated.close()

    # No interactive pages: they would load scripts from elsewhere.
    app = FastAPI(title="Ebbtide", lifespan=lifespan, openapi_url="/v1/openapi.json", docs_url=None, redoc_url=None)
    app.include_router(events_router(events, doors.outbox, budget, doors.authenticator))
    app.include_router(curated_router(curated, doors.authenticator))
    app.include_router(acts_router(acts, budget, doors.authenticator))
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(EbbtideError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_middleware(_LastResort)
    return app


# --- refusals --------------------------------------------------------------------------------------------------


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, EbbtideError)
    headers = {}
    if isinstance(error, Overloaded):
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, Unavailable):
        headers["retry-after"] = str(UNAVAILABLE_RETRY_S)
    elif isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    field, rule = (error.field, error.rule) if isinstance(error, InvalidInput) else (None, error.happened)
    return _refusal(error.http_status, error.code, rule, field, error.try_this, headers)


async def _refuse_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return _refusal(422, "invalid", str(first["msg"]), str(first["loc"][-1]))


async def _refuse_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, _CODES.get(error.status_code, "error"), "there is no such route here")


def _refusal(
    status: int, code: str, rule: str, field: str | None = None, hint: str = "", headers: dict[str, str] | None = None
) -> Response:
    body = {"error": {"code": code, "field": field, "rule": rule, "try": hint or None}}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


class _LastResort:
    """Answers 500 to what nobody foresaw, and logs its place alone: a message or a traceback may repeat input."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception as error:
            log.error("unforeseen %s at %s", type(error).__name__, _place(error))
            if scope["type"] == "http" and not started:
                await _refusal(500, "error", "this is a fault of the server", hint="see its log")(scope, receive, send)


def _place(error: BaseException) -> str:
    """File and line where the error came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"
