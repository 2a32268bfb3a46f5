"""``POST /v1/events`` and ``POST /v1/rewards``: each event of a batch is taken or refused by itself.

A 2xx means that what was taken is in the outbox, on disk. The answer names every event by its position; it
repeats the producer's own id to the producer, and nothing else of what was sent.
"""

# No postponed annotations here: FastAPI reads those of its routes, and could not see the names around them.
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from ebbtide_platform.doors.auth import Authenticator, check_tenant_named
from ebbtide_platform.doors.bodies import Budget, read_body
from ebbtide_platform.doors.intake import (
    Draft,
    Names,
    People,
    Piece,
    draft_reward,
    draft_step,
    identities,
    outline_step,
)
from ebbtide_platform.doors.outbox import Entry, Outbox
from ebbtide_platform.errors import Conflict, EbbtideError, Forbidden, InvalidInput, TooLarge, Unsupported
from ebbtide_platform.ports import Erased, KeyDoor, Principal
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.events import Reward, Step
from ebbtide_schemas.validation import EventError, Parsed, parse_batch

ASKED_AT_ONCE = 2000
"""Identities or keys in one question to the key door: far below what one of its frames holds."""

ItemT = TypeVar("ItemT")
DoneT = TypeVar("DoneT")


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the event at position ``index``; ``id`` is its producer's, ``event`` the log's."""

    index: int
    status: Literal["accepted", "duplicate", "error"]
    id: str | None = None
    event: str | None = None
    code: str | None = None
    field: str | None = None
    rule: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a batch; ``accepted`` counts what was new."""

    accepted: int
    results: list[Result]


@dataclass(frozen=True)
class _Refusal:
    """Why one event is not taken."""

    status: int
    code: str
    field: str
    rule: str


@dataclass(frozen=True)
class _Outlined:
    """An event whose keys are known by name."""

    parsed: Parsed
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class _Known:
    """An event that was accepted before."""

    event: str


class EventDoor:
    """Takes batches of events into the outbox. Blocks: call it in a thread."""

    def __init__(self, door: KeyDoor, sealer: Sealer, outbox: Outbox, now_ms: Callable[[], int]) -> None:
        self._door = door
        self._sealer = sealer
        self._outbox = outbox
        self._now_ms = now_ms

    def take(
        self, principal: Principal, body: bytes, content_type: str, *, only: type[Reward] | None = None
    ) -> tuple[int, Answer]:
        """(HTTP status, answer) of a body; ``only`` refuses events of another type.

        Raises:
            InvalidInput: the whole body is refused.
            Overloaded: the outbox has no room; nothing was taken.
            Unavailable: the key door or the disk does not answer; nothing was taken.
        """
        try:
            parsed = parse_batch(body, content_type)
        except EventError as error:
            raise _input_error(error) from None
        checked = _each(parsed, lambda item: _check(item, principal, only))
        names = Names(principal.tenant, self._door.identity_key(principal.tenant), self._now_ms())
        people = self._people(checked, names.tenant)
        outlined = _each(checked, lambda item: _outline(item, names, people))
        self._warm(outlined)
        drafts = _each(outlined, lambda item: self._draft(item, names, people))
        known = self._outbox.known([draft.event for draft in drafts if isinstance(draft, Draft)])
        entries = _each(drafts, lambda draft: _entry(draft, known))
        return _answer(parsed, self._append(entries))

    def _people(self, items: Sequence[Parsed | _Refusal], tenant: str) -> People:
        """The reference of everybody a batch names, made at first sight."""
        steps = [item.event for item in items if isinstance(item, Parsed) and isinstance(item.event, Step)]
        named = sorted(set().union(*map(identities, steps)))
        people: dict[str, str | Erased] = {}
        for start in range(0, len(named), ASKED_AT_ONCE):
            some = named[start : start + ASKED_AT_ONCE]
            people |= zip(some, self._door.subject_refs(tenant, some), strict=True)
        return people

    def _warm(self, items: Sequence[_Outlined | _Refusal]) -> None:
        """Ask for the keys of all items at once: a hundred first steps must not be a hundred questions."""
        outlined = [item for item in items if isinstance(item, _Outlined)]
        scopes = list(dict.fromkeys(piece.scope for item in outlined for piece in item.pieces))
        for start in range(0, len(scopes), ASKED_AT_ONCE):
            self._sealer.warm(scopes[start : start + ASKED_AT_ONCE])

    def _draft(self, item: _Outlined, names: Names, people: People) -> Draft:
        event = item.parsed.event
        if isinstance(event, Reward):
            return draft_reward(event, names, self._sealer)
        return draft_step(event, item.parsed.flags, item.pieces, names, people, self._sealer)

    def _append(self, items: Sequence[Entry | _Known | _Refusal]) -> list[Entry | _Known | _Refusal]:
        """The same with what the outbox made of each entry: new, known already, or in conflict."""
        entries = [item for item in items if isinstance(item, Entry)]
        outcomes = iter(self._outbox.append(entries) if entries else ())

        settled: list[Entry | _Known | _Refusal] = []
        for item in items:
            outcome = next(outcomes) if isinstance(item, Entry) else "accepted"
            if outcome == "conflict":
                settled.append(_refusal(_conflict()))
            else:
                settled.append(_Known(item.event) if isinstance(item, Entry) and outcome == "duplicate" else item)
        return settled


