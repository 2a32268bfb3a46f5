"""Bytes of one event to a step or a reward, mended where the design says so, or refused by field and rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import inspect

from ebbtide_schemas.events import Event, Reward, Step
from ebbtide_schemas.validation.rules import check_event
from ebbtide_schemas.validation.scan import EventError, scan

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest event: two hundred thousand tokens of context with room to spare."""

REPLACEMENT: Final = "\ufffd"

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_RAW_SURROGATES = re.compile("[\ud800-\udfff]+")
_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|(?P<nul>\\u0000)"
    r"|\\.",
    re.DOTALL,
)
_LOCATION = re.compile(r" - at `(?:key in )?(?P<path>[^`]*)`\Z")
_MEMBER = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>[^`]*)`")


@dataclass(frozen=True)
class Parsed:
    """An event, and what had to be mended in it (``surrogates_replaced``, ``nul_replaced``)."""

    event: Event
    flags: tuple[str, ...] = ()


def parse_event(raw: bytes) -> Parsed:
    """Read one event from JSON.

    Lone surrogates, bytes that are no UTF-8, and NUL become U+FFFD, and a flag says so.

    Raises:
        EventError: names the field and the rule; ``too_large`` for size, depth and counts.
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise EventError("$", f"an event has at most {MAX_EVENT_BYTES} bytes", "too_large")
    return parse_text(decode_text(raw))


def decode_text(raw: bytes) -> str:
    """UTF-8 to text; each byte that is none becomes a lone surrogate, for `parse_text` to replace and flag."""
    return raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def parse_text(text: str) -> Parsed:
    """`parse_event` for text that is already decoded.

    Raises:
        EventError: as `parse_event`.
    """
    # A character has one to four bytes; the count is only taken where it can matter.
    if len(text) > MAX_EVENT_BYTES // 4 and len(text.encode("utf-8", "surrogatepass")) > MAX_EVENT_BYTES:
        raise EventError("$", f"an event has at most {MAX_EVENT_BYTES} bytes", "too_large")
    mended, flags = _mend(text)
    scan(mended)
    try:
        event = _decoder.decode(mended)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeError):
        raise EventError("$", "is not well-formed JSON") from None
    check_event(event)
    return Parsed(event, flags)


def _mend(text: str) -> tuple[str, tuple[str, ...]]:
    flags = set()
    if not text.isascii() and _RAW_SURROGATES.search(text):
        text = _RAW_SURROGATES.sub(REPLACEMENT, text)
        flags.add("surrogates_replaced")
    if "\\u" in text:

        def mend(escape: re.Match[str]) -> str:
            if escape["lone"]:
                flags.add("surrogates_replaced")
                return REPLACEMENT
            if escape["nul"]:
                flags.add("nul_replaced")
                return REPLACEMENT
            return escape[0]

        text = _ESCAPE.sub(mend, text)
    return text, tuple(sorted(flags))


def _explain(message: str) -> EventError:
    """msgspec's message as field and rule, without the values that some messages repeat."""
    location = _LOCATION.search(message)
    path = location["path"].removeprefix("$").lstrip(".") if location else ""
    rule = message[: location.start()] if location else message
    if member := _MEMBER.match(rule):
        field = f"{path}.{member['name']}" if path else member["name"]
        return EventError(field, "is not a member of ATDP/1" if "unknown" in member["what"] else "is required")
    if rule.startswith("Invalid"):
        rule = f"must be {_allowed_at(path)}"
    elif "matching regex" in rule:
        rule = "must be a technical name: at most 128 letters, digits and . _ : / + -, the first a letter or digit"
    return EventError(path or "$", rule.replace("`", "").replace("Expected", "expected"))


def _allowed_at(path: str) -> str:
    """The values that the types allow at a path, as words."""
    if path == "type":
        return "step or reward"
    here: list[inspect.Type] = [inspect.type_info(Step), inspect.type_info(Reward)]
    for name in re.findall(r"[a-z]\w*|\[", path):
        here = [below for above in here for below in _below(above, name)]
    values = {str(value) for type_ in here if isinstance(type_, inspect.LiteralType) for value in type_.values}
    return "one of " + ", ".join(sorted(values)) if len(values) > 1 else "".join(values) or "another value"


def _below(above: inspect.Type, name: str) -> Iterator[inspect.Type]:
    if isinstance(above, inspect.StructType):
        found = [field.type for field in above.fields if field.encode_name == name]
    elif isinstance(above, inspect.ListType) and name == "[":
        found = [above.item_type]
    else:
        return
    for type_ in found:
        yield from type_.types if isinstance(type_, inspect.UnionType) else [type_]
