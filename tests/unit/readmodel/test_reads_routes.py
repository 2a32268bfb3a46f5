"""Every read route answers for the key's tenant alone: the test walks all routes there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from httpx import Response

from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.web.reads import reads_router
from ebbtide_platform.errors import EbbtideError, Unauthenticated
from ebbtide_platform.ports import Principal
from ebbtide_platform.sealing.identity import event_id, trajectory_id
from support.asgi import AppClient
from support.governed_log import GROUP, governed_log
from support.read_model import fill, fresh_read_model

KEYS = {"acme-key": "acme", "globex-key": "globex"}
ACME_ONLY = ("refused", "unpaid", "broken", "mended", "grouped-a", GROUP.id, "open-s0", "acme")
"""Ids and names of acme that globex must never read."""


def _identity_key(tenant: str) -> bytes:
    return tenant.encode().ljust(32, b".")


def _authenticate(request: Request) -> Principal:
    tenant = KEYS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    if tenant is None:
        raise Unauthenticated("no such key")
    return Principal(tenant, "k", frozenset({"read"}))


def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EbbtideError)
    return JSONResponse({"code": error.code, "happened": error.happened}, error.http_status)


@pytest.fixture(scope="module")
def routes_and_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[APIRoute], AppClient]]:
    with fresh_read_model(tmp_path_factory.mktemp("routes")) as engine:
        fill(governed_log(), engine)
        router = reads_router(ReadModel(engine), _authenticate, _identity_key)
        app = FastAPI()
        app.include_router(router)
        app.add_exception_handler(EbbtideError, _refuse)
        yield [route for route in router.routes if isinstance(route, APIRoute)], AppClient(app)


@pytest.fixture
def client(routes_and_client: tuple[list[APIRoute], AppClient]) -> AppClient:
    return routes_and_client[1]


def _get(client: AppClient, path: str, key: str = "acme-key", **headers: str) -> Response:
    return client.get(path, headers={"authorization": f"Bearer {key}", **headers})


def test_every_route_refuses_who_has_no_key(routes_and_client: tuple[list[APIRoute], AppClient]) -> None:
    routes, client = routes_and_client
    assert len(routes) == 5
    for route in routes:
        assert client.get(route.path.replace("{id}", "good")).status_code == 401


def test_no_route_shows_one_tenant_anything_of_another(routes_and_client: tuple[list[APIRoute], AppClient]) -> None:
    routes, client = routes_and_client
    for route in routes:
        for given in ("good", *ACME_ONLY):
            answer = _get(client, route.path.replace("{id}", given), "globex-key")
            assert answer.status_code in (200, 404)
            if answer.status_code == 200:
                assert [f'"{name}"' for name in ACME_ONLY if f'"{name}"' in answer.text] == []


def test_another_tenants_id_gets_the_answer_of_an_id_that_nobody_has(client: AppClient) -> None:
    foreign, unknown = (_get(client, f"/v1/trajectories/{given}", "globex-key") for given in ("refused", "nobodys"))
    assert (foreign.status_code, foreign.content) == (404, unknown.content)


@pytest.mark.parametrize("place", ["query", "header"])
def test_naming_another_tenant_is_forbidden_on_every_route(
    routes_and_client: tuple[list[APIRoute], AppClient], place: str
) -> None:
    routes, client = routes_and_client
    for route in routes:
        path = route.path.replace("{id}", "good")
        named = f"{path}?tenant=acme" if place == "query" else path
        headers = {"x-tenant": "acme"} if place == "header" else {}
        assert _get(client, named, "globex-key", **headers).status_code == 403
        assert _get(client, named, "acme-key", **headers).status_code == 200


def test_why_takes_the_producers_own_ids(client: AppClient, tmp_path: Path) -> None:
    key = _identity_key("acme")
    assert trajectory_id(key, "session-1") != trajectory_id(_identity_key("globex"), "session-1")
    assert event_id(key, "session-1") != trajectory_id(key, "session-1")
    for given in ("good", "good-s0"):
        assert _get(client, f"/v1/trajectories/{given}").json()["trajectory"] == "good"


def test_the_status_of_a_tenant_tells_nothing_of_the_deployment(client: AppClient) -> None:
    status = _get(client, "/v1/status", "globex-key").json()
    assert (status["tenant"], status["lag"]) == ("globex", None)
    assert list(status["samples"]) == ["globex"]


def test_a_list_can_be_narrowed_to_a_state_and_refuses_an_unknown_one(client: AppClient) -> None:
    items = _get(client, "/v1/trajectories?verdict=rejected&limit=1").json()
    assert [item["state"] for item in items["items"]] == ["rejected"]
    assert items["cursor"] == "refused"
    assert _get(client, "/v1/trajectories?verdict=perhaps").status_code == 422


def test_quarantine_lists_references_and_no_content(client: AppClient) -> None:
    items = _get(client, "/v1/quarantine").json()["items"]
    assert {item["reason"] for item in items} == {"redaction_failed"}
    assert not any("sealed" in item for item in items)
