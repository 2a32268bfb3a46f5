"""Which changes of a JSON Schema break those who rely on it; inside one version there are none.

A schema is a promise to two sides. Who *writes* by the old one must still be accepted by the new one;
who *reads* by the old one must still understand what the new one lets through. Optional members may be
added, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_FIXED: Final = ("type", "pattern", "const", "contentEncoding", "format", "default")


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """What of ``new`` breaks a program written against ``old``, as ``path: what``; empty if nothing does.

    Both are JSON Schema 2020-12 documents as `ebbtide_schemas.json_schemas` writes them.
    """
    return sorted(_Comparison(old, new).compare(old, new, "$"))


class _Comparison:
    """A walk over two documents side by side, each definition once."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old_definitions: Schema = old.get("$defs", {})
        self._new_definitions: Schema = new.get("$defs", {})
        self._seen: set[tuple[str, str]] = set()

    def compare(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        names = (old.get("$ref", ""), new.get("$ref", ""))
        if names != ("", ""):
            if names in self._seen:
                return
            self._seen.add(names)
        old, new = _resolve(old, self._old_definitions), _resolve(new, self._new_definitions)
        yield from _fixed_changes(old, new, path)
        yield from _bound_changes(old, new, path)
        yield from self._members(old, new, path)
        yield from self._choices(old, new, path)
        for key in ("items", "additionalProperties"):
            below_old, below_new = old.get(key, True), new.get(key, True)
            if isinstance(below_old, Mapping) and isinstance(below_new, Mapping):
                yield from self.compare(below_old, below_new, f"{path}[]")
            elif below_old != below_new:
                yield f"{path}: {key} changed"
        yield from self._sequence(old, new, path)

    def _members(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        yield from (f"{path}.{name}: removed" for name in before.keys() - after.keys())
        required_before, required_after = set(old.get("required", ())), set(new.get("required", ()))
        yield from (f"{path}.{name}: became required" for name in required_after - required_before)
        yield from (f"{path}.{name}: became optional" for name in (required_before - required_after) & after.keys())
        for name in before:  # in the order of the document, so that a shared definition is named by one place
            if name in after:
                yield from self.compare(before[name], after[name], f"{path}.{name}")

    def _choices(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        """Alternatives pair up by what they are; order says nothing."""
        before, after = _alternatives(old, self._old_definitions), _alternatives(new, self._new_definitions)
        yield from (f"{path}: no longer {name}" for name in before.keys() - after.keys())
        yield from (f"{path}: may now be {name}" for name in after.keys() - before.keys())
        for name in before:
            if name in after:
                yield from self.compare(before[name], after[name], path)

    def _sequence(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(before) != len(after):
            yield f"{path}: another number of places"
        for place, (item_before, item_after) in enumerate(zip(before, after, strict=False)):
            yield from self.compare(item_before, item_after, f"{path}[{place}]")


def _resolve(schema: Schema, definitions: Schema) -> Schema:
    reference = schema.get("$ref")
    return definitions[reference.removeprefix("#/$defs/")] if reference else schema


def _fixed_changes(old: Schema, new: Schema, path: str) -> Iterator[str]:
    yield from (f"{path}: {key} changed" for key in _FIXED if old.get(key) != new.get(key))
    before, after = set(map(repr, old.get("enum", ()))), set(map(repr, new.get("enum", ())))
    yield from (f"{path}: no longer {value}" for value in before - after)
    yield from (f"{path}: may now be {value}" for value in after - before)


def _bound_changes(old: Schema, new: Schema, path: str) -> Iterator[str]:
    """A tighter bound refuses what was taken; a looser one lets through what readers never met."""
    for key in (*_LOWER_BOUNDS, *_UPPER_BOUNDS):
        if old.get(key) != new.get(key):
            yield f"{path}: {key} changed"


def _alternatives(schema: Schema, definitions: Schema) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for choice in schema.get("anyOf", schema.get("oneOf", ())):
        resolved = _resolve(choice, definitions)
        found[str(resolved.get("title") or resolved.get("type") or sorted(resolved))] = choice
    return found
