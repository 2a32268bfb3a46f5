"""What a stage is: a synchronous function from records and state to state and outputs, for one partition.

A stage knows neither Faust nor Kafka. The runner (`ebbtide_streams.app`) calls `prepare` with a batch,
then `process` for each record inside one transaction and one savepoint, commits state, offsets and outputs
together, delivers the outputs, and only then acknowledges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from ebbtide_platform.ports import InRecord, StageTransaction
from ebbtide_platform.topics import Topic


class Stage(Protocol):
    """One stage over one partition.

    Raise `Poison` from `process` for a record that can never be processed: the runner undoes what this
    record did, quarantines it sealed, and goes on. Anything else that is raised ends the process, and the
    record comes again.
    """

    name: ClassVar[str]
    inputs: ClassVar[tuple[Topic, ...]]

    def prepare(self, records: Sequence[InRecord]) -> None:
        """Do the work that is cheaper for a whole batch (open, detect); must be repeatable."""

    def process(self, record: InRecord, tx: StageTransaction) -> None:
        """Apply one record: set state by id, emit outputs with deterministic ids."""
