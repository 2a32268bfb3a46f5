"""The port for what finds personal data in text, and the one rule for findings that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

PIECE_CHARS: Final = 16_000
"""A longer text is looked at in pieces: about half a second of work, so that a time limit means something."""
PIECE_OVERLAP: Final = 300
"""What crosses a cut is whole in the next piece, up to this length."""


@dataclass(frozen=True, order=True)
class Span:
    """Something found: from ``start`` to ``end`` (exclusive) in code points, sure to ``score`` (0 to 1)."""

    start: int
    end: int
    type: str
    score: float


class Detector(Protocol):
    """Finds personal data. Spans may overlap; `resolve` settles that."""

    @property
    def version(self) -> str:
        """What looked: the same version finds the same in the same text."""

    def detect(self, texts: Sequence[str]) -> Sequence[Sequence[Span] | None]:
        """The spans of each text; None for a text that could not be looked at, which must then not pass."""


@dataclass(frozen=True)
class Cover:
    """A stretch that is replaced as one; ``named_by`` is the finding that gives it type and value."""

    start: int
    end: int
    named_by: Span


def resolve(spans: Iterable[Span]) -> list[Cover]:
    """Stretches that do not overlap and together cover every span, in order.

    Findings that share a code point become one stretch: nothing of any of them is left, and nothing else goes.
    It is named by its surest finding; of equally sure ones by the longest, then the first, then by type. The
    order of ``spans`` does not matter.
    """
    covers: list[Cover] = []
    for span in sorted(span for span in spans if span.end > span.start):
        if covers and span.start < covers[-1].end:
            last = covers[-1]
            covers[-1] = Cover(last.start, max(last.end, span.end), min(last.named_by, span, key=_precedence))
        else:
            covers.append(Cover(span.start, span.end, span))
    return covers


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text as (offset, piece) with overlaps, cut at blanks where there are any."""
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        blank = max(text.rfind(" ", end - PIECE_OVERLAP, end), text.rfind("\n", end - PIECE_OVERLAP, end))
        end = blank if blank > 0 else end
        yield start, text[start:end]
        again = end - PIECE_OVERLAP
        blank = text.find(" ", again, end)
        start = blank + 1 if blank >= 0 else again
    yield start, text[start:]


def _precedence(span: Span) -> tuple[float, int, int, str]:
    return (-span.score, span.start - span.end, span.start, span.type)
