"""Presidio with a spaCy model, cut down to what finds people: named entities and recognisers with a form.

Tagger, parser and lemmatiser cost more than the entity recogniser and are not loaded. Nothing here opens a
connection: a model that is not installed is an error, and Presidio's own check of mail addresses, which
fetches the list of public suffixes, is replaced. Beside Presidio stands `PatternDetector`, for the spellings
that Presidio's fixed patterns miss.

The model reads English. What it says of other languages is a guess; forms and announced names are found in any.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Final

import spacy
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry, RecognizerResult
from presidio_analyzer.nlp_engine import NerModelConfiguration, NlpArtifacts, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    CryptoRecognizer,
    EmailRecognizer,
    IbanRecognizer,
    IpRecognizer,
    PhoneRecognizer,
    SpacyRecognizer,
    UsItinRecognizer,
    UsPassportRecognizer,
    UsSsnRecognizer,
)

from ebbtide_governance.redaction.detector import Span
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_platform.errors import Misconfigured

TYPES: Final = {
    "PERSON": "PERSON",
    "LOCATION": "LOCATION",
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "IBAN_CODE": "IBAN",
    "CRYPTO": "WALLET",
    "IP_ADDRESS": "IP",
    "US_SSN": "NATIONAL_ID",
    "US_ITIN": "NATIONAL_ID",
    "US_PASSPORT": "NATIONAL_ID",
}
"""Presidio's types that are redacted, and what they are called here. Dates, organisations and addresses of web
pages name nobody by themselves and are most of what an agent works with."""
THRESHOLD: Final = 0.4
"""Below it stand bare digits of a plausible length without a word beside them that says what they are."""
PHONE_REGIONS: Final = ("US", "GB", "DE", "FR", "IT", "UA", "IN")

_UNUSED_PIPES: Final = ("tagger", "parser", "lemmatizer", "attribute_ruler", "senter", "morphologizer")
_ENTITIES: Final = {"PERSON": "PERSON", "PER": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION", "FAC": "LOCATION"}
_PHONE_LIKE: Final = re.compile(r"\d(?:\W{0,3}\d){6}")
# As many digits as an order number has, or a date, without a word beside it that says telephone.
_NO_PHONE: Final = re.compile(r"\d+\Z|\d{1,2}([./-])\d{1,2}\1\d{4}|\d{4}([./-])\d{1,2}\2\d{1,2}")
_LINE: Final = re.compile(r"[^\r\n]+")
_NO_NAME: Final = re.compile(r"[\d_{}\[\]<>=/\\@#$%^*|~`:]")
_MANY_LETTERS: Final = re.compile(r"[^\W\d_]{2}")


class PresidioDetector:
    """A `Detector`; loading takes seconds and about 250 MB, so it lives in a `DetectorPool`."""

    def __init__(self, model: str) -> None:
        """Load the spaCy package ``model``.

        Raises:
            Misconfigured: it is not installed, or it recognises no entities.
        """
        self.version = presidio_version(model)
        # Its warnings quote what they are about.
        logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
        registry = RecognizerRegistry(recognizers=_recognizers(), supported_languages=["en"])
        self._analyzer = AnalyzerEngine(registry=registry, nlp_engine=_EntityEngine(model), supported_languages=["en"])
        self._patterns = PatternDetector()

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """The spans of each text, from Presidio and from forms."""
        forms = self._patterns.detect(texts)
        return [sorted({*found, *self._analyze(text)}) for text, found in zip(texts, forms, strict=True)]

    def _analyze(self, text: str) -> Iterator[Span]:
        results = self._analyzer.analyze(text, language="en", entities=list(TYPES), score_threshold=THRESHOLD)
        for result in results:
            yield from _spans(text, result)


def presidio_version(model: str) -> str:
    """The version of a `PresidioDetector` with this model, without loading it.

    Raises:
        Misconfigured: the model is not installed.
    """
    if find_spec(model) is None:
        raise Misconfigured(
            "the spaCy model of the setting spacy_model is not installed",
            try_this="install the package, or set EBBTIDE_SPACY_MODEL to one that is installed",
        )
    of_model = metadata.version(model.replace("_", "-"))
    return f"presidio-{metadata.version('presidio-analyzer')}/{model}-{of_model}+{PatternDetector.version}"


def _spans(text: str, result: RecognizerResult) -> Iterator[Span]:
    """A result in our terms; what a language model took for a name and cannot be one is left out."""
    start, end, score = result.start, result.end, round(result.score, 2)
    kind = TYPES[result.entity_type]
    if kind == "PHONE" and score <= THRESHOLD and _NO_PHONE.match(text, start, end):
        return
    if kind not in ("PERSON", "LOCATION"):
        yield Span(start, end, kind, score)
        return
    for line in _LINE.finditer(text, start, end):
        if _MANY_LETTERS.search(line[0]) and not _NO_NAME.search(line[0]):
            yield Span(line.start(), line.end(), kind, score)


class _Email(EmailRecognizer):
    """Presidio's pattern; a mail address inside a company's own network is one too, so no suffix is looked up."""

    def validate_result(self, pattern_text: str) -> bool:
        return True


class _Phone(PhoneRecognizer):
    """Presidio's, asked only about texts with enough digits: it reads each text once per region."""

    def analyze(
        self, text: str, entities: list[str], nlp_artifacts: NlpArtifacts | None = None
    ) -> list[RecognizerResult]:
        if not _PHONE_LIKE.search(text):
            return []
        return super().analyze(text, entities, nlp_artifacts)  # type: ignore[arg-type]  # it takes None


def _recognizers() -> Iterable[EntityRecognizer]:
    return [
        SpacyRecognizer(supported_entities=["PERSON", "LOCATION"]),
        _Email(),
        _Phone(supported_regions=PHONE_REGIONS),
        CreditCardRecognizer(),
        IbanRecognizer(),
        IpRecognizer(),
        CryptoRecognizer(),
        UsSsnRecognizer(),
        UsItinRecognizer(),
        UsPassportRecognizer(),
    ]


class _EntityEngine(SpacyNlpEngine):
    """A spaCy pipeline that recognises entities and nothing else."""

    def __init__(self, model: str) -> None:
        nlp = spacy.load(model, exclude=list(_UNUSED_PIPES))
        if not nlp.has_pipe("ner"):
            raise Misconfigured(
                "the spaCy model of the setting spacy_model recognises no entities",
                try_this="set EBBTIDE_SPACY_MODEL to a model with an `ner` component",
            )
        if nlp.has_pipe("tok2vec") and not getattr(nlp.get_pipe("tok2vec"), "listening_components", ()):
            nlp.remove_pipe("tok2vec")
        ignored = [label for label in nlp.pipe_labels["ner"] if label not in _ENTITIES]
        super().__init__(
            models=[{"lang_code": "en", "model_name": model}],
            ner_model_configuration=NerModelConfiguration(
                labels_to_ignore=ignored, model_to_presidio_entity_mapping=dict(_ENTITIES)
            ),
        )
        self.nlp = {"en": nlp}  # type: ignore[assignment]

    def load(self) -> None:
        """Loaded when it was made."""

    def _doc_to_nlp_artifact(self, doc: Any, language: str) -> NlpArtifacts:
        # Without a lemmatiser the words themselves are what tells Presidio that a number is a passport's.
        for token in doc:
            token.lemma_ = token.lower_
        return super()._doc_to_nlp_artifact(doc, language)
