"""Records the history of a version, to be replayed by every later one.

``PYTHONPATH=tests python -m golden.record 0.2.0`` writes the folder ``0.2.0``.

A folder is written once and never again, since what it holds stands for logs that are out there. Where a result
changes on purpose (a detector that finds more), ``expected.json`` is changed by hand, for a reviewer to see.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ebbtide_platform.codec import decode_any, encode
from ebbtide_platform.errors import Poison
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_schemas.records import LogRecord
from golden.acts import write_acts
from golden.keyring import keyring_of
from golden.members import RECORD_TYPES, full_record, member_names, plain, tag_of
from golden.outcome import names_of, outcome
from golden.platform_in_memory import LogEntry, Platform
from golden.story import story

ROOT = Path(__file__).parent
TENANTS = ("acme", "globex")
VERSION = re.compile(r"\d+\.\d+\.\d+\Z")


def record(version: str, root: Path = ROOT) -> Path:
    """Let the story happen and write down what went in, what stood on the log, its keys, and what came out.

    Raises:
        FileExistsError: that version has been recorded.
    """
    folder = root / version
    if folder.exists():
        raise FileExistsError(folder)
    acts = story()
    platform = Platform(keyring_of(MemoryKeyDoor(*TENANTS)))
    with tempfile.TemporaryDirectory() as outbox:
        answers = platform.perform(acts, Path(outbox))
    expected = {"answers": answers} | outcome(platform, names_of(acts, platform.door))
    records = _records(platform.log.written)
    folder.mkdir()
    (folder / "events.ndjson").write_text(write_acts(acts), "utf-8")
    (folder / "log.msgpack").write_bytes(msgspec.msgpack.encode(platform.log.written))
    (folder / "records.msgpack").write_bytes(
        msgspec.msgpack.encode({name: encode(read) for name, read in records.items()})
    )
    _write_json(folder / "records.json", {name: plain(read) for name, read in records.items()})
    _write_json(folder / "keys.json", msgspec.to_builtins(platform.keyring))
    _write_json(folder / "expected.json", expected)
    return folder


def _records(written: Iterable[LogEntry]) -> dict[str, LogRecord]:
    """Of every type one record with all members, and those with the least and the most that the history wrote."""
    found: dict[str, LogRecord] = {f"{tag_of(kind)}/full": full_record(kind) for kind in RECORD_TYPES}
    for entry in written:
        try:
            read = decode_any(entry.value)
        except Poison:
            continue
        least, most = f"{tag_of(read)}/least", f"{tag_of(read)}/most"
        members = len(member_names(read))
        if least not in found or members < len(member_names(found[least])):
            found[least] = read
        if most not in found or members > len(member_names(found[most])):
            found[most] = read
    return dict(sorted(found.items()))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def main(arguments: list[str]) -> int:
    """The exit status: 2 for a version that is none, 1 for one that has been recorded."""
    if len(arguments) != 1 or not VERSION.match(arguments[0]):
        print("usage: python -m golden.record MAJOR.MINOR.PATCH", file=sys.stderr)
        return 2
    try:
        print(record(arguments[0]))
    except FileExistsError:
        print(f"{arguments[0]} has been recorded, and stands for logs that are out there", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
