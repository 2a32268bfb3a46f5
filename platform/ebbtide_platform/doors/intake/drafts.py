"""What all events have in common on their way in: names, people, canonical bytes, and records with headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ebbtide_platform import codec
from ebbtide_platform.errors import InvalidInput, SubjectErased, TooLarge
from ebbtide_platform.ports import Erased, OutRecord
from ebbtide_platform.topics import Topic
from ebbtide_schemas.canonical import CanonicalError, canonical
from ebbtide_schemas.records import LogRecord

People = Mapping[str, str | Erased]
"""The reference of each identity that a batch names."""


@dataclass(frozen=True)
class Names:
    """A tenant, the key of its ids, and when this door received what it names (milliseconds since the epoch)."""

    tenant: str
    key: bytes
    received_ms: int


@dataclass(frozen=True)
class Draft:
    """An event that is told apart by ``event`` and ``digest``; ``seal`` makes its records, in their order.

    ``seal`` raises `SubjectErased` if a key was destroyed meanwhile, and `TooLarge` for what no record holds.
    """

    event: str
    digest: str
    seal: Callable[[], tuple[OutRecord, ...]]


def canonical_bytes(value: object, field: str) -> bytes:
    """The canonical form of a part of an event.

    Raises:
        InvalidInput: it has none.
    """
    try:
        return canonical(value)
    except CanonicalError as error:
        raise InvalidInput(field, str(error)) from None


def references(identities: Iterable[str], people: People, field: str) -> list[str]:
    """The references of some of the people.

    Raises:
        SubjectErased: one of them has been erased.
    """
    found = []
    for identity in identities:
        reference = people[identity]
        if isinstance(reference, Erased):
            raise erased(field)
        found.append(reference)
    return found


def erased(field: str) -> SubjectErased:
    """The refusal of what is about somebody who has been erased; it does not say who."""
    return SubjectErased(field, "is about a person who has been erased", try_this="send it without that person")


def out_record(topic: Topic, key: str, kind: str, record: LogRecord, event: str, names: Names) -> OutRecord:
    """``record`` as it is written, with the CloudEvents headers of its event.

    Raises:
        TooLarge: it has more than `codec.MAX_RECORD_BYTES`.
    """
    value = codec.encode(record)
    if len(value) > codec.MAX_RECORD_BYTES:
        raise TooLarge("$", f"its {kind} record has more than {codec.MAX_RECORD_BYTES} bytes")
    headers = codec.headers(event=event, kind=kind, source="door", time_ms=names.received_ms, tenant=names.tenant)
    return OutRecord(topic=topic.name, key=key.encode(), value=value, headers=tuple(headers))
