"""The composed API: whatever route it has, a key reads and changes its own tenant only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI

from ebbtide_governance.commands.api import compose
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.settings import Settings
from support.asgi import AppClient
from support.governed_log import governed_log
from support.read_model import dump, fill, fresh_read_model

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="module")
def app_and_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, str, MemoryLog]]:
    folder = tmp_path_factory.mktemp("api")
    door, written = MemoryKeyDoor("acme", "globex"), MemoryLog()
    key = door.create_api_key("globex", "all", ["ingest", "read", "govern", "admin"])
    with fresh_read_model(folder) as engine, Outbox(folder / "outbox", written, max_bytes=1_000_000) as outbox:
        fill(governed_log(), engine)
        before = dump(engine)
        yield compose(Settings(data_dir=folder), door, outbox, engine), key, written
        assert dump(engine) == before


def _routes(app: FastAPI) -> list[tuple[str, str]]:
    paths = app.openapi()["paths"]
    return [(method.upper(), path.replace("{id}", "refused")) for path, of in paths.items() for method in of]


def test_the_api_has_the_doors_and_the_reads(app_and_key: tuple[FastAPI, str, MemoryLog]) -> None:
    assert {path for _, path in _routes(app_and_key[0])} >= {
        "/v1/events",
        "/v1/rewards",
        "/v1/curated",
        "/v1/consents",
        "/v1/erasures",
        "/v1/status",
        "/v1/trajectories",
        "/v1/trajectories/refused",
        "/v1/groups",
        "/v1/quarantine",
    }


def test_every_route_asks_for_a_key_before_anything_else(app_and_key: tuple[FastAPI, str, MemoryLog]) -> None:
    client = AppClient(app_and_key[0])
    for method, path in _routes(app_and_key[0]):
        assert client.request(method, path, content=b"{" * 1000).status_code == 401, path


def test_no_route_takes_the_tenant_from_anywhere_but_the_key(
    app_and_key: tuple[FastAPI, str, MemoryLog],
) -> None:
    app, key, written = app_and_key
    client = AppClient(app)
    for method, path in _routes(app):
        bearer = {"authorization": f"Bearer {key}"}
        assert client.request(method, f"{path}?tenant=acme", headers=bearer, content=b"{}").status_code == 403, path
        named = client.request(method, path, headers={**bearer, "x-tenant": "acme"}, content=b"{}")
        assert named.status_code == 403, path
    assert written.records("ebbtide.facts.v1") == []


def test_a_foreign_id_can_be_neither_read_nor_changed_by_any_method(
    app_and_key: tuple[FastAPI, str, MemoryLog],
) -> None:
    app, key, _ = app_and_key
    client = AppClient(app)
    for method in METHODS:
        foreign = client.request(method, "/v1/trajectories/refused", headers={"authorization": f"Bearer {key}"})
        unknown = client.request(method, "/v1/trajectories/nobodys", headers={"authorization": f"Bearer {key}"})
        assert foreign.status_code in (404, 405)
        assert foreign.content == unknown.content
