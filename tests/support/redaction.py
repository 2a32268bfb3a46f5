"""Redaction end to end over plain chat messages, and detectors that fail on purpose (importable by pool workers)."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ebbtide_governance.redaction.detector import Detector, Span
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_governance.redaction.render import Renderer
from ebbtide_governance.redaction.scan import scan
from ebbtide_platform.errors import Misconfigured
from ebbtide_schemas.messages import message_of, segment_of
from ebbtide_schemas.records import Finding


def redact(messages: Sequence[Mapping[str, Any]], detector: Detector | None = None) -> list[dict[str, Any]]:
    """The messages of one trajectory as a consumer gets them."""
    looks = detector or PatternDetector()
    segments = [segment_of(message) for message in messages]
    renderer = Renderer()
    found: list[tuple[Finding, ...]] = []
    for segment in segments:
        laid_out = scan(segment)
        spans = [of_text for of_text in looks.detect(laid_out.texts) if of_text is not None]
        found.append(laid_out.findings(spans, lambda value: ""))
        renderer.learn(segment, found[-1])
    return [message_of(renderer.render(segment, findings)) for segment, findings in zip(segments, found, strict=True)]


def redact_text(text: str, detector: Detector | None = None) -> str:
    """One user message, redacted on its own."""
    (message,) = redact([{"role": "user", "content": text}], detector)
    content = message["content"]
    assert isinstance(content, str)
    return content


class FrailDetector(PatternDetector):
    """Obeys the texts ``die``, ``hang`` and ``raise``; finds what has a form in all others."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        if "die" in texts:
            os._exit(9)
        if "hang" in texts:
            threading.Event().wait()
        if "raise" in texts:
            raise ValueError("raise")
        return super().detect(texts)


class PidDetector(PatternDetector):
    """Finds, in any text, a span as long as its process id."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(0, os.getpid(), "PID", 1.0)] for _ in texts]


def refuse() -> Detector:
    """A detector that cannot be made on this machine."""
    raise Misconfigured("no model of that name is installed")
