"""``GET /v1/curated``: a tenant's samples and withdrawals as NDJSON, from a cursor to a cut or as they come.

A sample is left out if a later record about it is known; every withdrawal is told. A cursor is a position
behind every record, so that a consumer resumes wherever it stopped.
"""

# No postponed annotations here: FastAPI reads those of its routes, and could not see the names around them.
import base64
import binascii
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol, cast

import anyio
import anyio.to_thread
import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from ebbtide_platform.codec import decode_any
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.samples import read_segment, sample_of, sealed_segments, withdrawal_of
from ebbtide_platform.errors import Corrupt, InvalidInput, Poison
from ebbtide_platform.ports import InRecord, KeyScope, Principal
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import Topic, curated
from ebbtide_schemas.records import CuratedRecord, GroupState, WithdrawalRecord
from ebbtide_schemas.samples import Curated, SampleGroup

log = logging.getLogger("ebbtide.curated")

PAGE_RECORDS, MAX_PAGE_RECORDS = 100, 1000
PAGE_BYTES = 8 * 1024 * 1024
"""A page ends with the record that passes this."""
READ_AT_ONCE = 50
PAGE_S = 10.0
"""A page that the log does not fill by then goes out as it is."""
MAX_WAIT_S = 30.0
"""Below what proxies and clients allow a silent request."""
POLL_S = 0.25
READERS = 32
"""Requests that read at once; others wait their turn. A thread each, and none of those that take events."""
IDLE_READERS = 4
"""Kept where they stopped, for the next page; each holds a connection and up to 16 MB."""
MAX_CURSOR_CHARACTERS = 4096
_CURSOR_VERSION = 1

Position = tuple[str, int]
Offsets = dict[int, int]
"""Next offset by partition."""


class Reader(Protocol):
    """What is asked of a follower of the log."""

    def poll(self, timeout_s: float, limit: int) -> list[InRecord]: ...
    def positions(self) -> dict[Position, int]: ...
    def end_offsets(self) -> dict[Position, int]: ...
    def close(self) -> None: ...


Follow = Callable[[Sequence[Topic], Mapping[Position, int]], Reader]
"""Opens a reader (read_committed) at the given positions, elsewhere at the beginning."""


class CuratedIndex(Protocol):
    """What is asked of the read model; it may lag behind the log."""

    def newest_offsets(self, tenant: str, samples: Sequence[str]) -> dict[str, int]:
        """The offset of the last record about each sample in the tenant's topic, as far as is known."""

    def group_state(self, tenant: str, group: str) -> str:
        """``complete``, ``short``, ``expired``, or ``open`` while the group is not closed."""


@dataclass
class Page:
    """What one request answers; ``at_end`` says that there was nothing more up to the cut."""

    cursor: str
    at_end: bool
    lines: list[bytes] = field(default_factory=list)


