"""One linear look over JSON text before any parser recurses into it.

A hundred thousand open brackets, two hundred thousand keys, a key that stands twice, NaN and 1e999999
are seen here, in time that grows with the length and with a stack of our own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from ebbtide_schemas.canonical import MAX_INTEGER

MAX_DEPTH: Final = 64
"""Levels of arrays and objects: twice what real tool schemas need, and no stage recurses deeper."""

MAX_VALUES: Final = 200_000
"""Brackets, commas and keys of one event: a full second of work in none of the stages."""

MAX_NUMBER_CHARACTERS: Final = 400
"""Longest number: the largest double written without an exponent has 309 digits."""

_SAFE_DIGITS: Final = 15
"""An integer this short is one that every reader keeps."""

MAX_PATH_CHARACTERS: Final = 120
"""Longest path in an error; keys are the producer's and may be anything."""

# Possessive, so that no text makes it slow. A string that never ends has no group 1.
STRING = r'"(?:[^"\\]++|\\.)*+("?)'
_TOKEN = re.compile(
    STRING + r"(\s*+:)?"
    r"|[\[\]{},]"
    r"|(-?(?:NaN|Infinity))"
    # Only numbers that could be too large: fifteen digits without exponent never are.
    r"|(-?[0-9][0-9.]*+(?:[eE][-+0-9.]*+)|-?[0-9][0-9.]{15,}+)",
    re.DOTALL,
)
_BRACKET = re.compile(STRING + r"|[\[\]{}]", re.DOTALL)


class EventError(Exception):
    """Why something is refused: ``field`` is a path such as ``meta.agent``, or ``$`` for the whole.

    ``rule`` never repeats input. ``field`` may hold a member's name that the producer chose: it is for the
    sender's eyes, not for logs.
    """

    def __init__(self, field: str, rule: str, code: Literal["invalid", "too_large"] = "invalid") -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule
        self.code: Literal["invalid", "too_large"] = code


class _Frame:
    """One open array or object: where we are in it, and the keys it has had."""

    __slots__ = ("index", "key", "keys")

    def __init__(self, is_object: bool) -> None:
        self.keys: set[str] | None = set() if is_object else None
        self.key = ""
        self.index = 0

    def step(self) -> str:
        return f"[{self.index}]" if self.keys is None else f".{self.key}"


def scan(text: str) -> None:
    """Refuse what must not reach a parser; text that is no JSON passes, for the parser to name.

    Raises:
        EventError: too deep or too many values (``too_large``); a key twice, NaN, Infinity, a number that no
            double holds or an integer beyond 2**53 - 1.
    """
    if not _is_harmless(text):
        _look_closely(text)


def _is_harmless(text: str) -> bool:
    """The same look in C, five times as fast, that says yes or *perhaps*; nearly every event ends here."""
    marks = text.count("[") + text.count("{")
    if marks + text.count(",") + text.count(":") > MAX_VALUES:
        return False
    if marks > MAX_DEPTH and json_depth(text) > MAX_DEPTH:
        return False
    try:
        _plain_decoder.decode(text)
    except ValueError:
        return False
    return True


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        raise ValueError


def _small(number: str) -> None:
    if len(number) > _SAFE_DIGITS:
        raise ValueError


def _finite(number: str) -> None:
    if len(number) > MAX_NUMBER_CHARACTERS or not math.isfinite(float(number)):
        raise ValueError


def _no_number(_: str) -> None:
    raise ValueError


_plain_decoder = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_int=_small, parse_float=_finite, parse_constant=_no_number, strict=False
)


def _look_closely(text: str) -> None:
    """The look that can tell the field."""
    stack: list[_Frame] = []
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count >= MAX_VALUES:
            raise EventError("$", f"an event has at most {MAX_VALUES} values", "too_large")
        first = text[token.start()]
        if first == '"':
            if not token[1]:
                raise EventError(_path(stack), "the JSON ends inside a string")
            if token[2] is not None and stack:
                _enter_key(stack, token[0][: -len(token[2])])
        elif first in "[{":
            if len(stack) >= MAX_DEPTH:
                raise EventError(_path(stack[:1]), f"at most {MAX_DEPTH} levels of nesting", "too_large")
            stack.append(_Frame(first == "{"))
        elif first in "]}":
            if stack:
                stack.pop()
        elif first == ",":
            if stack:
                stack[-1].index += 1
        elif token[3]:
            raise EventError(_path(stack), "must be a finite number")
        else:
            _check_number(token[4], stack)


def _enter_key(stack: list[_Frame], quoted: str) -> None:
    frame = stack[-1]
    key = quoted[1:-1]
    if "\\" in key:
        try:
            key = msgspec.json.decode(quoted, type=str)
        except msgspec.DecodeError:
            return  # the parser names it
    frame.key = key
    if frame.keys is None:
        return
    if key in frame.keys:
        raise EventError(_path(stack), "stands twice in one object")
    frame.keys.add(key)


def _check_number(number: str, stack: list[_Frame]) -> None:
    if len(number) > MAX_NUMBER_CHARACTERS:
        raise EventError(_path(stack), f"a number has at most {MAX_NUMBER_CHARACTERS} characters")
    try:
        if number.lstrip("-").isdigit():
            if abs(int(number)) > MAX_INTEGER:
                raise EventError(_path(stack), "an integer is at most 2**53 - 1; send larger ones as strings")
        elif not math.isfinite(float(number)):
            raise EventError(_path(stack), "must be a finite number")
    except ValueError:
        return  # no number at all: the parser names it


def _path(stack: list[_Frame]) -> str:
    path = "".join(frame.step() for frame in stack).lstrip(".") or "$"
    return path if len(path) <= MAX_PATH_CHARACTERS else path[:MAX_PATH_CHARACTERS] + "…"


def json_depth(text: str, limit: int = MAX_DEPTH) -> int:
    """Levels of brackets outside strings, at most ``limit`` + 1; the text need not be JSON."""
    depth = deepest = 0
    for token in _BRACKET.finditer(text):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > limit:
                break
        elif token[0] in "]}":
            depth = max(depth - 1, 0)
    return deepest


def split_array(text: str, max_items: int, max_values: int) -> Iterator[str]:
    """The items of a JSON array as text, without parsing them.

    Raises:
        EventError: the array does not end, is followed by something, or is too large.
    """
    depth, start, items, end = 0, text.index("[") + 1, 0, -1
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count >= max_values:
            raise EventError("$", f"a batch has at most {max_values} values", "too_large")
        mark = token[0]
        if mark[0] == '"' and not token[1]:
            raise EventError("$", "the JSON ends inside a string")
        if mark in ("[", "{"):
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        if depth == 0 and end < 0:
            end = token.end()
            break
        if depth == 1 and mark == ",":
            items += 1
            if items >= max_items:
                raise EventError("$", f"a batch holds at most {max_items} events", "too_large")
            yield text[start : token.start()]
            start = token.end()
    if end < 0:
        raise EventError("$", "the JSON array does not end")
    if text[end:].strip():
        raise EventError("$", "something follows the JSON array")
    last = text[start : end - 1]
    if items or last.strip():
        yield last
