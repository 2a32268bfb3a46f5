"""`ebbtide.curated(transport="kafka")`: the same samples and cursors as over HTTP, without the API."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.client import Client
from ebbtide.configuration import Configuration
from ebbtide_schemas.samples import Curated, Sample, Withdrawal
from support.running_platform import Platform
from support.waiting import wait_until

pytestmark = pytest.mark.platform

SETTLED_S = 90.0
SAMPLES = 5
NOWHERE = Configuration("http://127.0.0.1:9", "no key is needed")


@pytest.fixture(scope="module")
def filled(platform: Platform) -> Platform:
    """A platform with five samples, one of them in a second revision and one withdrawn."""
    client = Client(Configuration(platform.settings.api_url, platform.key("acme")))
    try:
        for number in range(SAMPLES):
            with client.session(agent="support", subject=f"user-{number}", trajectory=f"chat-{number}") as session:
                session.record([{"role": "user", "content": f"Question {number}"}], f"Answer {number}")
                session.reward(1.0, name="resolved")
        wait_until(lambda: len(list(client.curated("acme"))) == SAMPLES, "all samples are curated", SETTLED_S)
        client.reward(None, 0.0, "reopened", trajectory="chat-0")
        client.consent("user-1", "withdrawn")
        wait_until(lambda: _is_revised([*client.curated("acme", withdrawals=True)]), "both are known", SETTLED_S)
    finally:
        client.close()
    return platform


def _is_revised(records: list[Curated]) -> bool:
    revised = any(isinstance(record, Sample) and len(record.rewards) == 2 for record in records)
    samples = [record for record in records if isinstance(record, Sample)]
    return revised and len(samples) == SAMPLES - 1 and any(isinstance(record, Withdrawal) for record in records)


def _read(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, transport: str, cursor: str | None = None
) -> list[Curated]:
    for name, value in platform.settings.environment().items():
        monkeypatch.setenv(name, value)
    http = Configuration(platform.settings.api_url, platform.key("acme"))
    client = Client(http if transport == "http" else NOWHERE)
    try:
        return list(client.curated("acme", transport=transport, cursor=cursor, withdrawals=True))
    finally:
        client.close()


def test_both_transports_give_the_same_records(filled: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    over_http = {record.id: record for record in _read(filled, monkeypatch, "http")}
    over_kafka = {record.id: record for record in _read(filled, monkeypatch, "kafka")}
    assert len(over_kafka) == SAMPLES
    # The partitions of a topic are read in no order, so that the same record may stand at another cursor.
    assert {name: _bare(record) for name, record in over_kafka.items()} == {
        name: _bare(record) for name, record in over_http.items()
    }


def test_only_the_newest_revision_is_given(filled: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [record.id for record in _read(filled, monkeypatch, "kafka")]
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("transport", ["http", "kafka"])
def test_a_cursor_of_one_transport_resumes_over_the_other(
    filled: Platform, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    other = "kafka" if transport == "http" else "http"
    records = _read(filled, monkeypatch, transport)
    rest = _read(filled, monkeypatch, other, records[1].cursor)
    assert {record.id for record in rest} == {record.id for record in records[2:]}


def test_an_unknown_transport_is_named_with_what_there_is() -> None:
    client = Client(NOWHERE)
    with pytest.raises(ValueError, match="use 'http', or 'kafka'"):
        client.curated("acme", transport="pigeon")
    client.close()


def _bare(record: Curated) -> Curated:
    return msgspec.structs.replace(record, cursor="")
