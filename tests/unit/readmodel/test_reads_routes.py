"""Every read route answers for the key's tenant alone: the test walks all routes there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from httpx import Response
from msgspec.structs import replace

from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.web.reads import reads_router
from ebbtide_platform import topics
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.errors import EbbtideError
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.sealing.identity import event_id, trajectory_id
from ebbtide_schemas.records import StepRecord
from support.asgi import AppClient
from support.governed_log import GROUP, governed_log, put, step
from support.read_model import fill, fresh_read_model

ACME_ONLY = ("refused", "unpaid", "broken", "mended", "grouped-a", GROUP.id, "open-s0", "acme")
"""Ids and names of acme that globex must never read."""


def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EbbtideError)
    return JSONResponse({"code": error.code, "happened": error.happened}, error.http_status)


@dataclass(frozen=True)
class World:
    """The read routes over the little governed log, with an API key of each tenant."""

    client: AppClient
    door: MemoryKeyDoor
    keys: dict[str, str]
    paths: list[str]

    def get(self, path: str, tenant: str = "acme", **headers: str) -> Response:
        return self.client.get(path, headers={"authorization": f"Bearer {self.keys[tenant]}", **headers})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    door = MemoryKeyDoor("acme", "globex")
    keys = {tenant: door.create_api_key(tenant, "reader", ["read"]) for tenant in door.tenants()}
    keys["acme, ingest only"] = door.create_api_key("acme", "writer", ["ingest"])
    with fresh_read_model(tmp_path_factory.mktemp("routes")) as engine:
        log = governed_log()
        own = trajectory_id(door.identity_key("acme"), "my-session")
        put(log, topics.STEPS, own, StepRecord(header=replace(step("acme", own, 0), event=_own_step(door))))
        fill(log, engine)
        router = reads_router(ReadModel(engine), Authenticator(door).require("read"), door.identity_key)
        app = FastAPI()
        app.include_router(router)
        app.add_exception_handler(EbbtideError, _refuse)
        paths = [route.path for route in router.routes if isinstance(route, APIRoute)]
        yield World(AppClient(app), door, keys, paths)


def _own_step(door: MemoryKeyDoor) -> str:
    return event_id(door.identity_key("acme"), "my-step")


def test_the_walk_below_covers_every_route(world: World) -> None:
    assert len(world.paths) == 5


def test_every_route_refuses_who_has_no_key_or_one_without_the_scope(world: World) -> None:
    for path in world.paths:
        assert world.client.get(path.replace("{id}", "good")).status_code == 401
        assert world.get(path.replace("{id}", "good"), "acme, ingest only").status_code == 403


def test_no_route_shows_one_tenant_anything_of_another(world: World) -> None:
    for path in world.paths:
        for given in ("good", "my-session", "my-step", *ACME_ONLY):
            answer = world.get(path.replace("{id}", given), "globex")
            assert answer.status_code == (200 if given == "good" or "{id}" not in path else 404)
            if answer.status_code == 200:
                assert [name for name in ACME_ONLY if f'"{name}"' in answer.text] == []


def test_another_tenants_id_gets_the_answer_of_an_id_that_nobody_has(world: World) -> None:
    foreign, unknown = (world.get(f"/v1/trajectories/{given}", "globex") for given in ("refused", "nobodys"))
    assert (foreign.status_code, foreign.content) == (404, unknown.content)


@pytest.mark.parametrize("place", ["query", "header"])
def test_naming_another_tenant_is_forbidden_on_every_route(world: World, place: str) -> None:
    for path in world.paths:
        named = path.replace("{id}", "good") + ("?tenant=acme" if place == "query" else "")
        headers = {"x-tenant": "acme"} if place == "header" else {}
        assert world.get(named, "globex", **headers).status_code == 403
        assert world.get(named, "acme", **headers).status_code == 200


def test_why_takes_the_ids_of_the_log_and_the_producers_own(world: World) -> None:
    for given in ("good", "good-s0"):
        assert world.get(f"/v1/trajectories/{given}").json()["trajectory"] == "good"
    own = trajectory_id(world.door.identity_key("acme"), "my-session")
    for given in ("my-session", "my-step", own):
        assert world.get(f"/v1/trajectories/{given}").json()["trajectory"] == own


def test_the_status_of_a_tenant_tells_nothing_of_the_deployment(world: World) -> None:
    status = world.get("/v1/status", "globex").json()
    assert (status["tenant"], status["lag"], list(status["samples"])) == ("globex", None, ["globex"])


def test_a_list_can_be_narrowed_to_a_state_and_refuses_an_unknown_one(world: World) -> None:
    items = world.get("/v1/trajectories?verdict=rejected&limit=1").json()
    assert [item["state"] for item in items["items"]] == ["rejected"]
    assert items["cursor"] == "refused"
    assert world.get("/v1/trajectories?verdict=perhaps").status_code == 422


def test_quarantine_lists_references_and_no_content(world: World) -> None:
    items = world.get("/v1/quarantine").json()["items"]
    assert {item["reason"] for item in items} == {"redaction_failed"}
    assert not any("sealed" in item for item in items)
