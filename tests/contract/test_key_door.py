"""One suite for every key door: in memory, over the key store, and over the socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ebbtide_platform.errors import Denied, InvalidInput, NotFound, Unauthenticated
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.keydoor.server import DoorServer, write_tokens
from ebbtide_platform.ports import ContentKey, Erased, KeyDoor, KeyScope
from ebbtide_platform.settings import Settings
from support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "local", "remote"])
def door(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Iterator[KeyDoor]:
    """A door that knows the tenants acme and globex."""
    with ExitStack() as opened:
        door: KeyDoor = MemoryKeyDoor(clock_ms=clock)
        if request.param != "memory":
            settings = Settings(data_dir=tmp_path)
            door = opened.enter_context(LocalKeyDoor(settings, clock_ms=clock))
            if request.param == "remote":
                opened.enter_context(DoorServer(door, settings.socket_path, write_tokens(settings)))
                door = opened.enter_context(RemoteKeyDoor(settings.socket_path, settings.token()))
        for tenant in ("acme", "globex"):
            assert door.create_tenant(tenant)
        yield door


def _refs(door: KeyDoor, *identities: str, tenant: str = "acme") -> tuple[str, ...]:
    refs = tuple(ref for ref in door.subject_refs(tenant, identities) if isinstance(ref, str))
    assert len(refs) == len(identities)
    return refs


def _key(door: KeyDoor, scope: KeyScope) -> bytes:
    key = door.content_keys([scope], create=True)[0]
    assert isinstance(key, ContentKey)
    return key.key


def _day(clock: Clock, ago: int = 0) -> str:
    return (datetime.fromtimestamp(clock() / 1000, UTC) - timedelta(days=ago)).date().isoformat()


# --- tenants and API keys -----------------------------------------------------------------------------------


def test_a_tenant_is_made_once(door: KeyDoor) -> None:
    assert not door.create_tenant("acme")
    assert door.tenants() == ["acme", "globex"]


@pytest.mark.parametrize("name", ["", "Acme", "../acme", "a b", "a" * 64])
def test_a_name_that_no_topic_could_have_makes_no_tenant(door: KeyDoor, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        door.create_tenant(name)
    assert refused.value.field == "tenant"


def test_an_api_key_says_its_tenant_and_its_scopes(door: KeyDoor) -> None:
    text = door.create_api_key("acme", "ci", ["read", "ingest"])
    principal = door.authenticate(text)
    assert (principal.tenant, principal.scopes) == ("acme", frozenset({"ingest", "read"}))
    assert text.startswith(f"ebb_{principal.key_id}_")
    assert door.api_keys("acme") == [(principal.key_id, "ci", ["ingest", "read"], False)]
    assert door.api_keys("globex") == []


def test_a_revoked_api_key_is_refused_at_once(door: KeyDoor) -> None:
    text = door.create_api_key("acme", "ci", ["ingest"])
    key_id = door.authenticate(text).key_id
    for _ in range(2):
        door.revoke_api_key("acme", key_id)
        with pytest.raises(Unauthenticated):
            door.authenticate(text)
    assert door.api_keys("acme") == [(key_id, "ci", ["ingest"], True)]


def test_an_api_key_that_is_almost_right_is_refused(door: KeyDoor) -> None:
    text = door.create_api_key("acme", "ci", ["ingest"])
    other = door.create_api_key("acme", "ci", ["ingest"])
    mixed = text[: len("ebb_") + 16] + other[len("ebb_") + 16 :]
    for wrong in ("", "ebb_", text[:-1], text + "x", text.upper(), mixed, "ebb_" + "0" * 16 + text[20:], text + "\n"):
        with pytest.raises(Unauthenticated):
            door.authenticate(wrong)


def test_a_tenant_cannot_revoke_anothers_api_key(door: KeyDoor) -> None:
    text = door.create_api_key("acme", "ci", ["ingest"])
    with pytest.raises(NotFound):
        door.revoke_api_key("globex", door.authenticate(text).key_id)
    assert door.authenticate(text).tenant == "acme"


def test_an_api_key_needs_a_scope(door: KeyDoor) -> None:
    with pytest.raises(InvalidInput):
        door.create_api_key("acme", "ci", [])


def test_a_tenant_that_does_not_exist_has_nothing(door: KeyDoor) -> None:
    for ask in (
        lambda: door.create_api_key("nobody", "ci", ["ingest"]),
        lambda: door.api_keys("nobody"),
        lambda: door.identity_key("nobody"),
        lambda: door.subject_refs("nobody", ["ines"]),
        lambda: door.content_keys([KeyScope("nobody", None, (), "raw")], create=True),
        lambda: door.day_key("nobody", "2026-01-01"),
        lambda: door.destroy_subject("nobody", "ines"),
    ):
        with pytest.raises(NotFound):
            ask()
    assert door.content_keys([KeyScope("nobody", None, (), "raw")], create=False) == [None]


def test_an_identity_key_is_the_tenants_and_stays(door: KeyDoor) -> None:
    assert len(door.identity_key("acme")) == 32
    assert door.identity_key("acme") == door.identity_key("acme") != door.identity_key("globex")


# --- subjects and content keys ------------------------------------------------------------------------------


def test_spellings_of_one_person_have_one_reference_and_others_their_own(door: KeyDoor) -> None:
    one = _refs(door, "Ines.Varga@Example.org", "ines.varga@example.org", " ines.varga@example.org ")
    assert len(set(one)) == 1
    others = _refs(door, "ines.varga+work@example.org", "ines.varga@example.com", "cust-42", "cust-420")
    assert len({*one, *others}) == 5


def test_equal_names_in_two_tenants_share_nothing(door: KeyDoor) -> None:
    ours, theirs = _refs(door, "u-1"), _refs(door, "u-1", tenant="globex")
    assert ours != theirs
    assert _key(door, KeyScope("acme", "t", ours, "raw")) != _key(door, KeyScope("globex", "t", theirs, "raw"))
    assert _key(door, KeyScope("acme", None, (), "raw")) != _key(door, KeyScope("globex", None, (), "raw"))


def test_erasing_a_name_in_one_tenant_leaves_the_other_whole(door: KeyDoor) -> None:
    _refs(door, "u-1")
    scope = KeyScope("globex", "t", _refs(door, "u-1", tenant="globex"), "raw")
    key = _key(door, scope)
    door.destroy_subject("acme", "u-1")
    assert _key(door, scope) == key
    assert _refs(door, "u-1", tenant="globex") == scope.subjects


def test_each_scope_has_a_key_of_its_own(door: KeyDoor) -> None:
    ines, raj = _refs(door, "ines", "raj")
    scope = KeyScope("acme", "t-1", (ines,), "raw")
    scopes = [
        scope,
        replace(scope, trajectory="t-2"),
        replace(scope, trajectory=None),
        replace(scope, subjects=(raj,)),
        replace(scope, subjects=tuple(sorted((ines, raj)))),
        replace(scope, subjects=()),
        replace(scope, seal_class="redacted"),
    ]
    keys = door.content_keys(scopes, create=True)
    assert len({key.key for key in keys if isinstance(key, ContentKey)}) == len(scopes)
    assert [_key(door, one) for one in scopes] == [key.key for key in keys if isinstance(key, ContentKey)]


def test_subjects_are_a_set(door: KeyDoor) -> None:
    ines, raj = _refs(door, "ines", "raj")
    keys = {_key(door, KeyScope("acme", "t", refs, "raw")) for refs in ((ines, raj), (raj, ines), (raj, ines, raj))}
    assert len(keys) == 1


def test_a_lease_is_at_most_a_minute(door: KeyDoor) -> None:
    key = door.content_keys([KeyScope("acme", None, (), "raw")], create=True)[0]
    assert isinstance(key, ContentKey)
    assert 0 < key.expires - time.monotonic() <= 60


def test_reading_makes_no_key(door: KeyDoor) -> None:
    scope = KeyScope("acme", "t", _refs(door, "ines"), "raw")
    assert door.content_keys([scope, replace(scope, subjects=("who",))], create=False) == [None, None]


def test_a_key_is_made_only_for_subjects_of_the_tenant(door: KeyDoor) -> None:
    for stranger in ("made-up", *_refs(door, "u-1", tenant="globex")):
        with pytest.raises(Denied):
            door.content_keys([KeyScope("acme", "t", (stranger,), "raw")], create=True)


def test_quarantine_has_no_content_key(door: KeyDoor) -> None:
    with pytest.raises(InvalidInput):
        door.content_keys([KeyScope("acme", None, (), "quarantine")], create=True)


def test_threads_that_ask_together_get_one_key_and_one_reference(door: KeyDoor) -> None:
    with ThreadPoolExecutor(8) as pool:
        refs = set(pool.map(lambda _: _refs(door, "ines"), range(32)))
        assert len(refs) == 1
        scope = KeyScope("acme", "t", refs.pop(), "raw")
        assert len(set(pool.map(lambda _: _key(door, scope), range(32)))) == 1


# --- destruction --------------------------------------------------------------------------------------------


def test_destroyed_is_erased_everywhere_and_for_good(door: KeyDoor) -> None:
    ines, raj = _refs(door, "ines", "raj")
    alone, shared = KeyScope("acme", "t", (ines,), "raw"), KeyScope("acme", "t", (ines, raj), "redacted")
    door.content_keys([alone, shared], create=True)
    ended = door.destroy_subject("acme", " INES")
    assert ended is not None
    assert ended.subject == ines
    assert ended.unreadable_ms <= ended.irrecoverable_ms
    assert door.subject_refs("acme", ["ines", "Ines ", "raj"]) == [Erased(), Erased(), raj]
    never_asked_for = replace(alone, trajectory="t-9")
    for create in (False, True):
        assert door.content_keys([alone, shared, never_asked_for], create=create) == [Erased()] * 3


def test_losing_one_person_of_a_set_keeps_the_others_alone(door: KeyDoor) -> None:
    _, raj = _refs(door, "ines", "raj")
    kept = KeyScope("acme", "t", (raj,), "raw")
    key = _key(door, kept)
    door.destroy_subject("acme", "ines")
    assert _key(door, kept) == key


def test_everybody_else_on_the_page_stays_readable(door: KeyDoor) -> None:
    people = [f"p-{n}" for n in range(300)]
    refs = _refs(door, *people)
    scopes = [KeyScope("acme", "t", (ref,), "raw") for ref in refs]
    before = door.content_keys(scopes, create=True)
    for number in (0, 1, 299):
        door.destroy_subject("acme", people[number])
    after = door.content_keys(scopes, create=False)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if number in (0, 1, 299):
            assert new == Erased()
        else:
            assert isinstance(old, ContentKey)
            assert isinstance(new, ContentKey)
            assert new.key == old.key


def test_nobody_to_destroy_is_none(door: KeyDoor) -> None:
    assert door.destroy_subject("acme", "ines") is None
    assert door.fence() == 0
    assert len(_refs(door, "ines")) == 1


def test_destroying_twice_gives_the_same_answer(door: KeyDoor) -> None:
    _refs(door, "ines")
    first = door.destroy_subject("acme", "ines")
    assert first is not None
    assert door.destroy_subject("acme", "Ines") == first


def test_the_fence_rises_with_each_destruction(door: KeyDoor) -> None:
    _refs(door, "ines", "raj")
    for expected, person in enumerate(("ines", "raj"), start=1):
        door.destroy_subject("acme", person)
        assert door.fence() == expected


def test_destruction_amid_other_work_ends_in_erased(door: KeyDoor) -> None:
    refs = _refs(door, *(f"p-{n}" for n in range(12)))

    def work(number: int) -> None:
        for turn in range(6):
            door.content_keys([KeyScope("acme", f"t-{turn}", (refs[number],), "raw")], create=True)
            if turn == 3 and number % 2:
                door.destroy_subject("acme", f"p-{number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    keys = door.content_keys([KeyScope("acme", "t-5", (ref,), "raw") for ref in refs], create=False)
    assert [isinstance(key, Erased) for key in keys] == [bool(number % 2) for number in range(12)]


# --- day keys -----------------------------------------------------------------------------------------------


def test_a_day_has_one_key_for_each_tenant_and_one_for_nobody(door: KeyDoor, clock: Clock) -> None:
    keys = [door.day_key(tenant, day) for tenant in ("acme", "globex", None) for day in (_day(clock), _day(clock, 1))]
    texts = [key.key for key in keys if isinstance(key, ContentKey)]
    assert len(set(texts)) == 6
    again = door.day_key("acme", _day(clock))
    assert isinstance(again, ContentKey)
    assert again.key == texts[0]


def test_a_day_key_ends_after_21_days(door: KeyDoor, clock: Clock) -> None:
    day = _day(clock)
    door.day_key("acme", day)
    clock.advance(days=20)
    assert isinstance(door.day_key("acme", day), ContentKey)
    clock.advance(days=1)
    assert door.day_key("acme", day) == Erased()
    assert door.day_key("acme", _day(clock, 400)) == Erased()


@pytest.mark.parametrize("day", ["", "2026-02-30", "20260101", "9998-01-01", "../../kek/0", "2026-W01-1"])
def test_a_day_that_is_none_or_not_come_has_no_key(door: KeyDoor, day: str) -> None:
    with pytest.raises(InvalidInput):
        door.day_key("acme", day)
