"""Finds what has a form: addresses, numbers with check digits, and names that a text announces.

Cheap (no language model) and exact about what it finds: it stands in for a detector in tests, and beside a
language model it finds the spellings that recognisers with a fixed table of lengths and separators miss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ebbtide_governance.redaction.detector import Span

SURE: Final = 1.0
LIKELY: Final = 0.75
TOLD: Final = 0.9
"""By the words around it; above what a language model gives, which takes a name in capitals for a place."""

Finder = Callable[[str], Iterator[Span]]

_EMAIL: Final = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[^\W_](?:[\w-]{0,62})(?:\.[^\W_][\w-]{0,62}){1,8}")
_SSN: Final = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_STREET: Final = re.compile(
    r"(?<!\w)\d{1,5}[a-z]?(?: [A-Z][\w'’-]{1,30}){1,3} "
    r"(?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr|Lane|Ln|Boulevard|Blvd|Court|Ct|Square|Way|Place|Terrace)\b"
)
_BORN: Final = re.compile(
    r"(?i)\b(?:born(?: on)?|birth ?date|date of birth|birthday|dob|geboren(?: am)?|née? le)\W{1,4}"
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./ -]\d{1,2}[./ -]\d{2,4})(?!\d)"
)

# --- numbers with check digits -------------------------------------------------------------------------------

_IBAN_LENGTHS: Final = {
    country: int(length)
    for country, length in re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24 AE23 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 FR27 "
        "GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IS26 IT27 JO30 KW30 KZ20 LB28 LI21 LT20 LU20 LV21 MC27 MD24 "
        "ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SE24 SI19 SK24 SM27 TN24 TR26 UA29 "
        "VA22 VG24 XK20",
    )
}
_IBAN_START: Final = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?=[ -]?[A-Za-z0-9])", re.ASCII)
_IBAN_CHAR: Final = re.compile(r"[ -]?[A-Za-z0-9]", re.ASCII)
# Looked for at every group, also inside what another number before it has begun: `2 4111 1111 1111 1111`.
_CARD: Final = re.compile(r"(?<![0-9])(?=([2-6](?:[ -]?[0-9]){12,18})(?![0-9]))")
# Of every ten numbers of a wrong length one has a right Luhn digit, so the length must be one that is issued.
_CARD_DIGITS: Final = {"2": (16,), "3": (16, 15, 14), "4": (19, 16, 13), "5": (16,), "6": (19, 18, 17, 16)}


def _ibans(text: str) -> Iterator[Span]:
    """As long as the country says, whatever word follows, if the remainder modulo 97 is right."""
    for begin in _IBAN_START.finditer(text):
        length = _IBAN_LENGTHS.get(begin[0][:2].upper())
        if length is None:
            continue
        end, missing = begin.end(), length - 4
        while missing and (char := _IBAN_CHAR.match(text, end)):
            end, missing = char.end(), missing - 1
        value = re.sub("[ -]", "", text[begin.start() : end]).upper()
        if not missing and not text[end : end + 1].isalnum() and _remainder(value) == 1:
            yield Span(begin.start(), end, "IBAN", SURE)


def _remainder(iban: str) -> int:
    return int("".join(str(int(char, 36)) for char in iban[4:] + iban[:4])) % 97


def _cards(text: str) -> Iterator[Span]:
    """As many digits as the issuer uses, however grouped, with a right Luhn digit; no part of a group."""
    for match in _CARD.finditer(text):
        run = match[1]
        ends = [i + 1 for i, char in enumerate(run) if char.isdigit()]
        digits = [int(run[end - 1]) for end in ends]
        for count in _CARD_DIGITS[run[0]]:
            whole = count == len(digits) or (count < len(digits) and ends[count] > ends[count - 1] + 1)
            if whole and _luhn(digits[:count]):
                yield Span(match.start(), match.start() + ends[count - 1], "CARD", SURE)
                break


def _luhn(digits: Sequence[int]) -> bool:
    doubled = (d * 2 - 9 * (d > 4) if i % 2 else d for i, d in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


# --- telephone numbers ----------------------------------------------------------------------------------------

_PHONE: Final = re.compile(
    r"(?<![\d+])(?:"
    r"\+\d(?:[ ().-]{0,2}\d){7,14}"  # international
    r"|\(?\d{3}\)?(?:(?P<us>[ .-])|(?<=\)))\d{3}(?(us)(?P=us)|[ .-])\d{4}"  # North American
    r"|0\d{1,4}(?P<s>[ .-])\d{2,5}(?:(?P=s)\d{2,5}){1,3}"  # national, with the trunk 0
    r")(?!\d)"
)
_CALLED: Final = re.compile(
    r"(?i)\b(?:call|dial|ring|phone|telephone|tel|mobile|cell|sms|whatsapp)"
    r"(?:[ :]+(?:number|me|at|on|is)){0,3}[ :]{1,3}(\d{9,15})(?!\d)"
)
_PHONE_DIGITS: Final = range(9, 16)


def _phones(text: str) -> Iterator[Span]:
    for match in _PHONE.finditer(text):
        if sum(map(str.isdigit, match[0])) in _PHONE_DIGITS:
            yield Span(match.start(), match.end(), "PHONE", LIKELY)


# --- names that a text announces ------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CUES: Final = (
    # (what comes before the name, whether the name must be capitalised)
    (r"(?i:\bmy (?:full )?name(?:'s| is)|\bthis is mr\.?|\bmein name ist|\bje m'appelle|\bme llamo|με λένε)", False),
    (r"(?i:\b(?:patient|passenger|guest|customer|client|holder|contact person)) ?:", True),
    (r"\b(?:Dr|Mr|Mrs|Ms|Prof|Herr|Frau|Mme|Sr|Sra)\b\.?", True),
    (r"\b(?:[Ii]ch bin|[Ii] am|[Ii]'m|[Jj]e suis|[Ss]oy)", True),
)
_CUE: Final = re.compile("|".join(f"(?P<{'ab'[strict]}{i}>{cue})" for i, (cue, strict) in enumerate(_CUES)))
_NAME_WORD: Final = re.compile(r"[ \t]{1,3}([^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_])){0,30}\.?)(?![\w@])")
_PARTICLES: Final = _words("van der den de del della di da dos du la le von zu bin ibn al el ter ten")
_NO_NAME: Final = _words(
    "my i and the is a an at in on to of for from with it this that am are was you your but not so please can "
    "here there aus und et y και ich mein"
)
_MAX_NAME_WORDS: Final = 5
_MAX_LOWER_WORDS: Final = 2
_ALONE_IS_NO_NAME: Final = re.compile(r"(?i:\b(?:i am|i'm|je suis|soy|ich bin))\Z")


def _announced_names(text: str) -> Iterator[Span]:
    """The words after a cue: capitalised ones with the particles between them, or two in lower case."""
    for cue in _CUE.finditer(text):
        strict = cue.lastgroup is not None and cue.lastgroup.startswith("b")
        start, end, words = _name_after(text, cue.end(), strict)
        if words == 0 or (words == 1 and _ALONE_IS_NO_NAME.search(cue[0])):
            continue
        yield Span(start, end, "PERSON", TOLD)


def _name_after(text: str, position: int, strict: bool) -> tuple[int, int, int]:
    """(start, end, number of words without particles) of the name that begins at ``position``."""
    start = end = position
    words = lower = 0
    while words < _MAX_NAME_WORDS and (match := _NAME_WORD.match(text, position)):
        word = match[1]
        initial = len(word) == 2 and word.endswith(".") and word[0].isupper()
        bare = word.rstrip(".")
        particle = bare in _PARTICLES
        if bare.lower() in _NO_NAME or (word[0].islower() and not particle and (strict or words > lower)):
            break
        if not particle:
            start = match.start(1) if words == 0 else start
            words += 1
            lower += word[0].islower()
            end = match.end(1) - (word.endswith(".") and not initial)
        position = match.end()
        if (word.endswith(".") and not initial) or lower == _MAX_LOWER_WORDS:
            break
    return start, end, words


def _matches(pattern: re.Pattern[str], entity_type: str, score: float, group: int = 0) -> Finder:
    return lambda text: (Span(*match.span(group), entity_type, score) for match in pattern.finditer(text))


_FINDERS: Final[tuple[Finder, ...]] = (
    _matches(_EMAIL, "EMAIL", SURE),
    _matches(_SSN, "NATIONAL_ID", LIKELY),
    _matches(_STREET, "ADDRESS", TOLD),
    _matches(_BORN, "BIRTH_DATE", TOLD, group=1),
    _ibans,
    _cards,
    _phones,
    _matches(_CALLED, "PHONE", LIKELY, group=1),
    _announced_names,
)


class PatternDetector:
    """A `Detector` of forms only; names without a cue are beyond it."""

    version: Final = "patterns-1"
    """Rises with any change of what is found, here or by label in `scan`: then segments are looked at again."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """The spans of each text; never fails."""
        return [sorted({span for find in _FINDERS for span in find(text)}) for text in texts]