def events_router(events: EventDoor, outbox: Outbox, budget: Budget, authenticator: Authenticator) -> APIRouter:
    """The routes that take events, for keys with the scope ``ingest``."""
    router = APIRouter(prefix="/v1", tags=["events"])
    ingesting = Annotated[Principal, Depends(authenticator.require("ingest"))]

    async def take(request: Request, principal: Principal, only: type[Reward] | None = None) -> Response:
        outbox.check_room()
        with budget.share() as share:
            body = await read_body(request, share)
            content_type = request.headers.get("content-type", "")
            status, answer = await run_in_threadpool(events.take, principal, body, content_type, only=only)
        return Response(msgspec.json.encode(answer), status, media_type="application/json")

    @router.post("/events", status_code=202)
    async def post_events(request: Request, principal: ingesting) -> Response:
        """Take ATDP/1 events: a JSON object, a JSON array or NDJSON, plain or gzip."""
        return await take(request, principal)

    @router.post("/rewards", status_code=202)
    async def post_rewards(request: Request, principal: ingesting) -> Response:
        """Take ATDP/1 rewards, in the same forms."""
        return await take(request, principal, only=Reward)

    return router


# --- item by item ----------------------------------------------------------------------------------------------


def _each(items: Sequence[ItemT | _Refusal | EventError], act: Callable[[ItemT], DoneT]) -> list[DoneT | _Refusal]:
    """``act`` on each item that is not refused yet; what it raises about the item refuses that item alone."""
    done: list[DoneT | _Refusal] = []
    for item in items:
        try:
            if isinstance(item, EventError):
                raise _input_error(item)
            done.append(item if isinstance(item, _Refusal) else act(item))
        except (InvalidInput, Forbidden) as error:
            done.append(_refusal(error))
    return done


def _check(item: Parsed, principal: Principal, only: type[Reward] | None) -> Parsed:
    if only is not None and not isinstance(item.event, only):
        raise InvalidInput("type", "must be reward")
    if isinstance(item.event, Step):
        check_tenant_named(principal, item.event.meta.tenant)
    return item


def _outline(item: Parsed, names: Names, people: People) -> _Outlined:
    return _Outlined(item, outline_step(item.event, names, people) if isinstance(item.event, Step) else ())


def _entry(draft: Draft, known: dict[str, str]) -> Entry | _Known:
    if draft.event not in known:
        return Entry(draft.event, draft.digest, draft.seal())
    if known[draft.event] != draft.digest:
        raise _conflict()
    return _Known(draft.event)


def _conflict() -> Conflict:
    return Conflict("id", "came before with another content; the first one stands")


def _refusal(error: EbbtideError) -> _Refusal:
    if isinstance(error, InvalidInput):
        return _Refusal(error.http_status, error.code, error.field, error.rule)
    return _Refusal(error.http_status, error.code, "meta.tenant", error.happened)


def _input_error(error: EventError) -> InvalidInput:
    if error.code == "too_large":
        return TooLarge(error.field, error.rule)
    return (Unsupported if error.field == "content-type" else InvalidInput)(error.field, error.rule)


# --- the answer --------------------------------------------------------------------------------------------------


def _answer(parsed: Sequence[Parsed | EventError], settled: Sequence[Entry | _Known | _Refusal]) -> tuple[int, Answer]:
    """202 if all was taken, 207 if some was, else the highest status of the refusals."""
    results = [_result(index, *pair) for index, pair in enumerate(zip(parsed, settled, strict=True))]
    refused = [item.status for item in settled if isinstance(item, _Refusal)]
    status = 202 if not refused else max(refused) if len(refused) == len(settled) else 207
    return status, Answer(accepted=sum(isinstance(item, Entry) for item in settled), results=results)


def _result(index: int, parsed: Parsed | EventError, item: Entry | _Known | _Refusal) -> Result:
    name = parsed.event.id if isinstance(parsed, Parsed) else None
    if isinstance(item, _Refusal):
        return Result(index=index, id=name, status="error", code=item.code, field=item.field, rule=item.rule)
    return Result(index=index, id=name, status="accepted" if isinstance(item, Entry) else "duplicate", event=item.event)
