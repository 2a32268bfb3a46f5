"""Bodies with many events: each is taken or refused by itself, and keeps its position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ebbtide_schemas.validation.event import Parsed, decode_text, parse_text
from ebbtide_schemas.validation.scan import EventError, split_array

MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Largest body, unpacked."""

MAX_BATCH_EVENTS: Final = 1000
"""Events in one body."""

MAX_BATCH_VALUES: Final = 1_000_000
"""Brackets, commas and keys of a whole body: they are looked at one by one before it is cut into events."""

_LINES: Final = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
_JSON: Final = frozenset({"application/json", ""})


def parse_batch(body: bytes, content_type: str) -> list[Parsed | EventError]:
    """One result per event, in order: NDJSON lines, the items of a JSON array, or a single JSON object.

    Blank lines of NDJSON are no events. An `EventError` in the list refuses that item only.

    Raises:
        EventError: the whole body is refused: too large, of another content type, empty, or cut short.
    """
    if len(body) > MAX_BATCH_BYTES:
        raise EventError("$", f"a body has at most {MAX_BATCH_BYTES} bytes", "too_large")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in _LINES | _JSON:
        raise EventError("content-type", "must be application/json or application/x-ndjson")
    text = decode_text(body)
    results = [_parse(item) for item in _items(text, media_type in _LINES)]
    if not results:
        raise EventError("$", "a body holds at least one event")
    return results


def _items(text: str, lines: bool) -> Iterable[str]:
    if lines:
        return _lines(text)
    if text.lstrip()[:1] == "[":
        return split_array(text, MAX_BATCH_EVENTS, MAX_BATCH_VALUES)
    return [text]


def _lines(text: str) -> Iterator[str]:
    # Not splitlines(): U+2028 and its like are ordinary characters inside a JSON string.
    count = 0
    for line in text.split("\n"):
        if line.strip():
            count += 1
            if count > MAX_BATCH_EVENTS:
                raise EventError("$", f"a batch holds at most {MAX_BATCH_EVENTS} events", "too_large")
            yield line


def _parse(text: str) -> Parsed | EventError:
    try:
        return parse_text(text)
    except EventError as error:
        return error
