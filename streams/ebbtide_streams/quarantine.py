"""What happens to a record that can never be processed: sealed whole, set aside with its reason, replayable."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ebbtide_platform.codec import encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.topics import QUARANTINE, SHARED
from ebbtide_schemas.records import QuarantineRecord

_KEYED_BY_TRAJECTORY = frozenset(topic.name for topic in SHARED if topic.key == "trajectory")
MAX_ID_BYTES = 64
"""Longer keys and ids were written by nobody of ours and are not repeated in clear."""
CARRIED_BYTES = 960_000
"""Of a whole record, with room for key and headers below Kafka's 1 MB; what is larger is only referred to."""


class Quarantine:
    """Turns poison into `QuarantineRecord`s; the same record always gives the same id."""

    def __init__(self, stage: str, sealer: Sealer, now_ms: Callable[[], int]) -> None:
        self._stage = stage
        self._sealer = sealer
        self._now_ms = now_ms

    def output(self, record: InRecord, poison: Poison) -> OutRecord:
        """The record to write instead of what the stage would have written."""
        now_ms = self._now_ms()
        found = dict(record.headers)
        tenant = _identifier(found.get("ce_tenant"))
        trajectory = _identifier(record.key) if record.topic in _KEYED_BY_TRAJECTORY else None
        event = f"{record.topic}-{record.partition}-{record.offset}"
        set_aside = QuarantineRecord(
            stage=self._stage,
            reason=poison.reason,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            tenant=tenant,
            trajectory=trajectory,
            event=_identifier(found.get("ce_id")),
            sealed=self._sealer.seal_quarantine(tenant, event, record.value or b"", now_ms),
            quarantined_ms=now_ms,
        )
        value = encode(set_aside)
        if len(value) > CARRIED_BYTES:
            value = encode(msgspec.structs.replace(set_aside, sealed=()))
        stamped = headers(event=event, kind="quarantine", source=self._stage, time_ms=now_ms, tenant=tenant)
        key = record.key if record.key is not None and _identifier(record.key) is not None else b""
        return OutRecord(QUARANTINE.name, key, value, tuple(stamped))


def _identifier(raw: bytes | None) -> str | None:
    """A key or header value if it looks like an id of ours."""
    if raw is None or not 0 < len(raw) <= MAX_ID_BYTES or not raw.isascii():
        return None
    text = raw.decode("ascii")
    return text if all(letter.isalnum() or letter in "-._" for letter in text) else None
