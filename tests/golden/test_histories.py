"""What earlier versions took in and wrote down means today what it meant then."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.codec import decode, decode_any, encode
from ebbtide_platform.ports import OutRecord
from ebbtide_platform.topics import CURATED_PREFIX, FACTS, GROUPS
from ebbtide_schemas.records import FactRecord
from golden.acts import read_acts
from golden.keyring import Keyring, door_of
from golden.members import RECORD_TYPES, like, plain, tag_of
from golden.outcome import curated_of, names_of, outcome
from golden.platform_in_memory import LogEntry, Platform
from golden.record import ROOT, record
from golden.story import ADELE, BEN

VERSIONS = sorted(path.parent.name for path in ROOT.glob("*/expected.json"))
each_version = pytest.mark.parametrize("version", VERSIONS)


@each_version
def test_the_same_events_have_the_same_outcome(version: str, tmp_path: Path) -> None:
    acts = read_acts((ROOT / version / "events.ndjson").read_text("utf-8"))
    platform = Platform(_keyring(version))

    answers = platform.perform(acts, tmp_path)

    assert _as_json({"answers": answers} | outcome(platform, names_of(acts, platform.door))) == _expected(version)


@each_version
def test_the_sealed_log_has_the_same_outcome(version: str) -> None:
    platform = Platform(_keyring(version))

    platform.replay(_log(version))

    assert _outcome(platform, version) == _without_answers(version)


@each_version
def test_a_log_replayed_after_its_erasures_shows_what_was_left_by_them(version: str) -> None:
    """Keys that are gone from the beginning leave the holes that they left when they went."""
    platform = Platform(_keyring(version))
    for entry in _log(version):
        if entry.topic == FACTS.name:
            platform.erase(decode(entry.value, FactRecord))

    platform.replay(_log(version))

    assert _in_the_end(_outcome(platform, version)) == _in_the_end(_without_answers(version))


@each_version
def test_curated_topics_read_as_they_did(version: str) -> None:
    written = [entry for entry in _log(version) if entry.topic.startswith(CURATED_PREFIX) or entry.topic == GROUPS.name]
    log = MemoryLog(1)
    log.write([OutRecord(entry.topic, entry.key, entry.value, entry.headers) for entry in written])
    door = door_of(_keyring(version), lambda: written[-1].at_ms)

    # Its history ends with the erasures done, and its last revisions hold nothing of those persons any more.
    assert _as_json(curated_of(log, door)) == _expected(version)["curated"]


@each_version
def test_every_record_decodes_to_what_was_written(version: str) -> None:
    values, known = _records(version), _read_json(version, "records")
    read = {name: plain(decode_any(value)) for name, value in values.items()}
    assert {name: like(known[name], value) for name, value in read.items()} == known


@each_version
def test_a_record_read_and_written_again_loses_nothing(version: str) -> None:
    for value in _records(version).values():
        assert decode_any(encode(decode_any(value))) == decode_any(value)


@each_version
def test_a_recorded_log_holds_no_text_in_clear(version: str) -> None:
    log = (ROOT / version / "log.msgpack").read_bytes()
    assert [text for text in (ADELE, BEN, "Adele Quill", "Where is order") if text.encode() in log] == []


def test_this_version_is_recorded_with_every_type_of_record() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text("utf-8"))
    version = project["project"]["version"]
    assert version in VERSIONS, f"PYTHONPATH=tests python -m golden.record {version}"
    kinds = [f"{tag_of(kind)}/{how}" for kind in RECORD_TYPES for how in ("full", "least", "most")]
    assert sorted(_records(version)) == sorted(kinds)


def test_a_version_is_recorded_once(tmp_path: Path) -> None:
    (tmp_path / "9.9.9").mkdir()
    with pytest.raises(FileExistsError):
        record("9.9.9", tmp_path)


def test_what_is_recorded_now_can_be_replayed(tmp_path: Path) -> None:
    folder = record("9.9.9", tmp_path)
    platform = Platform(msgspec.json.decode((folder / "keys.json").read_bytes(), type=Keyring))
    platform.replay(msgspec.msgpack.decode((folder / "log.msgpack").read_bytes(), type=list[LogEntry]))
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    acts = read_acts((folder / "events.ndjson").read_text("utf-8"))
    assert _as_json(outcome(platform, names_of(acts, platform.door))) == _but(expected, "answers")


# --- what is in a folder -----------------------------------------------------------------------------------------


def _keyring(version: str) -> Keyring:
    return msgspec.json.decode((ROOT / version / "keys.json").read_bytes(), type=Keyring)


def _log(version: str) -> Sequence[LogEntry]:
    return msgspec.msgpack.decode((ROOT / version / "log.msgpack").read_bytes(), type=list[LogEntry])


def _records(version: str) -> dict[str, bytes]:
    return msgspec.msgpack.decode((ROOT / version / "records.msgpack").read_bytes(), type=dict[str, bytes])


def _read_json(version: str, name: str) -> Any:
    return json.loads((ROOT / version / f"{name}.json").read_text("utf-8"))


def _expected(version: str) -> Any:
    return _read_json(version, "expected")


def _without_answers(version: str) -> Any:
    return _but(_expected(version), "answers")


# --- what came out -----------------------------------------------------------------------------------------------


def _outcome(platform: Platform, version: str) -> Any:
    acts = read_acts((ROOT / version / "events.ndjson").read_text("utf-8"))
    return _as_json(outcome(platform, names_of(acts, platform.door)))


def _as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


def _in_the_end(found: Any) -> Any:
    """Every trajectory without its way there: which revision it is, and what was said of earlier ones."""
    return {name: _but(shown, "revision", "told") for name, shown in found["trajectories"].items()}


def _but(found: dict[str, Any], *members: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in members}
