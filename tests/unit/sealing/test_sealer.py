"""The sealer: one content key a scope, on lease; erased is an answer, corrupt is an error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from ebbtide_platform.errors import Corrupt, Denied, Unavailable
from ebbtide_platform.keydoor import leases
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import ContentKey, Erased, KeyScope
from ebbtide_platform.sealing import sealer as sealing
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_schemas.records import SealedChunk

DAY_MS = 86_400_000


class CountingDoor(MemoryKeyDoor):
    """Counts how often keys are asked for."""

    asked = 0

    def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
        self.asked += 1
        return super().content_keys(scopes, create=create)


@pytest.fixture
def door() -> CountingDoor:
    return CountingDoor("acme", "globex")


@pytest.fixture
def sealer(door: CountingDoor) -> Sealer:
    return Sealer(door)


def _scope(door: MemoryKeyDoor, *people: str, tenant: str = "acme", trajectory: str = "t-1") -> KeyScope:
    refs = [ref for ref in door.subject_refs(tenant, people) if isinstance(ref, str)]
    return Sealer.key_scope(tenant, trajectory, refs, "raw")


def _sealed(sealer: Sealer, scope: KeyScope, plain: bytes = b"text") -> tuple[SealedChunk, ...]:
    chunks = sealer.seal(scope, "e-1", "s-1", plain)
    assert not isinstance(chunks, Erased)
    return chunks


def test_what_was_sealed_opens_again_in_another_process(door: CountingDoor, sealer: Sealer) -> None:
    chunks = _sealed(sealer, _scope(door, "ines"), b"where is my order")
    assert b"order" not in msgspec.msgpack.encode(chunks)
    assert Sealer(door).open(chunks) == b"where is my order"


def test_a_segment_about_nobody_is_the_tenants_whatever_the_trajectory() -> None:
    assert Sealer.key_scope("acme", "t-1", [], "raw") == KeyScope("acme", None, (), "raw")


def test_the_order_of_subjects_makes_no_difference() -> None:
    assert Sealer.key_scope("acme", "t", ["b", "a", "b"], "raw") == KeyScope("acme", "t", ("a", "b"), "raw")


def test_equal_segments_have_one_id_in_a_scope_and_unequal_ids_across(door: CountingDoor, sealer: Sealer) -> None:
    scopes = [
        _scope(door, "ines"),
        _scope(door, "ines", "raj"),
        _scope(door, "ines", trajectory="t-2"),
        _scope(door, "ines", tenant="globex"),
        KeyScope("acme", None, (), "raw"),
    ]
    ids = [sealer.segment_id(scope, b"{}") for scope in scopes]
    assert len(set(map(str, ids))) == len(scopes)
    assert sealer.segment_id(scopes[0], b"{}") == Sealer(door).segment_id(scopes[0], b"{}") == ids[0]
    assert sealer.segment_id(scopes[0], b"[]") != ids[0]


def test_entity_keys_are_no_content_keys(door: CountingDoor, sealer: Sealer) -> None:
    scope = _scope(door, "ines")
    content = door.content_keys([scope], create=True)[0]
    entity = sealer.entity_key(scope)
    assert isinstance(content, ContentKey)
    assert isinstance(entity, bytes)
    assert entity != content.key


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("segment", "s-2"),
        ("tenant", "globex"),
        ("tenant", "nobody"),
        ("trajectory", "t-2"),
        ("trajectory", None),
        ("subjects", ()),
        ("subjects", ("p-2",)),
        ("seal_class", "redacted"),
        ("seal_class", "quarantine"),
        ("first_event", "e-2"),
        ("chunk", 1),
        ("chunks", 2),
        ("day", "2026-01-31"),
        ("nonce", bytes(12)),
        ("data", bytes(40)),
    ],
)
def test_a_chunk_that_claims_something_else_is_corrupt(
    door: CountingDoor, sealer: Sealer, member: str, value: Any
) -> None:
    # The other keys exist, so that it is the chunk that is refused and not the scope.
    for trajectory in ("t-1", "t-2"):
        _sealed(sealer, _scope(door, "ines", trajectory=trajectory))
        _sealed(sealer, _scope(door, "ines", tenant="globex", trajectory=trajectory))
    chunk = _sealed(sealer, _scope(door, "ines"))[0]
    with pytest.raises(Corrupt):
        sealer.open([msgspec.structs.replace(chunk, **{member: value})])


def test_another_tenants_chunk_does_not_open_with_the_readers_own_people(door: CountingDoor, sealer: Sealer) -> None:
    theirs, ours = _scope(door, "u-1", tenant="globex"), _scope(door, "u-1")
    assert theirs.subjects != ours.subjects
    _sealed(sealer, ours)
    chunk = msgspec.structs.replace(_sealed(sealer, theirs)[0], tenant="acme", subjects=ours.subjects)
    with pytest.raises(Corrupt):
        sealer.open([chunk])


def test_many_segments_are_opened_with_one_question(door: CountingDoor, sealer: Sealer) -> None:
    scopes = [_scope(door, "ines", trajectory=f"t-{n}") for n in range(20)]
    sealer.warm(scopes)
    segments = [_sealed(sealer, scope, str(n).encode()) for n, scope in enumerate(scopes)]
    assert door.asked == 1
    reader = Sealer(door)
    assert reader.open_many(segments) == [str(n).encode() for n in range(20)]
    assert door.asked == 2


def test_a_key_is_asked_for_once_in_its_lease(door: CountingDoor, sealer: Sealer) -> None:
    scope = _scope(door, "ines")
    for _ in range(50):
        assert sealer.open(_sealed(sealer, scope)) == b"text"
    assert door.asked == 1


def test_a_key_is_asked_for_again_after_its_lease(
    door: CountingDoor, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 0.0)
    scope = _scope(door, "ines")
    _sealed(sealer, scope)
    _sealed(sealer, scope)
    assert door.asked == 2


def test_a_destruction_reaches_every_sealer_within_two_seconds(door: CountingDoor, sealer: Sealer) -> None:
    assert sealing.FENCE_EVERY_S < 2
    shared, other = _scope(door, "ines", "raj"), _scope(door, "raj")
    segments = [_sealed(sealer, shared), _sealed(sealer, other, b"raj's own")]
    door.destroy_subject("acme", "INES ")
    deadline = time.monotonic() + 2
    while sealer.open(segments[0]) != Erased() and time.monotonic() < deadline:
        pass
    assert sealer.open_many(segments) == [Erased(), b"raj's own"]
    assert sealer.seal(shared, "e", "s", b"") == sealer.segment_id(shared, b"") == sealer.entity_key(shared) == Erased()


def test_a_key_that_was_asked_for_before_a_destruction_is_not_kept_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "FENCE_EVERY_S", 0.0)

    class SlowDoor(CountingDoor):
        """Its answer arrives after the subject was destroyed and another call has seen the fence rise."""

        def content_keys(self, scopes: Sequence[KeyScope], *, create: bool) -> list[ContentKey | Erased | None]:
            answer = super().content_keys(scopes, create=create)
            if self.asked == 1:
                self.destroy_subject("acme", "ines")
                slow.segment_id(KeyScope("acme", None, (), "raw"), b"")
                monkeypatch.undo()
            return answer

    door = SlowDoor("acme")
    slow = Sealer(door)
    scope = _scope(door, "ines")
    slow.segment_id(scope, b"{}")
    assert slow.segment_id(scope, b"{}") == Erased()


def test_a_door_that_refuses_or_is_silent_is_heard(door: CountingDoor, sealer: Sealer) -> None:
    with pytest.raises(Denied):
        sealer.seal(KeyScope("acme", "t-1", ("nobody-known",), "raw"), "e", "s", b"")

    class SilentDoor(MemoryKeyDoor):
        def fence(self) -> int:
            raise Unavailable("silent")

    with pytest.raises(Unavailable):
        Sealer(SilentDoor("acme")).segment_id(KeyScope("acme", None, (), "raw"), b"")


def test_threads_share_a_sealer(door: CountingDoor, sealer: Sealer) -> None:
    scopes = [_scope(door, "ines", trajectory=f"t-{n % 5}") for n in range(200)]

    def work(number: int) -> bool:
        plain = str(number).encode()
        return sealer.open(_sealed(sealer, scopes[number], plain)) == plain

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


def test_the_key_cache_is_bounded(door: CountingDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "CACHED_KEYS", 3)
    sealer = Sealer(door)
    scopes = [_scope(door, "ines", trajectory=f"t-{n}") for n in range(4)]
    for scope in scopes:
        sealer.entity_key(scope)
    asked = door.asked
    sealer.entity_key(scopes[3])
    assert door.asked == asked
    sealer.entity_key(scopes[0])
    assert door.asked == asked + 1


# --- quarantine ---------------------------------------------------------------------------------------------


def test_what_nobody_owns_opens_until_its_day_is_21_days_gone() -> None:
    now_ms = [leases.now_ms()]
    door = MemoryKeyDoor("acme", clock_ms=lambda: now_ms[0])
    for tenant in ("acme", None):
        chunks = Sealer(door).seal_quarantine(tenant, "e-1", b"no json", now_ms[0])
        assert Sealer(door).open(chunks) == b"no json"
    now_ms[0] += 21 * DAY_MS
    assert Sealer(door).open(chunks) == Erased()


def test_quarantine_under_a_tenant_that_is_none_falls_to_the_deployment(sealer: Sealer) -> None:
    for claimed in ("unknown", "../../etc"):
        chunks = sealer.seal_quarantine(claimed, "e-1", b"x", leases.now_ms())
        assert chunks[0].tenant == ""
        assert sealer.open(chunks) == b"x"


@pytest.mark.parametrize("day", [None, "2026-02-30", "9999-01-01", "today"])
def test_quarantine_of_no_day_is_corrupt(sealer: Sealer, day: str | None) -> None:
    chunk = sealer.seal_quarantine("acme", "e-1", b"x", leases.now_ms())[0]
    with pytest.raises(Corrupt):
        sealer.open([msgspec.structs.replace(chunk, day=day)])


def test_a_clock_that_is_far_behind_seals_nothing(sealer: Sealer) -> None:
    with pytest.raises(Denied):
        sealer.seal_quarantine("acme", "e-1", b"x", leases.now_ms() - 30 * DAY_MS)
