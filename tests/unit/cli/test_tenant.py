"""Making tenants and their keys, over the key door's and the log's fakes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ebbtide_platform import codec, topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.cli import tenant
from ebbtide_platform.cli.up import ensure_key_file
from ebbtide_platform.errors import Unavailable
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.settings import Settings
from ebbtide_schemas.records import FactRecord


@pytest.fixture(autouse=True)
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were asked for; there is no broker here."""
    names: list[str] = []
    monkeypatch.setattr(tenant, "create_topics", lambda _, wanted: names.extend(topic.name for topic in wanted))
    return names


def test_a_tenant_gets_a_topic_a_fact_and_keys_once(created: list[str]) -> None:
    door, log = MemoryKeyDoor(), MemoryLog()
    assert [tenant.ensure_tenant(Settings(), door, log, "acme") for _ in range(2)] == [True, False]
    assert door.tenants() == ["acme"]
    assert set(created) == {"ebbtide.curated.acme.v1"}
    [record] = log.records(topics.FACTS)
    fact = codec.decode(record.value, FactRecord)
    assert (fact.kind, fact.tenant) == ("tenant", "acme")


def test_a_tenant_whose_fact_could_not_be_written_is_not_half_made() -> None:
    door, log = MemoryKeyDoor(), MemoryLog()
    log.available = False
    with pytest.raises(Unavailable):
        tenant.ensure_tenant(Settings(), door, log, "acme")
    assert door.tenants() == []
    log.available = True
    assert tenant.ensure_tenant(Settings(), door, log, "acme")


def test_a_key_file_is_kept_while_its_key_is_in_force_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    door, path = MemoryKeyDoor(), tmp_path / "acme.key"
    door.create_tenant("acme")
    ensure_key_file(door, path, "acme")
    first = path.read_text().strip()
    ensure_key_file(door, path, "acme")
    assert path.read_text().strip() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    door.revoke_api_key("acme", door.authenticate(first).key_id)
    ensure_key_file(door, path, "acme")
    assert path.read_text().strip() != first
    assert door.authenticate(path.read_text().strip()).tenant == "acme"
