"""What a door lets in: bytes to events, item by item, with the field and the rule of whatever is refused."""

from ebbtide_schemas.validation.batch import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, parse_batch
from ebbtide_schemas.validation.event import MAX_EVENT_BYTES, Parsed, parse_event
from ebbtide_schemas.validation.rules import (
    MAX_CORRELATIONS,
    MAX_REWARDS,
    MAX_SEGMENTS,
    MAX_SUBJECTS,
    MAX_TOOLS,
    check_event,
    level_of,
)
from ebbtide_schemas.validation.scan import MAX_DEPTH, MAX_VALUES, EventError, json_depth, scan
from ebbtide_schemas.validation.times import event_time

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BATCH_EVENTS",
    "MAX_CORRELATIONS",
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "MAX_REWARDS",
    "MAX_SEGMENTS",
    "MAX_SUBJECTS",
    "MAX_TOOLS",
    "MAX_VALUES",
    "EventError",
    "Parsed",
    "check_event",
    "event_time",
    "json_depth",
    "level_of",
    "parse_batch",
    "parse_event",
    "scan",
]
