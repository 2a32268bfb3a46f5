"""msgspec against pydantic: decode and validate one real step, and what the door's own checks add to it.

Run ``python tests/bench/bench_types.py``. Times are the best of several rounds, in microseconds per event; the
ratio to msgspec is what carries over to another machine.
"""

from __future__ import annotations

import sys
import timeit
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pydantic

sys.path.insert(0, str(Path(__file__).parents[1]))

from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.events import Event, Step
from ebbtide_schemas.messages import parse_transcript_line, steps_of_transcript
from ebbtide_schemas.validation import parse_event
from support.atdp import encoded, vectors

ROUNDS = 7
SECONDS_PER_ROUND = 0.1


def pydantic_twin(type_: Any, made: dict[type, Any]) -> Any:
    """The same type with the same constraints in pydantic: strict, frozen, no unknown members."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        if type_ not in made:
            hints = typing.get_type_hints(type_, include_extras=True)
            fields: dict[str, Any] = {
                field.name: (pydantic_twin(hints[field.name], made), _default(field, made))
                for field in msgspec.structs.fields(type_)
            }
            if tag := type_.__struct_config__.tag:
                fields["type"] = (typing.Literal[tag], ...)
            config = pydantic.ConfigDict(strict=True, frozen=True, extra="forbid")
            made[type_] = pydantic.create_model(type_.__name__, __config__=config, **fields)
        return made[type_]
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        meta = {
            key: value
            for key in ("ge", "le", "min_length", "max_length", "pattern")
            if (value := getattr(arguments[1], key)) is not None
        }
        if "pattern" in meta:  # its Rust engine writes the end of the text in another way
            meta["pattern"] = meta["pattern"].replace(r"\Z", r"\z")
        return Annotated[pydantic_twin(arguments[0], made), pydantic.Field(**meta)]
    if origin is UnionType or origin is typing.Union:
        return typing.Union[tuple(pydantic_twin(argument, made) for argument in arguments)]  # noqa: UP007
    if origin in (list, dict, tuple):
        return origin[tuple(pydantic_twin(argument, made) for argument in arguments)]
    return type_


def _default(field: msgspec.structs.FieldInfo, made: dict[type, Any]) -> Any:
    if field.required:
        return ...
    if field.default is msgspec.NODEFAULT:
        factory = typing.cast(Callable[[], Any], field.default_factory)
        return pydantic.Field(default_factory=factory)
    twin = made.get(type(field.default))
    return twin() if twin else field.default


def sample_events() -> dict[str, bytes]:
    """A step as agents send it by the thousand, and one with every member."""
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "I would like to know whether my order has left the warehouse. " * 4},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "lookup", "arguments": '{"order": 88}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"status": "shipped", "items": [1, 2, 3]}' * 8},
    ]
    transcript = parse_transcript_line({"messages": chat, "session": "s", "subject": "user-42", "agent": "support"})
    step = steps_of_transcript(transcript, trajectory="t", purpose="training")[0]
    everything = next(v["event"] for v in vectors("valid")["vectors"] if v["name"] == "every member")
    return {"tool call turn": msgspec.json.encode(step), "every member": encoded(everything)}


def measure(work: Callable[[], object]) -> float:
    """Microseconds of one call, best of several rounds."""
    work()
    timer = timeit.Timer(work)
    count = max(1, int(SECONDS_PER_ROUND / max(min(timer.repeat(3, 1)), 1e-7)))
    return min(timer.repeat(ROUNDS, count)) / count * 1e6


def rows() -> list[tuple[str, str, float, float]]:
    """(event, what, microseconds, ratio to msgspec)."""
    decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
    twin = pydantic_twin(Step, {})
    table = []
    for name, raw in sample_events().items():
        event, model = decoder.decode(raw), twin.model_validate_json(raw)
        decoding: dict[str, Callable[[], object]] = {
            "msgspec: decode and validate": partial(decoder.decode, raw),
            "pydantic: decode and validate": partial(twin.model_validate_json, raw),
            "parse_event: scan, decode, rules": partial(parse_event, raw),
        }
        encoding: dict[str, Callable[[], object]] = {
            "msgspec: encode": partial(msgspec.json.encode, event),
            "pydantic: encode": partial(model.model_dump_json, exclude_defaults=True),
            "canonical: encode": partial(canonical, event),
        }
        for works in (decoding, encoding):
            times = {what: measure(work) for what, work in works.items()}
            base = next(iter(times.values()))
            table += [(name, what, spent, spent / base) for what, spent in times.items()]
    return table


def main() -> None:
    """Print the table."""
    for name, raw in sample_events().items():
        print(f"{name}: {len(raw)} bytes")
    print(f"\n{'event':<16} {'what':<36} {'us':>8} {'ratio':>7}")
    for name, what, spent, ratio in rows():
        print(f"{name:<16} {what:<36} {spent:8.1f} {ratio:7.1f}")


if __name__ == "__main__":
    main()
