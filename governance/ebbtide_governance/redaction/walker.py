"""Takes a segment apart into its string leaves, and puts it together again.

Every string is a leaf: content and its parts, tool arguments and results, reasoning, names, members a runtime
added, object keys that are not plain member names, and all of that again inside JSON that is held in a string.
Protocol fields (role, ids, tool names, the ``type`` of a part) are not. Numbers stay numbers.

A leaf's address is a JSON pointer in which the members of an object are *counted*, in sorted order (inside
JSON text: in the order of the text), because findings travel in clear and a key can be a person's address.
``#`` enters JSON held in a string: ``/tool_calls/0/arguments#/1``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ebbtide_schemas.events import Segment

_MAX_NAME: Final = 256
_PART_PROTOCOL: Final = frozenset({"type", "role", "id", "call_id", "tool_call_id", "tool_use_id"})
_PROTOCOL_VALUE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,127}\Z")
# More than three digits in a key may be a number of somebody.
_MEMBER_NAME: Final = re.compile(r"(?!(?:[^0-9]*[0-9]){4})[A-Za-z_$][A-Za-z0-9_$.-]{0,63}\Z")
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# Numbers are left as they stand, so none is converted: a tool may print one of any length.
_JSON: Final = json.JSONDecoder(strict=False, parse_int=len, parse_float=len, parse_constant=len)

_BYTES_SIBLINGS: Final = ("media_type", "mime_type", "mimeType", "format")
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]+(?:/[\w.+-]+)?\Z", re.ASCII)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}\Z")
_DATA_URL: Final = re.compile(
    r"data:(?P<media>[\w.+-]{1,60}/[\w.+-]{1,60})?(?:;[\w.+-]{1,60}=[\w.+-]{1,60}){0,4};base64,"
    r"(?P<data>[A-Za-z0-9+/_-]*={0,2})",
    re.ASCII | re.IGNORECASE,
)
# Longer than any hash, token or id that a text shows on purpose.
_LONG_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/])(?P<data>[A-Za-z0-9+/]{256,}={0,2})")
_UNKNOWN_MEDIA: Final = "application/octet-stream"


@dataclass(frozen=True)
class Leaf:
    """One string of a segment."""

    address: str
    text: str
    label: str = ""
    """The nearest member name above it: ``customer_name`` says more than the text."""
    key: bool = False
    """True: the text is the key of the member at ``address``, not its value."""
    media: str | None = None
    """Media type, if the whole text is bytes in base64."""


@dataclass(frozen=True)
class Blob:
    """Bytes inside a leaf, from ``start`` to ``end`` in code points."""

    start: int
    end: int
    media: str
    size: int
    """Of the decoded bytes."""


Change = Callable[[Leaf], str]


def leaves(segment: Segment) -> list[Leaf]:
    """Every non-empty string leaf, in the order in which a reader meets them."""
    found: list[Leaf] = []

    def note(leaf: Leaf) -> str:
        found.append(leaf)
        return leaf.text

    rewrite(segment, note)
    return found


def rewrite(segment: Segment, change: Change) -> Segment:
    """The segment with ``change`` applied to every leaf; JSON stays JSON of the same shape and types.

    ``subjects`` are left out: they are the names a producer knows people by.
    """
    walk = _Walk(change)
    name = segment.name
    if name and segment.role != "tool":
        name = walk.text(name, "/name", "name")[:_MAX_NAME]
    return msgspec.structs.replace(
        segment,
        name=name,
        reasoning=segment.reasoning and walk.text(segment.reasoning, "/reasoning", ""),
        content=walk.content(segment.content),
        tool_calls=[
            msgspec.structs.replace(call, arguments=walk.text(call.arguments, f"/tool_calls/{i}/arguments", ""))
            for i, call in enumerate(segment.tool_calls)
        ],
        extra=walk.members(segment.extra, "/extra", ""),
        subjects=None,
    )


def blobs(leaf: Leaf) -> Iterator[Blob]:
    """The bytes in a leaf: data URLs, long runs of base64, or all of it where its object says so."""
    if leaf.media is not None:
        yield Blob(0, len(leaf.text), leaf.media, _decoded_size(leaf.text))
        return
    covered = 0
    if "base64," in leaf.text:
        for match in _DATA_URL.finditer(leaf.text):
            covered = match.end()
            yield Blob(match.start(), covered, match["media"] or _UNKNOWN_MEDIA, _decoded_size(match["data"]))
    for match in _LONG_BASE64.finditer(leaf.text, covered):
        data = match["data"]
        if data.isalnum() and (data.islower() or data.isupper() or data.isalpha()):
            continue  # a ruler or a hex dump
        yield Blob(match.start(), match.end(), _UNKNOWN_MEDIA, _decoded_size(data))


def _decoded_size(data: str) -> int:
    return len(data.rstrip("=")) * 3 // 4


class _Walk:
    """One pass over one segment."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def content(self, content: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]] | None:
        if content is None:
            return None
        if isinstance(content, str):
            return self.text(content, "/content", "")
        return [self.members(part, f"/content/{i}", "", _PART_PROTOCOL) for i, part in enumerate(content)]

    def value(self, value: Any, address: str, label: str, media: str | None = None) -> Any:
        if isinstance(value, str):
            return self.text(value, address, label, media)
        if isinstance(value, list):
            return [self.value(item, f"{address}/{i}", label) for i, item in enumerate(value)]
        if isinstance(value, dict):
            return self.members(value, address, label)
        return value

    def members(
        self, members: Mapping[str, Any], address: str, label: str, protocol: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for i, key in enumerate(sorted(members)):
            value, here = members[key], f"{address}/{i}"
            written = self.key(key, here, result)
            if key in protocol and isinstance(value, str) and _PROTOCOL_VALUE.match(value):
                result[written] = value
            else:
                result[written] = self.value(value, here, key, _media(members, key, label))
        return result

    def key(self, key: str, address: str, taken: Mapping[str, Any]) -> str:
        if not key or _MEMBER_NAME.match(key):
            return key
        changed = self._change(Leaf(address, key, key=True))
        return key if changed == key else _unused(changed, taken)

    def text(self, text: str, address: str, label: str, media: str | None = None) -> str:
        if not text:
            return text
        if media is None and _is_json(text):
            return self.json_text(text, address + "#", label)
        return self._change(Leaf(address, text, label, media=media))

    def json_text(self, text: str, address: str, label: str) -> str:
        """``text`` with each changed string replaced where it stands; all else keeps its very characters."""
        pieces: list[str] = []
        copied = 0
        frames: list[_Frame] = []
        top = _Frame(address, label)
        for token in _JSON_TOKEN.finditer(text):
            mark = token[0]
            if mark in "{[":
                frames.append(top)
                top = _Frame(top.here, top.label, counts=True, is_object=mark == "{")
            elif mark in "}]":
                top = frames.pop()
            elif mark == ",":
                top.index += 1
                top.in_value = False
            elif mark == ":":
                top.in_value = True
            else:
                before = _SURROGATE.sub("\ufffd", _JSON.decode(mark))
                if top.is_object and not top.in_value:
                    top.label = before
                    after = self.key(before, top.here, top.keys)
                    top.keys[after] = None
                else:
                    after = self.text(before, top.here, top.label)
                if after != before:
                    pieces += (text[copied : token.start()], json.dumps(after, ensure_ascii=False))
                    copied = token.end()
        return "".join(pieces) + text[copied:] if pieces else text


class _Frame:
    """Where a pass over JSON text is: in which object or array, at which member."""

    def __init__(self, address: str, label: str, *, counts: bool = False, is_object: bool = False) -> None:
        self._address = address
        self.label = label
        self._counts = counts
        self.is_object = is_object
        self.index = 0
        self.in_value = False
        self.keys: dict[str, None] = {}

    @property
    def here(self) -> str:
        """The address of the member at hand."""
        return f"{self._address}/{self.index}" if self._counts else self._address


def _is_json(text: str) -> bool:
    ends = text.strip(" \t\r\n")
    if len(ends) < 2 or ends[0] + ends[-1] not in ("{}", "[]", '""'):
        return False
    try:
        _JSON.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unused(key: str, taken: Mapping[str, Any]) -> str:
    """``key``, or the first of ``key~2``, ``key~3``... that no earlier member has: placeholders may meet."""
    candidate, count = key, 1
    while candidate in taken:
        count += 1
        candidate = f"{key}~{count}"
    return candidate


def _media(members: Mapping[str, Any], key: str, label: str) -> str | None:
    """The media type of ``members[key]`` if it is base64 and a member beside it names a format."""
    value = members[key]
    if key in _BYTES_SIBLINGS or not (isinstance(value, str) and _BASE64.match(value)):
        return None
    named = next((members[name] for name in _BYTES_SIBLINGS if isinstance(members.get(name), str)), "")
    if not _MEDIA_TYPE.match(named):
        return None
    family = next((name for name in ("audio", "image", "video") if name in label), "application")
    return named if "/" in named else f"{family}/{named}"
