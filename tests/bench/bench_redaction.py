"""How much text a detector looks at in a second of one core."""

from __future__ import annotations

import json
import time

from bench.timing import Row, rate, rows
from ebbtide_governance.redaction.patterns import PatternDetector
from ebbtide_governance.redaction.presidio import PresidioDetector
from ebbtide_governance.redaction.scan import scan
from ebbtide_platform.local.workload import generate
from ebbtide_platform.settings import Settings
from ebbtide_schemas.messages import segments_of

CONVERSATIONS = 6
"""Of the demo's agents: some 25 texts, in prose and in JSON."""
KB = 1_000


def bench() -> list[Row]:
    """Detect in the texts of the demo's conversations."""
    messages = [message for talk in generate(CONVERSATIONS) for turn in talk.turns for message in turn.messages]
    unique = list({json.dumps(message, sort_keys=True): message for message in messages}.values())
    texts = [text for message in unique for segment in segments_of(message) for text in scan(segment).texts]
    amount = sum(len(text.encode()) for text in texts) / KB
    presidio = PresidioDetector(Settings().spacy_model)
    detectors = {"PatternDetector": PatternDetector(), "PresidioDetector": presidio}
    rates = [
        (what, rate(lambda looks=looks: looks.detect(texts), amount=amount, clock=time.process_time))  # type: ignore[misc]
        for what, looks in detectors.items()
    ]
    return rows("redaction", "kB, CPU time", rates)