class CuratedDoor:
    """Reads one tenant's topic at a time. Blocks: call it in a thread."""

    def __init__(self, follow: Follow, sealer: Sealer, index: CuratedIndex) -> None:
        self._follow = follow
        self._sealer = sealer
        self._index = index
        self._lock = threading.Lock()
        self._idle: OrderedDict[tuple[str, str], Reader] = OrderedDict()
        self._closing = False

    def cut(self, tenant: str) -> str:
        """A cursor behind everything that stands there now. Raises `Unavailable`."""
        reader = self._follow([curated(tenant)], {})
        try:
            return encode_cursor(tenant, _offsets(reader.end_offsets()))
        finally:
            reader.close()

    def page(self, tenant: str, cursor: str, until: str, limit: int, wait_s: float) -> Page:
        """Up to ``limit`` records behind ``cursor`` (empty: the beginning) and before ``until`` (empty: now).

        With ``wait_s`` and without ``until`` it waits so long for something new.

        Raises:
            InvalidInput: a cursor is not one that this door gave for this tenant.
            Denied, Unavailable: the key door refuses, or it or the broker does not answer.
        """
        target = decode_cursor(tenant, until, "until") if until else None
        reader = self._take_reader(tenant, cursor)
        try:
            page = self._fill(reader, tenant, target, limit, wait_s)
        except BaseException:
            reader.close()
            raise
        self._keep_reader(tenant, page.cursor, reader)
        return page

    def close(self) -> None:
        """Let go of all readers; whoever waits for something new is answered at once."""
        with self._lock:
            self._closing = True
            idle, self._idle = self._idle, OrderedDict()
        for reader in idle.values():
            reader.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def _fill(self, reader: Reader, tenant: str, target: Offsets | None, limit: int, wait_s: float) -> Page:
        at, size, lines = _offsets(reader.positions()), 0, list[bytes]()
        waiting = wait_s > 0 and target is None
        if target is None and not waiting:
            target = _offsets(reader.end_offsets())
        deadline = time.monotonic() + (min(wait_s, MAX_WAIT_S) if waiting else PAGE_S)
        at_end = False
        while len(lines) < limit and size < PAGE_BYTES:
            at_end = target is not None and _reached(at, target)
            left_s = deadline - time.monotonic()
            if at_end or left_s <= 0 or self._closing:
                break
            wanted = min(limit - len(lines), READ_AT_ONCE)
            records = reader.poll(0.0 if waiting and lines else min(POLL_S, left_s), wanted)
            if waiting and lines and not records:
                break
            inside = [record for record in records if target is None or record.offset < target.get(record.partition, 0)]
            for record, item in self._shown(inside, tenant):
                at[record.partition] = record.offset + 1
                if item is not None:
                    placed = msgspec.structs.replace(item, cursor=encode_cursor(tenant, at))
                    lines.append(msgspec.json.encode(placed))
                    size += len(lines[-1])
            for partition, offset in _offsets(reader.positions()).items():
                # Behind the last record there may be markers of transactions, which no record shows.
                end = offset if target is None else max(min(offset, target.get(partition, 0)), at.get(partition, 0))
                at[partition] = end
        return Page(encode_cursor(tenant, at), at_end, lines)

    def _shown(self, records: Sequence[InRecord], tenant: str) -> list[tuple[InRecord, Curated | None]]:
        """Each record with what is shown of it: None if it is superseded or cannot be read."""
        read = [(record, _read(record, tenant)) for record in records]
        samples = [value.sample for _, value in read if isinstance(value, CuratedRecord)]
        newest = dict(self._index.newest_offsets(tenant, samples)) if samples else {}
        for record, value in read:
            if value is not None:
                newest[value.sample] = max(record.offset, newest.get(value.sample, 0))
        read = [
            (record, value if value is not None and newest[value.sample] <= record.offset else _told(value))
            for record, value in read
        ]
        self._warm([value for _, value in read if isinstance(value, CuratedRecord)])
        return [(record, None if value is None else self._show(value)) for record, value in read]

    def _warm(self, records: Sequence[CuratedRecord]) -> None:
        """Ask for the keys of a whole batch at once."""
        chunks = [chunk for record in records for chunk in record.sealed if chunk.tenant == record.tenant]
        scopes = {KeyScope(chunk.tenant, chunk.trajectory, chunk.subjects, chunk.seal_class) for chunk in chunks}
        self._sealer.warm([scope for scope in scopes if scope.seal_class == "redacted"], create=False)

    def _show(self, record: CuratedRecord | WithdrawalRecord) -> Curated | None:
        if isinstance(record, WithdrawalRecord):
            return withdrawal_of(record)
        try:
            sealed = sealed_segments(record)
            plain = self._sealer.open_many(list(sealed.values()))
            opened = {name: read_segment(text) for name, text in zip(sealed, plain, strict=True)}
        except Corrupt as error:
            # One damaged sample must not stop a consumer for ever.
            log.error("sample %s is left out: %s", record.sample, error.happened)
            return None
        return sample_of(record, opened, self._group(record))

    def _group(self, record: CuratedRecord) -> SampleGroup | None:
        group = record.settled.group
        if group is None:
            return None
        state = cast(GroupState, self._index.group_state(record.tenant, group.id))
        return SampleGroup(id=group.id, size=group.size, index=group.index, task=group.task, state=state)

    # --- readers ------------------------------------------------------------------------------------------------

    def _take_reader(self, tenant: str, cursor: str) -> Reader:
        """The reader that stopped at this cursor, or a new one."""
        with self._lock:
            idle = self._idle.pop((tenant, cursor), None)
        if idle is not None:
            return idle
        topic = curated(tenant)
        start = decode_cursor(tenant, cursor, "cursor") if cursor else {}
        reader = self._follow([topic], {(topic.name, partition): offset for partition, offset in start.items()})
        ends = _offsets(reader.end_offsets())
        if any(offset > ends.get(partition, 0) for partition, offset in start.items()):
            reader.close()
            raise InvalidInput("cursor", "lies behind the end of the log", try_this="begin again without a cursor")
        return reader

    def _keep_reader(self, tenant: str, cursor: str, reader: Reader) -> None:
        # A reader that read past the cut does not stand at its cursor.
        keep = encode_cursor(tenant, _offsets(reader.positions())) == cursor
        with self._lock:
            dropped = [self._idle.pop((tenant, cursor), None)]
            if keep and not self._closing:
                self._idle[tenant, cursor] = reader
            else:
                dropped.append(reader)
            while len(self._idle) > IDLE_READERS:
                dropped.append(self._idle.popitem(last=False)[1])
        for old in dropped:
            if old is not None:
                old.close()


