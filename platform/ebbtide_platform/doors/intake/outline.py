"""What of a step is sealed, each piece by itself and under the key of the people it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from ebbtide_platform.doors.intake.drafts import Names, People, canonical_bytes, references
from ebbtide_platform.errors import TooLarge
from ebbtide_platform.ports import KeyScope
from ebbtide_platform.sealing.identity import trajectory_id
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.events import Role, Segment, Step
from ebbtide_schemas.records import SegmentKind

MAX_PEOPLE = 256
"""People one step is about: the key of its sampler record is wrapped once for each, inside one another."""

Place = Literal["observation", "tools", "action", "outcome", "hidden", "sampler"]


@dataclass(frozen=True)
class Piece:
    """One thing that is sealed by itself: where it belongs in the header, what it is, and under which key."""

    place: Place
    kind: SegmentKind
    field: str
    role: Role | None
    plain: bytes
    scope: KeyScope


def own_identities(step: Step) -> list[str]:
    """Whom a step is about by itself; if nobody was named, the session's own subject stands in.

    An alias learned later may link that one to a person.
    """
    return step.meta.subjects or [f"session:{step.meta.session or step.trajectory}"]


def identities(step: Step) -> set[str]:
    """Everybody a step is about, by the names that its producer has for them."""
    return {*own_identities(step), *(one for _, _, segment in _messages(step) for one in segment.subjects or ())}


def outline_step(step: Step, names: Names, people: People) -> list[Piece]:
    """The pieces of a step, in the order of their places.

    Raises:
        SubjectErased: it is about somebody who has been erased.
        TooLarge: it is about too many people.
        InvalidInput: something in it has no canonical form.
    """
    trajectory = trajectory_id(names.key, step.trajectory)

    def scope(about: Iterable[str], field: str) -> KeyScope:
        return Sealer.key_scope(names.tenant, trajectory, references(about, people, field), "raw")

    everybody = identities(step)
    if len(everybody) > MAX_PEOPLE:
        raise TooLarge("$", f"a step is about at most {MAX_PEOPLE} people")
    own = scope(own_identities(step), "meta.subjects")
    pieces = []
    for place, field, segment in _messages(step):
        about = own if segment.subjects is None else scope(segment.subjects, f"{field}.subjects")
        # Whom it is about is the key's to say: an identity inside would come out again with the text.
        plain = canonical_bytes(msgspec.structs.replace(segment, subjects=None), field)
        pieces.append(Piece(place, "message", field, segment.role, plain, about))
    nobody = Sealer.key_scope(names.tenant, None, (), "raw")
    for position, tool in enumerate(step.observation.tools):
        field = f"observation.tools[{position}]"
        pieces.append(Piece("tools", "tool-definition", field, None, canonical_bytes(tool, field), nobody))
    if step.hidden is not None or step.outcome.error is not None:
        # Neither is part of what a model read or said, and both may be about people.
        plain = canonical_bytes({"state": step.hidden, "error": step.outcome.error}, "hidden")
        pieces.append(Piece("hidden", "hidden", "hidden", None, plain, own))
    if step.action is not None and step.action.sampler is not None:
        # Token ids encode the whole prompt, whomever its segments are about.
        field = "action.sampler"
        plain = canonical_bytes(step.action.sampler, field)
        pieces.append(Piece("sampler", "sampler", field, None, plain, scope(everybody, field)))
    return pieces


def _messages(step: Step) -> Iterator[tuple[Place, str, Segment]]:
    for position, segment in enumerate(step.observation.segments):
        yield "observation", f"observation.segments[{position}]", segment
    if step.action is not None:
        yield "action", "action.segment", step.action.segment
    for position, segment in enumerate(step.outcome.results):
        yield "outcome", f"outcome.results[{position}]", segment
