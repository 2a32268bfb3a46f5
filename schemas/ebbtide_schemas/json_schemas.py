"""JSON Schema 2020-12 files, generated from the types: one per event and record type and version.

::

    python -m ebbtide_schemas.json_schemas --check     are the files what the types say, and nothing broken?
    python -m ebbtide_schemas.json_schemas --write     write what the types say
    python -m ebbtide_schemas.json_schemas --release   freeze: from now on a breaking change is refused
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from ebbtide_schemas import events, records, samples
from ebbtide_schemas.compatibility import breaking_changes

FOLDER: Final = Path(__file__).parent / "jsonschema"
RELEASED: Final = FOLDER / "released"

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schemas() -> dict[str, dict[str, Any]]:
    """File name to JSON Schema, for each type that stands on a wire."""
    event_types = {f"{_tag(type_)}.v1.json": type_ for type_ in get_args(events.Event)}
    sample_types = {f"{_tag(type_)}.v1.json": type_ for type_ in get_args(samples.Curated)}
    record_types = {
        f"record-{_tag(type_)}.v{records.RECORD_VERSION}.json": type_ for type_ in get_args(records.LogRecord)
    }
    types = event_types | sample_types | record_types | {"header.v1.json": records.StepHeader}
    return {name: _schema(name, type_) for name, type_ in types.items()}


def _tag(type_: type) -> str:
    return str(type_.__struct_config__.tag)  # type: ignore[attr-defined]  # every type here is a tagged Struct


def _schema(name: str, type_: type) -> dict[str, Any]:
    schema = msgspec.json.schema(type_)
    return {"$schema": _DIALECT, "$id": f"urn:ebbtide:{name.removesuffix('.json')}", **_portable(schema)}


def _portable(value: Any) -> Any:
    """What a JSON file says: lists for tuples, and ``$`` in patterns, as ECMA-262 knows no ``\\Z``."""
    if isinstance(value, Mapping):
        return {
            key: item.replace(r"\Z", "$") if key == "pattern" and isinstance(item, str) else _portable(item)
            for key, item in value.items()
        }
    return [_portable(item) for item in value] if isinstance(value, list | tuple) else value


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def find_differences() -> list[str]:
    """Why the files are not what the types say, one sentence each; empty if they are."""
    generated = json_schemas()
    on_disk = {path.name for path in FOLDER.glob("*.json")}
    differences = [f"{name}: no type stands for it" for name in sorted(on_disk - generated.keys())]
    for name, schema in generated.items():
        if name not in on_disk:
            differences.append(f"{name}: is missing")
        elif (FOLDER / name).read_text("utf-8") != _text(schema):
            differences.append(f"{name}: differs from the type")
    return differences + list(_breaks(generated))


def _breaks(generated: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for path in sorted(RELEASED.glob("*.json")):
        if path.name not in generated:
            yield f"{path.name}: was released and is gone"
            continue
        released = json.loads(path.read_text("utf-8"))
        yield from (f"{path.name}: {change}" for change in breaking_changes(released, generated[path.name]))


def _check(say: Callable[[str], object]) -> int:
    differences = find_differences()
    for difference in differences:
        say(f"{difference}\n")
    if differences:
        say("try: python -m ebbtide_schemas.json_schemas --write; what breaks a released type needs a new version\n")
    return 1 if differences else 0


def _write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    generated = json_schemas()
    for path in folder.glob("*.json"):
        if path.name not in generated:
            path.unlink()
    for name, schema in generated.items():
        (folder / name).write_text(_text(schema), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m ebbtide_schemas.json_schemas", description=__doc__.split("\n")[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    for name in ("--check", "--write", "--release"):
        choice.add_argument(name, action="store_true")
    asked = parser.parse_args(arguments)
    if asked.write:
        _write(FOLDER)
    if _check(sys.stderr.write):
        return 1
    if asked.release:
        _write(RELEASED)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