def curated_router(door: CuratedDoor, authenticator: Authenticator) -> APIRouter:
    """The routes that read curated samples, for keys with the scope ``read``."""
    router = APIRouter(prefix="/v1", tags=["curated"])
    reading = Annotated[Principal, Depends(authenticator.require("read"))]
    threads = anyio.CapacityLimiter(READERS)

    @router.get("/curated")
    async def get_curated(
        request: Request,
        principal: reading,
        cursor: Annotated[str, Query(max_length=MAX_CURSOR_CHARACTERS)] = "",
        until: Annotated[str, Query(max_length=MAX_CURSOR_CHARACTERS)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE_RECORDS)] = PAGE_RECORDS,
        wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
    ) -> Response:
        """NDJSON of samples and withdrawals; the header x-ebbtide-cursor says where to go on."""

        def read() -> Page:
            page = door.page(principal.tenant, cursor, until, limit, wait_s)
            # A key that was revoked while this request waited reads nothing any more.
            authenticator.principal(request, "read")
            return page

        page = await anyio.to_thread.run_sync(read, limiter=threads)
        headers = {"x-ebbtide-cursor": page.cursor, "x-ebbtide-at-end": str(page.at_end).lower()}
        body = b"".join(line + b"\n" for line in page.lines)
        return Response(body, headers=headers, media_type="application/x-ndjson")

    @router.get("/curated/cut")
    async def get_cut(principal: reading) -> Response:
        """The cursor behind everything that stands there now, to read up to."""
        cut = await anyio.to_thread.run_sync(door.cut, principal.tenant, limiter=threads)
        return Response(
            msgspec.json.encode({"cursor": cut}), headers={"x-ebbtide-cursor": cut}, media_type="application/json"
        )

    return router


# --- cursors ---------------------------------------------------------------------------------------------------


def encode_cursor(tenant: str, offsets: Offsets) -> str:
    """Next offsets as one word that travels in a URL."""
    packed = msgspec.msgpack.encode((_CURSOR_VERSION, tenant, sorted(offsets.items())))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_cursor(tenant: str, cursor: str, name: str) -> Offsets:
    """The next offsets in a cursor.

    Raises:
        InvalidInput: it is not one that was made for this tenant; ``name`` is the parameter that holds it.
    """
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        version, owner, offsets = msgspec.msgpack.decode(packed, type=tuple[int, str, list[tuple[int, int]]])
    except (binascii.Error, ValueError):
        version, owner, offsets = 0, "", []
    if version != _CURSOR_VERSION or owner != tenant or any(number < 0 for pair in offsets for number in pair):
        raise InvalidInput(name, "is not a cursor that was given for this tenant")
    return dict(offsets)


def _offsets(positions: Mapping[Position, int]) -> Offsets:
    return {partition: offset for (_, partition), offset in positions.items()}


def _reached(at: Offsets, target: Offsets) -> bool:
    return all(at.get(partition, 0) >= offset for partition, offset in target.items())


def _told(value: CuratedRecord | WithdrawalRecord | None) -> WithdrawalRecord | None:
    """What is told although a later record about the same sample is known."""
    return value if isinstance(value, WithdrawalRecord) else None


def _read(record: InRecord, tenant: str) -> CuratedRecord | WithdrawalRecord | None:
    """The record, or None for what can be no sample of this tenant; it is logged and passed over."""
    try:
        read = decode_any(record.value)
    except Poison as error:
        read, reason = None, error.reason
    else:
        reason = "unexpected_record_type"
        if isinstance(read, CuratedRecord | WithdrawalRecord):
            if read.tenant == tenant:
                return read
            reason = "another_tenants"
    log.error("curated record %s/%d/%d is left out: %s", record.topic, record.partition, record.offset, reason)
    return None
