"""What has to be looked at in a segment, and what a detector's spans say about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ebbtide_governance.redaction.detector import Span
from ebbtide_governance.redaction.placeholders import normal_value
from ebbtide_governance.redaction.render import BINARY, CERTAIN
from ebbtide_governance.redaction.walker import Leaf, blobs, leaves
from ebbtide_schemas.events import Segment
from ebbtide_schemas.records import Finding

EntityDigest = Callable[[str], str]
"""Normalised value -> keyed digest."""

_LETTERS: Final = re.compile(r"[^\W_]")
_NOT_LABEL: Final = re.compile(r"[^a-z0-9]")
_NAME: Final = re.compile(r"(?=.{2,80}\Z)[^\W\d_]+\.?(?:[ '’-]{1,2}[^\W\d_]+\.?){0,5}\Z")
_NUMBER: Final = re.compile(r"(?=(?:\D*\d){4})[\w .,()+/#-]{4,60}\Z")
_PLACE: Final = re.compile(r"(?!.*(?:@|://))(?=.*[^\W\d_]).{3,200}\Z", re.DOTALL)
_LABELS: Final = (
    # (type, the member names that say so without blanks and marks, the form that its value must have)
    (
        "PERSON",
        r"(customer|guest|patient|user|full|first|last|middle|given|family|maiden|cardholder|accountholder|contact|"
        r"passenger|employee|client|recipient|sender|owner|author|subscriber|applicant|legal)(?<!user)name"
        r"|surname|passenger|cardholder|accountholder|holder|patient|guest|coauthor|author",
        _NAME,
    ),
    ("ADDRESS", r"(home|street|billing|shipping|postal|mailing)?address(line)?[0-9]?|street", _PLACE),
    ("POSTCODE", r"zip(code)?|postcode|postalcode", _NUMBER),
    ("BIRTH_DATE", r"dob|dateofbirth|birth(date|day)|born", _NUMBER),
    ("PHONE", r"(cell|mobile|home|work)?(tele)?phone(number)?|mobile|tel|fax", _NUMBER),
    ("CARD", r"(credit|debit)?card(number)?|pan", re.compile(r"(?:[ -]?\d){12,19}\Z")),
    ("NATIONAL_ID", r"ssn|socialsecurity(number)?|passport(number)?|nationalid|taxid|driverlicense(number)?", _NUMBER),
)
_COMPILED: Final = tuple((kind, re.compile(names + r"\Z"), form) for kind, names, form in _LABELS)


@dataclass(frozen=True)
class Scan:
    """A segment laid out for a detector: ``texts[i]`` is what to look at in ``leaves[i]``."""

    leaves: tuple[Leaf, ...]
    texts: tuple[str, ...]
    """Bytes are blanked out, so that offsets hold and nobody reads base64 as prose."""

    @property
    def binary(self) -> bool:
        """True: there are bytes that a text detector cannot vouch for."""
        return any(True for leaf in self.leaves for _ in blobs(leaf))

    def findings(self, spans: Sequence[Sequence[Span]], digest: EntityDigest) -> tuple[Finding, ...]:
        """Every finding in the segment, in reading order, given the detector's spans of each text."""
        return tuple(
            _finding(leaf, span, digest)
            for leaf, detected in zip(self.leaves, spans, strict=True)
            for span in _widest([*detected, *_labelled(leaf), *_bytes(leaf)])
        )


def scan(segment: Segment) -> Scan:
    """Lay a segment out; leaves without a letter or digit have nothing to be found."""
    found = tuple(leaf for leaf in leaves(segment) if _LETTERS.search(leaf.text))
    return Scan(found, tuple(map(_readable, found)))


def _readable(leaf: Leaf) -> str:
    pieces: list[str] = []
    done = 0
    for blob in blobs(leaf):
        pieces += (leaf.text[done : blob.start], " " * (blob.end - blob.start))
        done = blob.end
    return "".join(pieces) + leaf.text[done:] if pieces else leaf.text


def _labelled(leaf: Leaf) -> Iterator[Span]:
    """A whole value whose member name says what it is; a labelled field depends on no language model."""
    label = _NOT_LABEL.sub("", leaf.label.lower())
    if not label or leaf.media is not None:
        return
    value = leaf.text.strip()
    for kind, names, form in _COMPILED:
        if names.match(label) and form.match(value):
            start = leaf.text.index(value)
            yield Span(start, start + len(value), kind, CERTAIN)
            return


def _widest(spans: Sequence[Span]) -> list[Span]:
    """In reading order, without those that lie inside another one of their type: two detectors, one finding."""
    kept: dict[str, Span] = {}
    found: list[Span] = []
    for span in sorted(set(spans), key=lambda span: (span.start, -span.end, -span.score)):
        before = kept.get(span.type)
        if before is None or span.end > before.end:
            kept[span.type] = span
            found.append(span)
    return sorted(found)


def _bytes(leaf: Leaf) -> Iterator[Span]:
    return (Span(blob.start, blob.end, BINARY, CERTAIN) for blob in blobs(leaf))


def _finding(leaf: Leaf, span: Span, digest: EntityDigest) -> Finding:
    value = leaf.text[span.start : span.end]
    return Finding(
        leaf=leaf.address,
        start=span.start,
        end=span.end,
        type=span.type,
        score=span.score,
        entity="" if span.type == BINARY else digest(normal_value(value)),
        key=leaf.key,
    )
