"""A key says who asks, on every route there is; a revoked one says nothing within two seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from ebbtide_platform.doors.auth import REMEMBERED_S, Authenticator
from ebbtide_platform.errors import Forbidden, Unauthenticated
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.ports import Principal
from support.doors import StandingDoors, standing_doors

PROMISE_S = 2.0


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[StandingDoors]:
    with standing_doors(tmp_path) as standing:
        yield standing


def _request(key: str, query: str = "", *more: tuple[bytes, bytes]) -> Request:
    headers = [(b"authorization", f"Bearer {key}".encode()), *more]
    return Request({"type": "http", "headers": headers, "query_string": query.encode()})


def _routes(doors: StandingDoors) -> list[tuple[str, str]]:
    """Method and path of every route that the doors declare, also of those that nobody has thought of yet."""
    paths = doors.app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def test_a_revoked_key_is_refused_within_two_seconds() -> None:
    door, now = MemoryKeyDoor("acme"), [0.0]
    key = door.create_api_key("acme", "test", ["read"])
    authenticator = Authenticator(door, clock=lambda: now[0])
    assert authenticator.principal(_request(key), "read").tenant == "acme"
    door.revoke_api_key("acme", key.split("_")[1])
    now[0] = REMEMBERED_S
    assert now[0] < PROMISE_S
    with pytest.raises(Unauthenticated):
        authenticator.principal(_request(key), "read")


def test_a_key_is_asked_for_once_a_second_and_not_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    door, asked = MemoryKeyDoor("acme"), list[str]()
    key = door.create_api_key("acme", "test", ["read"])
    authenticate = door.authenticate

    def counted(shown: str) -> Principal:
        asked.append(shown)
        return authenticate(shown)

    monkeypatch.setattr(door, "authenticate", counted)
    authenticator = Authenticator(door, clock=lambda: 0.0)
    for _ in range(10):
        authenticator.principal(_request(key), "read")
    assert len(asked) == 1


def test_a_key_may_do_what_its_scopes_say_and_nothing_else() -> None:
    door = MemoryKeyDoor("acme")
    authenticator = Authenticator(door)
    key = door.create_api_key("acme", "test", ["ingest"])
    assert authenticator.principal(_request(key), "ingest").tenant == "acme"
    for scope in ("read", "govern", "admin"):
        with pytest.raises(Forbidden):
            authenticator.principal(_request(key), scope)


@pytest.mark.parametrize(("query", "more"), [("tenant=globex", ()), ("", ((b"x-tenant", b"globex"),))])
def test_naming_another_tenant_is_forbidden(query: str, more: tuple[tuple[bytes, bytes], ...]) -> None:
    door = MemoryKeyDoor("acme", "globex")
    key = door.create_api_key("acme", "test", ["read"])
    with pytest.raises(Forbidden):
        Authenticator(door).principal(_request(key, query, *more), "read")


def test_every_route_asks_for_a_key(doors: StandingDoors) -> None:
    routes = _routes(doors)
    assert {("POST", "/v1/events"), ("GET", "/v1/curated"), ("POST", "/v1/erasures")} <= set(routes)
    for method, path in routes:
        for headers in ({}, {"authorization": "Bearer ebb_0_0"}, {"authorization": "Basic YTpi"}):
            answer = doors.client.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated"), path
            assert answer.headers["www-authenticate"] == "Bearer"


def test_every_route_refuses_a_foreign_tenant_however_it_is_named(doors: StandingDoors) -> None:
    key = {"authorization": f"Bearer {doors.keys['acme']}"}
    for method, path in _routes(doors):
        answers = [doors.client.request(method, f"{path}?tenant={name}", headers=key) for name in ("globex", "nobody")]
        answers.append(doors.client.request(method, path, headers=key | {"x-tenant": "globex"}))
        assert [answer.status_code for answer in answers] == [403] * 3, path
        assert len({answer.content for answer in answers}) == 1


def test_every_route_asks_for_its_own_scope(doors: StandingDoors) -> None:
    nothing = {"authorization": f"Bearer {doors.door.create_api_key('acme', 'none', ['admin'])}"}
    for method, path in _routes(doors):
        assert doors.client.request(method, path, headers=nothing).status_code == 403, path


def test_an_unknown_route_and_a_wrong_method_are_answered_in_the_same_form(doors: StandingDoors) -> None:
    assert doors.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert doors.get("/v1/events").json()["error"]["code"] == "method_not_allowed"
