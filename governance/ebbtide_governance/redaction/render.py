"""Renders a trajectory's segments with placeholders, in chain order.

A value that was found once is known in the whole trajectory: it is replaced wherever it stands, also where no
detector saw it. So there are two passes: `learn` of every segment, then `render` of every segment, both in
chain order. The result depends on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ebbtide_governance.redaction.detector import Span, resolve
from ebbtide_governance.redaction.placeholders import Numbering, describe_bytes, escape, normal_value
from ebbtide_governance.redaction.walker import Leaf, blobs, leaves, rewrite
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import Finding

BINARY: Final = "BINARY"
PERSON: Final = "PERSON"
KNOWN_SCORE: Final = 0.6
"""A less sure finding is replaced where it stands, and nowhere else."""
KNOWN_CHARS: Final = 4
"""A shorter value is also part of ordinary words and sums."""
KNOWN_NAME_CHARS: Final = 3
"""Names are as short as Ada and Ito; written with a capital they are no ordinary words."""
CERTAIN: Final = 1.0
_WORD: Final = re.compile(r"[^\W_]+")


class Renderer:
    """The placeholders of one revision of one trajectory."""

    def __init__(self) -> None:
        self._numbering = Numbering()
        self._types: dict[str, tuple[float, str]] = {}
        self._known = _KnownValues()

    def learn(self, segment: Segment, findings: Sequence[Finding]) -> None:
        """Take in what was found in ``segment``; to be done for all segments before the first `render`."""
        found = _by_leaf(findings)
        for leaf in leaves(segment):
            for span in found.get((leaf.address, leaf.key), ()):
                if span.type != BINARY:
                    self._learn(leaf.text[span.start : span.end], span)

    def render(self, segment: Segment, findings: Sequence[Finding]) -> Segment:
        """``segment`` without what was found in it or is known; JSON stays JSON, subjects are left out."""
        found = _by_leaf(findings)
        return rewrite(segment, lambda leaf: self._text(leaf, found.get((leaf.address, leaf.key), ())))

    def _learn(self, value: str, span: Span) -> None:
        normal = normal_value(value)
        best = self._types.get(normal)
        # The surest type names a value everywhere; of equally sure ones, the first in the alphabet.
        if best is None or (-span.score, span.type) < (-best[0], best[1]):
            self._types[normal] = (span.score, span.type)
        if span.score < KNOWN_SCORE:
            return
        for known, by in _names(value.strip(), span):
            is_short_name = span.type == PERSON and len(known) >= KNOWN_NAME_CHARS and not known.islower()
            if len(known) >= KNOWN_CHARS or is_short_name:
                self._known.add(known, by)

    def _text(self, leaf: Leaf, found: Iterable[Span]) -> str:
        text = leaf.text
        bytes_at = {blob.start: blob for blob in blobs(leaf)}
        spans = [Span(blob.start, blob.end, BINARY, 2.0) for blob in bytes_at.values()]
        spans += (span for span in found if span.type != BINARY and span.end <= len(text))
        spans += self._known.occurrences(text)
        written: list[str] = []
        done = 0
        for cover in resolve(spans):
            written.append(escape(text[done : cover.start]))
            by = cover.named_by
            if by.type == BINARY:
                blob = bytes_at[by.start]
                written.append(describe_bytes(blob.media, blob.size))
            else:
                normal = normal_value(text[by.start : by.end])
                written.append(self._numbering.placeholder(self._types.get(normal, (0.0, by.type))[1], normal))
            done = cover.end
        written.append(escape(text[done:]))
        return "".join(written)


@dataclass(frozen=True)
class _Known:
    """What is known of a value."""

    type: str
    score: float
    capitalised: bool
    """True: only an occurrence that does not begin in lower case is one."""


class _KnownValues:
    """Finds known values in a text in time linear in its length, whatever their number."""

    def __init__(self) -> None:
        self._by_word: dict[str, dict[tuple[int, str], _Known]] = {}
        """Longest word, the rarest -> (its offset in the value, the folded value) -> what is known of it."""

    def add(self, value: str, span: Span) -> None:
        known = _Known(span.type, span.score, _is_ordinary_word(value, span))
        for spelling in {value, *_compact(value)}:
            folded = _fold(spelling)
            word = max(_WORD.finditer(folded), key=lambda word: len(word[0]), default=None)
            if word is None:
                continue
            values = self._by_word.setdefault(word[0], {})
            entry = (word.start(), folded)
            values[entry] = min(known, values.get(entry, known), key=_precedence)

    def occurrences(self, text: str) -> Iterator[Span]:
        if not self._by_word:
            return
        folded = _fold(text)
        for word in _WORD.finditer(folded):
            for (offset, value), known in self._by_word.get(word[0], {}).items():
                start = word.start() - offset
                end = start + len(value)
                if start < 0 or not folded.startswith(value, start) or not _stands_alone(folded, start, end):
                    continue
                if not (known.capitalised and text[start].islower()):
                    yield Span(start, end, known.type, known.score)


def _names(value: str, span: Span) -> Iterator[tuple[str, Span]]:
    """A value, and the words of a full name: who has given one is called by half of it later."""
    yield value, span
    words = value.split()
    if span.type == PERSON and len(words) > 1:
        yield from ((word.strip(".,"), replace(span, score=KNOWN_SCORE)) for word in words)


def _precedence(known: _Known) -> tuple[bool, float, str]:
    return (known.capitalised, -known.score, known.type)


def _is_ordinary_word(value: str, span: Span) -> bool:
    """True for one capitalised word that only a language model calls a name: `Mark` is known, `mark` is not."""
    return span.score < CERTAIN and value.isalpha() and not value.islower()


def _compact(value: str) -> Iterator[str]:
    """A number without its grouping, as programs write it."""
    if sum(map(str.isdigit, value)) >= 6 and "@" not in value:
        yield "".join(filter(str.isalnum, value))


def _fold(text: str) -> str:
    """Lower case with every code point in its place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (text[start - 1 : start].isalnum() and text[start].isalnum()) and not (
        text[end : end + 1].isalnum() and text[end - 1].isalnum()
    )


def _by_leaf(findings: Iterable[Finding]) -> Mapping[tuple[str, bool], list[Span]]:
    found: dict[tuple[str, bool], list[Span]] = {}
    for finding in findings:
        span = Span(finding.start, finding.end, finding.type, finding.score)
        found.setdefault((finding.leaf, finding.key), []).append(span)
    return found
