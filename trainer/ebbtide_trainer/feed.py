"""Curated samples straight from Kafka, for consumers that stand beside the platform and its key door.

Behind ``ebbtide.curated(tenant, transport="kafka")``: the same records with the same cursors as over HTTP, read
by the same code. What the API asks the read model, which record about a sample is the newest, is learned here
by reading the topic once: memory grows by about 100 bytes a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.reading import PAGE, read_pages
from ebbtide_platform.adapters.kafka import Follower
from ebbtide_platform.codec import decode_any
from ebbtide_platform.doors.curated import CuratedDoor
from ebbtide_platform.errors import Poison
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings, read_settings
from ebbtide_platform.topics import GROUPS, curated
from ebbtide_schemas.records import CuratedRecord, GroupRecord, WithdrawalRecord
from ebbtide_schemas.samples import Curated

POLL_S = 0.05


class LogIndex:
    """`CuratedIndex` from the log itself: the newest offset of each sample, and the state of each closed group."""

    def __init__(self, settings: Settings, tenant: str) -> None:
        self._tenant = tenant
        self._follower = Follower(settings, [curated(tenant), GROUPS])
        self._offsets: dict[str, int] = {}
        self._states: dict[str, str] = {}

    def catch_up(self) -> None:
        """Take in everything that stands there now. Raises `Unavailable`."""
        for record in self._follower.read_to_end():
            self._take(record.value, record.offset)

    def newest_offsets(self, tenant: str, samples: Sequence[str]) -> dict[str, int]:
        """The offset of the last record about each sample, with what has come since the last question."""
        while records := self._follower.poll(POLL_S):
            for record in records:
                self._take(record.value, record.offset)
        return {sample: self._offsets[sample] for sample in samples if sample in self._offsets}

    def group_state(self, tenant: str, group: str) -> str:
        """The group's state, ``open`` while it is not closed."""
        return self._states.get(group, "open")

    def close(self) -> None:
        """Release the connection."""
        self._follower.close()

    def _take(self, value: bytes | None, offset: int) -> None:
        try:
            record = decode_any(value)
        except Poison:
            return  # the reader itself reports and passes over it
        if isinstance(record, CuratedRecord | WithdrawalRecord) and record.tenant == self._tenant:
            self._offsets[record.sample] = max(offset, self._offsets.get(record.sample, 0))
        elif isinstance(record, GroupRecord) and record.tenant == self._tenant:
            self._states[record.group.id] = record.state


def read_curated(
    tenant: str, *, follow: bool, cursor: str | None, withdrawals: bool, settings: Settings | None = None
) -> Iterator[Curated]:
    """Yield what stands between ``cursor`` and now; with ``follow`` go on for ever.

    ``settings`` None reads them from the environment, as every process of the platform does.

    Raises:
        InvalidInput: the cursor was not given for this tenant.
        Denied, Misconfigured, Unavailable: the key door refuses, or it or the broker is not there.
    """
    here = settings or read_settings()
    index = LogIndex(here, tenant)
    with RemoteKeyDoor(here.socket_path, here.token()) as key_door:
        door = CuratedDoor(lambda topics, start: Follower(here, topics, start), Sealer(key_door), index)
        try:
            index.catch_up()
            yield from read_pages(
                lambda at, until, wait_s: door.page(tenant, at, until, PAGE, wait_s),
                until="" if follow else door.cut(tenant),
                cursor=cursor,
                withdrawals=withdrawals,
            )
        finally:
            door.close()
            index.close()
