"""What records consist of: one of every type with every member set, and any of them as plain data."""

from __future__ import annotations

import base64
from typing import Any, get_args

import msgspec
from msgspec import inspect

from ebbtide_schemas.records import LogRecord

RECORD_TYPES: tuple[type[msgspec.Struct], ...] = get_args(LogRecord)


def tag_of(record: type[msgspec.Struct] | LogRecord) -> str:
    """The word by which a record's type is known on the log."""
    return str(record.__struct_config__.tag)


def full_record(record_type: type[msgspec.Struct]) -> LogRecord:
    """A record in which nothing is left out; its ``version`` is today's."""
    info = inspect.type_info(record_type)
    assert isinstance(info, inspect.StructType)
    record: LogRecord = msgspec.convert(_struct(info), LogRecord)
    return record


def plain(value: Any) -> Any:
    """Any part of a record as JSON data, defaults included: a default that changes would change old records."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def like(known: Any, value: Any) -> Any:
    """``value`` without members of objects that ``known`` does not have: types may grow."""
    if isinstance(known, dict) and isinstance(value, dict):
        return {key: like(known[key], item) for key, item in value.items() if key in known}
    if isinstance(known, list) and isinstance(value, list) and len(known) == len(value):
        return [like(*pair) for pair in zip(known, value, strict=True)]
    return value


def member_names(record: LogRecord) -> set[str]:
    """The members, however deep, that are written of a record."""
    names: set[str] = set()
    rest: list[Any] = [msgspec.to_builtins(record)]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            names.update(value)
        rest += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return names


def _struct(info: inspect.StructType) -> dict[str, Any]:
    tag = {str(info.tag_field): info.tag} if info.tag is not None else {}
    fields = [field for field in info.fields if not (tag and field.name == "version")]
    return tag | {field.encode_name: _value(field.type, field) for field in fields}


def _value(kind: inspect.Type, field: inspect.Field) -> Any:
    match kind:
        case inspect.UnionType():
            return _value(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), field)
        case inspect.StructType():
            return _struct(kind)
        case inspect.VarTupleType() | inspect.ListType():
            return [_value(kind.item_type, field)]
        case inspect.DictType():
            return {"PERSON": _value(kind.value_type, field)}
        case inspect.LiteralType():
            return next(value for value in reversed(kind.values) if value != field.default)
        case inspect.StrType():
            return f"a {field.name}"
        case inspect.BytesType():
            return b"\x00\xff"
        case inspect.BoolType():
            return not field.default
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 0.5
    raise TypeError(f"{field.name} is of a kind that is new here")
