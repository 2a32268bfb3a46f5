"""Step digests, chain order and the trajectory root."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ebbtide_schemas.chain import chain_order, header_digest, trajectory_root, verify_chain
from ebbtide_schemas.records import StepHeader
from support.atdp import vectors

VECTORS = vectors("chain")
HEADERS = [msgspec.convert(vector["header"], StepHeader) for vector in VECTORS["vectors"]]


def _digested(header: StepHeader) -> StepHeader:
    return msgspec.structs.replace(header, digest=header_digest(header))


def test_a_header_has_the_digest_of_its_vector() -> None:
    assert [header_digest(header) for header in HEADERS] == [vector["digest"] for vector in VECTORS["vectors"]]


def test_the_root_is_that_of_the_vectors() -> None:
    ordered = chain_order(HEADERS)
    assert [header.event for header in ordered] == VECTORS["order"]
    assert trajectory_root([header.digest for header in ordered]) == VECTORS["root"]


def test_receipt_time_and_what_it_judged_are_outside_the_digest() -> None:
    header = HEADERS[0]
    again = msgspec.structs.replace(header, received_ms=header.received_ms + 10**9, time_suspect=True)
    assert header_digest(again) == header.digest


@pytest.mark.parametrize("member", ["tenant", "parent", "purpose", "event", "consent_basis"])
def test_any_other_change_changes_the_digest(member: str) -> None:
    assert header_digest(msgspec.structs.replace(HEADERS[1], **{member: "other"})) != HEADERS[1].digest


def test_the_order_of_arrival_says_nothing() -> None:
    orders = {tuple(h.event for h in chain_order(shuffled)) for shuffled in itertools.permutations(HEADERS)}
    assert len(orders) == 1


def test_a_parent_stands_before_its_child_whatever_their_ordinals_say() -> None:
    parent = msgspec.structs.replace(HEADERS[1], event="p", ordinal=9, parent=None)
    child = msgspec.structs.replace(HEADERS[1], event="c", ordinal=1, parent="p")
    assert [header.event for header in chain_order([child, parent])] == ["p", "c"]


def test_a_sound_chain_has_no_problem() -> None:
    assert verify_chain(HEADERS[:4], trajectory_root([h.digest for h in chain_order(HEADERS[:4])])) == []


def test_every_kind_of_damage_is_named() -> None:
    sound = HEADERS[:4]
    assert "does not match" in verify_chain([msgspec.structs.replace(sound[0], purpose="other")])[0]
    assert "absent" in verify_chain(HEADERS)[0]
    assert "stands 2 times" in verify_chain([*sound, sound[0]])[0]
    assert verify_chain(sound, "0" * 64) == ["the trajectory root does not match the steps"]
    assert "several trajectories" in " ".join(
        verify_chain([*sound, _digested(msgspec.structs.replace(sound[0], event="x", trajectory="t"))])
    )


def test_parents_in_a_ring_are_named_and_end_the_walk() -> None:
    ring = [
        _digested(msgspec.structs.replace(HEADERS[1], event="a", parent="b")),
        _digested(msgspec.structs.replace(HEADERS[1], event="b", parent="a")),
    ]
    assert verify_chain(ring) == ["a: its parent descends from it"]
