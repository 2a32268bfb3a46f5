"""The log in memory: the fake that ships, with the same partitions, order and failures as Kafka's."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import Condition
from types import TracebackType
from typing import Literal, Self

from ebbtide_platform.errors import Unavailable
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.topics import Topic, partition_of

Position = tuple[str, int]


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryLog:
    """`LogWriter` into lists; set ``available`` to False and every write is refused, as with a broker that is away.

    A topic exists from the first mention, with one partition if its table entry says so, else ``partitions``.
    """

    def __init__(self, partitions: int = 2, *, now_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self.available = True
        self._partitions = partitions
        self._now_ms = now_ms
        self._grown = Condition()
        self._records: dict[Position, list[InRecord]] = {}
        self._counts: dict[str, int] = {}

    def create_topics(self, topics: Sequence[Topic]) -> None:
        """Fix the topics' partition counts; harmless when repeated."""
        self._counts.update({topic.name: topic.partitions or self._partitions for topic in topics})

    def write(self, records: Sequence[OutRecord]) -> None:
        """Append all records. Raises `Unavailable` while the log is not available; then none is there."""
        with self._grown:
            if not self.available:
                raise Unavailable("the log in memory was made unavailable")
            for record in records:
                self._append(record)
            self._grown.notify_all()

    def close(self) -> None:
        """Nothing to release; the records stay."""

    def records(self, topic: Topic | str) -> list[InRecord]:
        """Everything on a topic, partition by partition."""
        with self._grown:
            return [record for where in self.places(topic) for record in self._records.get(where, ())]

    def follow(
        self,
        topics: Sequence[Topic | str],
        start: Mapping[Position, int] | Literal["beginning", "end"] = "beginning",
        *,
        partitions: Collection[int] | None = None,
    ) -> MemoryFollower:
        """A reader with the surface of Kafka's `Follower`."""
        places = [where for topic in topics for where in self.places(topic)]
        return MemoryFollower(self, [where for where in places if partitions is None or where[1] in partitions], start)

    def places(self, topic: Topic | str) -> list[Position]:
        """Every partition of a topic."""
        name = topic if isinstance(topic, str) else topic.name
        own = None if isinstance(topic, str) else topic.partitions
        return [(name, number) for number in range(self._counts.get(name) or own or self._partitions)]

    def end(self, where: Position) -> int:
        """The next offset of a partition."""
        return len(self._records.get(where, ()))

    def read(self, positions: Mapping[Position, int], timeout_s: float, limit: int) -> list[InRecord]:
        """At most ``limit`` records from the positions on; waits up to ``timeout_s`` for the first."""
        with self._grown:
            self._grown.wait_for(lambda: any(self.end(where) > at for where, at in positions.items()), timeout_s)
            found = [record for where, at in positions.items() for record in self._records.get(where, [])[at:]]
        return found[:limit]

    def _append(self, record: OutRecord) -> None:
        count = len(self.places(record.topic))
        number = partition_of(record.key, count) if record.partition is None else record.partition
        place = self._records.setdefault((record.topic, number), [])
        place.append(
            InRecord(record.topic, number, len(place), record.key, record.value, record.headers, self._now_ms())
        )


class MemoryFollower:
    """Kafka's `Follower` over a `MemoryLog`."""

    def __init__(
        self, log: MemoryLog, places: Sequence[Position], start: Mapping[Position, int] | Literal["beginning", "end"]
    ) -> None:
        self._log = log
        if isinstance(start, str):
            self._positions = {where: 0 if start == "beginning" else log.end(where) for where in places}
        else:
            self._positions = {where: start.get(where, 0) for where in places}

    def positions(self) -> dict[Position, int]:
        """The next offset of every partition, after all that was handed out."""
        return dict(self._positions)

    def end_offsets(self) -> dict[Position, int]:
        """The offset behind the last record of every partition, now."""
        return {where: self._log.end(where) for where in self._positions}

    def poll(self, timeout_s: float, limit: int = 500) -> list[InRecord]:
        """What has come, at most ``limit`` records; waits up to ``timeout_s`` for the first."""
        records = self._log.read(self._positions, timeout_s, limit)
        for record in records:
            self._positions[record.topic, record.partition] = record.offset + 1
        return records

    def read_to_end(self, *, stall_s: float = 0.0) -> Iterator[InRecord]:
        """Every record up to the end offsets of this moment."""
        ends = self.end_offsets()
        while any(self._positions[where] < end for where, end in ends.items()):
            yield from self.poll(0)

    def __iter__(self) -> Iterator[InRecord]:
        """Every record, for ever; waits for the next one."""
        while True:
            yield from self.poll(1.0)

    def close(self) -> None:
        """Nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
