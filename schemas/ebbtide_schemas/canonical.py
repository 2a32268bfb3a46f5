"""The one byte form of a value: RFC 8785 (JSON Canonicalization Scheme), over which every digest is taken.

Two programs that agree on the value agree on the bytes: no spaces, keys in order of their UTF-16 code
units, numbers as ECMAScript writes them, strings with the fewest escapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from json import encoder
from typing import Any

import msgspec

MAX_INTEGER = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (RFC 7493)."""

_PLAIN_DIGITS = 21
"""A number with more digits before its point is written with an exponent (ECMA-262, Number::toString)."""

MAX_NESTING = 200
"""Levels written at most: three times what a door lets in, and far from Python's own limit."""

_quote = encoder.encode_basestring
"""Escapes exactly what RFC 8785 escapes: the quote, the backslash and what stands below U+0020."""


class CanonicalError(ValueError):
    """The value has no canonical form; the text never repeats it."""


def canonical(value: object) -> bytes:
    """The RFC 8785 bytes of a msgspec Struct or of plain Python data; Structs leave out defaults as they always do.

    Raises:
        CanonicalError: a number that is not finite or an integer that no double holds, a lone surrogate, a
            key that is no string, more than `MAX_NESTING` levels, or a type that JSON does not know.
    """
    parts: list[str] = []
    try:
        _write(msgspec.to_builtins(value), parts.append, 0)
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise CanonicalError("a lone surrogate has no UTF-8 form") from None
    except (TypeError, RecursionError):
        raise CanonicalError("the value is not JSON") from None


def _write(value: Any, out: Callable[[str], None], depth: int) -> None:
    if isinstance(value, str):
        out(_quote(value))
    elif value is None:
        out("null")
    elif value is True:
        out("true")
    elif value is False:
        out("false")
    elif isinstance(value, int):
        out(str(value) if -MAX_INTEGER <= value <= MAX_INTEGER else _large_integer(value))
    elif isinstance(value, float):
        out(_number(value))
    elif depth >= MAX_NESTING:
        raise CanonicalError(f"more than {MAX_NESTING} levels")
    elif isinstance(value, Mapping):
        _write_object(value, out, depth)
    else:
        separator = "["
        for item in value:
            out(separator)
            _write(item, out, depth + 1)
            separator = ","
        out("]" if separator == "," else "[]")


def _write_object(value: Mapping[Any, Any], out: Callable[[str], None], depth: int) -> None:
    keys = list(value)
    if not all(isinstance(key, str) for key in keys):
        raise CanonicalError("an object key is not a string")
    # Code points sort as UTF-16 code units do, unless a character beyond U+FFFF is among them.
    keys.sort() if all(map(str.isascii, keys)) else keys.sort(key=lambda key: key.encode("utf-16-be"))
    separator = "{"
    for key in keys:
        out(f"{separator}{_quote(key)}:")
        _write(value[key], out, depth + 1)
        separator = ","
    out("}" if separator == "," else "{}")


def _large_integer(value: int) -> str:
    """A canonical double such as 1e20 is read back as an integer, and has the same form again."""
    text = _number(float(value)) if abs(value) < 10**_PLAIN_DIGITS else ""
    if text != str(value):
        raise CanonicalError("an integer beyond 2**53 - 1 that no double holds is not the same number everywhere")
    return text


def _number(value: float) -> str:
    """ECMAScript's Number::toString; Python's repr has the same digits and other places for the point."""
    if not math.isfinite(value):
        raise CanonicalError("a number is not finite")
    if value == 0:
        return "0"
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= _PLAIN_DIGITS:
        text = digits + "0" * (point - count)
    elif 0 < point <= _PLAIN_DIGITS:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        tail = f".{digits[1:]}" if count > 1 else ""
        text = f"{digits[0]}{tail}e{point - 1:+d}"
    return f"-{text}" if value < 0 else text
