"""What stands in a text instead of a value: ``[PERSON_1]``.

The number counts values of a type in the order in which a trajectory shows them first; one value has one
placeholder in all of the trajectory. A text that already looks like a placeholder is escaped, so that the two
can never be confused: ``[PERSON_1]`` becomes ``[=PERSON_1]``, ``[=PERSON_1]`` becomes ``[==PERSON_1]``.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_BODY: Final = r"(?:[A-Z][A-Z0-9_]*_[1-9][0-9]*|BINARY [\w.+-]+/[\w.+-]+ [0-9]+ bytes)"
PLACEHOLDER: Final = re.compile(rf"\[{_BODY}\]", re.ASCII)
"""Matches a placeholder from bracket to bracket, and no escaped original."""
_LOOKALIKE: Final = re.compile(rf"\[(?==*{_BODY}\])", re.ASCII)
_ESCAPED: Final = re.compile(rf"\[=(?==*{_BODY}\])", re.ASCII)
_BLANKS: Final = re.compile(r"\s+")
_NUMBER_DIGITS: Final = 6
"""A value with as many digits is a number: how it is grouped says nothing."""


def escape(text: str) -> str:
    """Original text, so written that nothing in it reads as a placeholder."""
    return _LOOKALIKE.sub("[=", text)


def unescape(text: str) -> str:
    """The original of an escaped text."""
    return _ESCAPED.sub("[", text)


def describe_bytes(media: str, size: int) -> str:
    """The placeholder of a picture, a sound or a file; ``size`` in bytes."""
    return f"[BINARY {media} {size} bytes]"


def normal_value(text: str) -> str:
    """The one spelling of a found value: case, width and blanks fall together, and so does a number's grouping."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if "@" not in folded and sum(map(str.isdigit, folded)) >= _NUMBER_DIGITS:
        return "".join(filter(str.isalnum, folded))
    return _BLANKS.sub(" ", folded).strip(" .,;:!?'\"()")


class Numbering:
    """The placeholders of one trajectory; deterministic in the order in which values are asked for."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def placeholder(self, entity_type: str, normal: str) -> str:
        """The placeholder of a normalised value; made from ``entity_type`` when it is asked for first."""
        given = self._given.get(normal)
        if given is None:
            number = self._counts[entity_type] = self._counts.get(entity_type, 0) + 1
            given = self._given[normal] = f"[{entity_type}_{number}]"
        return given
