"""What sealing adds to compression, and what a sealer with its keys in memory adds to sealing."""

from __future__ import annotations

import zstandard

from bench.timing import Row, rate, rows
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import KeyScope
from ebbtide_platform.sealing.aead import open_segment, seal_segment
from ebbtide_platform.sealing.identity import random_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.events import Segment

SENTENCE = "The order of {} left the warehouse on day {} and will arrive by the end of that week. "
SIZES = {"a chat message": 12, "a long tool result": 1_200}
"""Sentences of a segment."""
LEVEL = 3
"""The level that segments are sealed with."""


def bench() -> list[Row]:
    """Seal and open one segment, of two sizes."""
    return [row for name, sentences in SIZES.items() for row in _bench(f"seal and open {name}", sentences)]


def _bench(name: str, sentences: int) -> list[Row]:
    text = "".join(SENTENCE.format(number * 7_919, number) for number in range(sentences))
    plain = canonical(Segment(role="user", content=text))
    door = MemoryKeyDoor("acme")
    (subject,) = door.subject_refs("acme", ["ines"])
    assert isinstance(subject, str)
    scope = KeyScope("acme", random_id(), (subject,), "raw")
    event, segment, key = random_id(), random_id(), bytes(32)
    sealer = Sealer(door)

    def compress() -> None:
        packed = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(plain)
        zstandard.ZstdDecompressor().decompress(packed)

    def seal() -> None:
        open_segment(key, seal_segment(key, scope, first_event=event, segment=segment, plain=plain))

    def seal_with_cached_key() -> None:
        chunks = sealer.seal(scope, event, segment, plain)
        assert isinstance(chunks, tuple)
        sealer.open(chunks)

    works = {"zstd alone": compress, "seal and open": seal, "Sealer, keys cached": seal_with_cached_key}
    return rows(name, "segments", [(what, rate(work)) for what, work in works.items()])
