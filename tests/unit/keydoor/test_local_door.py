"""The key door over its store: what lies on the disk, what an old copy of it is worth, and what a kill leaves."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ebbtide_platform.errors import Misconfigured, Unavailable
from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.keydoor.keystore.subjects import PAGE_SUBJECTS
from ebbtide_platform.ports import ContentKey, Erased, KeyScope
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from support import killed_door
from support.clock import Clock

PEOPLE = [f"p-{n}" for n in range(5)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def keys(settings: Settings) -> Path:
    return settings.data_dir / "keys"


@pytest.fixture
def scopes(settings: Settings) -> list[KeyScope]:
    """A content key for each of `PEOPLE`, made by a door that is closed again."""
    with LocalKeyDoor(settings) as door:
        door.create_tenant("acme")
        refs = [ref for ref in door.subject_refs("acme", PEOPLE) if isinstance(ref, str)]
        made = [KeyScope("acme", "t", (ref,), "raw") for ref in refs]
        door.content_keys(made, create=True)
    return made


def _pages(keys: Path) -> set[str]:
    return {path.name for path in (keys / "kek/acme").glob("page-*.key")}


def _found(door: LocalKeyDoor, scopes: list[KeyScope]) -> list[bytes | Erased | None]:
    return [key.key if isinstance(key, ContentKey) else key for key in door.content_keys(scopes, create=False)]


def test_a_door_that_is_opened_again_has_everything(settings: Settings, scopes: list[KeyScope]) -> None:
    with LocalKeyDoor(settings) as door:
        api_key = door.create_api_key("acme", "ci", ["ingest"])
        seen = (_found(door, scopes), door.identity_key("acme"), door.day_key(None, "2020-01-01"))
    with LocalKeyDoor(settings) as door:
        assert (_found(door, scopes), door.identity_key("acme"), door.day_key(None, "2020-01-01")) == seen
        assert door.authenticate(api_key).tenant == "acme"


def test_two_doors_on_one_store_are_refused(settings: Settings) -> None:
    with LocalKeyDoor(settings), pytest.raises(Misconfigured):
        LocalKeyDoor(settings)
    with LocalKeyDoor(settings) as door:
        assert door.tenants() == []


def test_a_store_of_another_format_is_left_alone(settings: Settings, keys: Path, scopes: list[KeyScope]) -> None:
    with closing(sqlite3.connect(keys / "keystore.sqlite")) as database, database:
        database.execute("UPDATE facts SET number = 99 WHERE name = 'format'")
    with pytest.raises(Misconfigured):
        LocalKeyDoor(settings)


def test_a_store_that_cannot_be_read_is_unavailable_and_says_nothing_of_keys(settings: Settings, keys: Path) -> None:
    keys.mkdir(parents=True)
    (keys / "keystore.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(Unavailable) as error:
        LocalKeyDoor(settings)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("owner", ["_", "acme"])
def test_a_lost_kek_is_missed_and_not_replaced(
    settings: Settings, keys: Path, scopes: list[KeyScope], owner: str
) -> None:
    (keys / "kek" / owner / "kek-0.key").unlink()
    for _ in range(2):
        with pytest.raises(Misconfigured), LocalKeyDoor(settings) as door:
            door.subject_refs("acme", ["new"])


def test_only_the_owner_can_read_what_the_door_keeps(keys: Path, scopes: list[KeyScope]) -> None:
    for path in (keys, *keys.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name


def test_nothing_that_was_named_is_on_the_disk(settings: Settings, keys: Path) -> None:
    with LocalKeyDoor(settings) as door:
        door.create_tenant("acme")
        ref = door.subject_refs("acme", ["ines.varga@example.org"])[0]
        api_key = door.create_api_key("acme", "ci", ["ingest"])
        assert isinstance(ref, str)
        key = door.content_keys([KeyScope("acme", "t", (ref,), "raw")], create=True)[0]
        assert isinstance(key, ContentKey)
        plain = [b"ines", api_key.split("_", 2)[2].encode(), key.key, door.identity_key("acme")]
        door.destroy_subject("acme", "ines.varga@example.org")
    content = b"".join(path.read_bytes() for path in keys.rglob("*") if path.is_file())
    assert [secret in content for secret in plain] == [False] * len(plain)


def test_a_page_wraps_no_more_than_its_number_of_subjects(settings: Settings, keys: Path) -> None:
    with LocalKeyDoor(settings) as door:
        door.create_tenant("acme")
        door.subject_refs("acme", [f"p-{n}" for n in range(PAGE_SUBJECTS)])
        assert len(_pages(keys)) == 1
        door.subject_refs("acme", ["one more"])
        assert len(_pages(keys)) == 2


# --- old copies ---------------------------------------------------------------------------------------------


def test_a_destruction_replaces_the_page_key(settings: Settings, keys: Path, scopes: list[KeyScope]) -> None:
    before = _pages(keys)
    with LocalKeyDoor(settings) as door:
        door.destroy_subject("acme", "p-0")
    assert len(_pages(keys)) == len(before) == 1
    assert _pages(keys) != before


@pytest.mark.parametrize("with_suppression_list", [False, True], ids=["store alone", "store and suppression list"])
def test_an_old_copy_of_the_key_store_does_not_open(
    settings: Settings, keys: Path, scopes: list[KeyScope], tmp_path: Path, with_suppression_list: bool
) -> None:
    with LocalKeyDoor(settings) as door:
        sealed = Sealer(door).seal(scopes[0], "e-1", "s-1", b"text")
        assert not isinstance(sealed, Erased)
    names = ["keystore.sqlite"] + ["suppression.sqlite"] * with_suppression_list
    for name in names:
        shutil.copy(keys / name, tmp_path / name)
    with LocalKeyDoor(settings) as door:
        door.destroy_subject("acme", "p-0")
    for name in names:
        shutil.copy(tmp_path / name, keys / name)
    with LocalKeyDoor(settings) as door:
        if with_suppression_list:
            # Nothing is left that knows of the erasure; and still the page key is gone.
            with pytest.raises(Unavailable):
                Sealer(door).open(sealed)
        else:
            assert Sealer(door).open(sealed) == Erased()
            assert door.subject_refs("acme", ["p-0"]) == [Erased()]


def test_suppression_survives_the_loss_of_the_key_store(
    settings: Settings, keys: Path, scopes: list[KeyScope], tmp_path: Path
) -> None:
    """A store from before the person was seen knows no tombstone: the list alone keeps the name from coming back."""
    with LocalKeyDoor(settings) as door:
        shutil.copy(keys / "keystore.sqlite", tmp_path / "before")
        door.subject_refs("acme", ["late@example.org"])
        door.destroy_subject("acme", "late@example.org")
    shutil.copy(tmp_path / "before", keys / "keystore.sqlite")
    with LocalKeyDoor(settings) as door:
        assert door.subject_refs("acme", ["Late@example.org"]) == [Erased()]


# --- kills --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", killed_door.POINTS)
def test_a_kill_in_the_middle_of_a_rotation_leaves_the_store_openable(
    settings: Settings, keys: Path, scopes: list[KeyScope], point: str
) -> None:
    with LocalKeyDoor(settings) as door:
        living = _found(door, scopes)[1:]
    before = _pages(keys)
    script = str(Path(killed_door.__file__))
    died = subprocess.run([sys.executable, script, str(settings.data_dir), point], timeout=60)
    assert died.returncode == -signal.SIGKILL
    with LocalKeyDoor(settings) as door:
        assert _found(door, scopes) == [Erased(), *living]
        assert before & _pages(keys) == set()
        ended = door.destroy_subject("acme", "p-0")
        assert ended is not None
        assert ended.subject == scopes[0].subjects[0]
        assert ended.unreadable_ms <= ended.irrecoverable_ms
        assert door.fence() == 1
        assert len(door.subject_refs("acme", ["new"])) == 1


# --- time ---------------------------------------------------------------------------------------------------


def test_the_way_from_an_identity_to_its_reference_is_forgotten(settings: Settings, scopes: list[KeyScope]) -> None:
    clock = Clock()
    with LocalKeyDoor(settings, clock_ms=clock) as door:
        assert door.destroy_subject("acme", "p-0") == door.destroy_subject("acme", "p-0") is not None
        clock.advance(days=7)
        door.sweep()
        assert door.destroy_subject("acme", "p-0") is None
        assert door.subject_refs("acme", ["p-0"]) == [Erased()]


def test_suppression_ends_when_no_copy_can_be_left_but_the_old_reference_stays_erased(
    settings: Settings, scopes: list[KeyScope]
) -> None:
    clock = Clock()
    with LocalKeyDoor(settings, clock_ms=clock) as door:
        door.destroy_subject("acme", "p-0")
        clock.advance(days=1_098)
        door.sweep()
        ref = door.subject_refs("acme", ["p-0"])[0]
        assert isinstance(ref, str)
        assert ref not in scopes[0].subjects
        assert _found(door, scopes[:1]) == [Erased()]


def test_an_overdue_day_key_is_destroyed_at_its_port_when_the_door_opens(settings: Settings, keys: Path) -> None:
    clock = Clock()
    with LocalKeyDoor(settings, clock_ms=clock) as door:
        Sealer(door).seal_quarantine(None, "e-1", b"x", clock())
        assert len(list(keys.rglob("day-*.key"))) == 1
    clock.advance(days=21)
    with LocalKeyDoor(settings, clock_ms=clock):
        assert list(keys.rglob("day-*.key")) == []
