"""Waiting for what a consumer will be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ebbtide.client import Client
from ebbtide_schemas.samples import Curated, Sample, Withdrawal
from support.waiting import wait_until

RecordT = TypeVar("RecordT", Sample, Withdrawal)
SETTLED_S = 60.0


def await_record(client: Client, kind: type[RecordT], wanted: Callable[[RecordT], bool] = lambda _: True) -> RecordT:
    """The newest record of ``kind`` that is ``wanted``, as soon as the tenant ``acme`` has one."""
    found: list[RecordT] = []

    def look() -> bool:
        records = client.curated("acme", withdrawals=True)
        found[:] = [record for record in records if isinstance(record, kind) and wanted(record)]
        return bool(found)

    wait_until(look, f"a {kind.__name__.lower()} can be consumed", SETTLED_S)
    return found[-1]


def await_sample(client: Client, agent: str, *, rewards: int = 1) -> Sample:
    """The sample of ``agent`` that counts so many rewards."""
    return await_record(client, Sample, lambda sample: sample.agent == agent and len(sample.rewards) == rewards)


def next_of(records: Iterator[Curated], wanted: Callable[[Curated], bool]) -> Curated:
    """The next wanted record of a follower, within a deadline."""
    with ThreadPoolExecutor(1) as reader:
        return reader.submit(lambda: next(record for record in records if wanted(record))).result(SETTLED_S)
