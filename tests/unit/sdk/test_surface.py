"""The module's functions and their async twins: one default client, and nothing that stops the agent."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

import ebbtide
from ebbtide import surface
from ebbtide.client import Client
from ebbtide.configuration import Configuration
from ebbtide_schemas.records import EffectiveReward
from ebbtide_schemas.samples import Sample, SampleMessage, Withdrawal
from support.receipts import signed_receipt

QUESTION = {"role": "user", "content": "Where is order 88?"}
ANSWER = "It is on its way."


class Server:
    """Answers as the API does, and remembers what it was asked."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.threads: set[str] = set()
        self.pages: list[list[Sample | Withdrawal]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.threads.add(threading.current_thread().name)
        path = request.url.path
        if path == "/v1/events":
            lines = [json.loads(line) for line in request.content.splitlines()]
            self.events += lines
            results = [{"index": index, "status": "accepted"} for index in range(len(lines))]
            return httpx.Response(202, json={"accepted": len(lines), "results": results})
        given = json.loads(request.content) if request.content else dict(request.url.params)
        self.asked.append((request.method, path, given))
        if path == "/v1/erasures":
            return httpx.Response(200, content=msgspec.json.encode(signed_receipt()))
        if path == "/v1/curated/cut":
            return httpx.Response(200, headers={"x-ebbtide-cursor": "cut"})
        if path == "/v1/curated":
            page = self.pages.pop(0)
            headers = {"x-ebbtide-cursor": f"page-{len(self.pages)}", "x-ebbtide-at-end": str(not self.pages).lower()}
            body = b"".join(msgspec.json.encode(record) + b"\n" for record in page)
            return httpx.Response(200, content=body, headers=headers)
        return httpx.Response(200, json={})

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def default_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    client = Client(Configuration("http://ebbtide.test", "key"), httpx.MockTransport(server))
    default = surface._Default()
    default.set(client)
    monkeypatch.setattr(surface, "_default", default)
    yield client
    client.close()


def _sample(name: str, *, value: float = 1.0) -> Sample:
    return Sample(
        id=name,
        tenant="acme",
        trajectory="t",
        revision=0,
        supersedes=None,
        messages=[SampleMessage(role="assistant", content=ANSWER, trained=True)],
        rewards=[EffectiveReward(event="r", name="reward", value=value, source="human", event_ms=1, late=False)],
        rollout_weight=1.0,
        level="recorded",
        tokens=None,
        group=None,
        agent="support",
        model=None,
        adapter=None,
        purpose="training",
        end="terminated",
        root="",
        policy="default@1",
        redaction="",
        findings={},
        holes=0,
    )


def _withdrawal(name: str) -> Withdrawal:
    return Withdrawal(id=name, tenant="acme", trajectory="t", revision=0, reasons=["subject_erased"])


# --- recording ---------------------------------------------------------------------------------------------------


def test_an_async_session_is_sent_when_the_block_is_left(server: Server) -> None:
    async def agent() -> str:
        async with ebbtide.asession(agent="support", subject="user-42") as session:
            answer = session.record([QUESTION], ANSWER)
            session.tool("find", {"order": 88}, {"ok": True})
            session.reward(1.0)
        return answer

    answer = asyncio.run(agent())
    assert server.types == ["step", "step", "reward", "step"]
    assert server.events[0]["id"] == answer
    assert server.events[-1]["end"] == "terminated"


def test_an_async_session_that_raises_is_aborted_and_raises_on(server: Server) -> None:
    async def agent() -> None:
        async with ebbtide.asession(agent="support") as session:
            session.record([QUESTION], ANSWER)
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(agent())
    assert server.events[-1]["end"] == "aborted"


def test_a_decorated_coroutine_reports_to_the_async_session_around_it(server: Server) -> None:
    @ebbtide.atool
    async def find(order: int) -> dict[str, bool]:
        return {"ok": order == 88}

    async def agent() -> None:
        async with ebbtide.asession(agent="support"):
            await find(88)

    asyncio.run(agent())
    assert server.events[0]["action"]["segment"]["tool_calls"][0]["arguments"] == '{"order":88}'


def test_a_late_reward_needs_the_answer_s_id_alone(server: Server) -> None:
    name = asyncio.run(ebbtide.areward("answer-1", 0.0, "reopened"))
    assert ebbtide.flush()
    (event,) = server.events
    assert (event["id"], event["target"], event["value"], event["name"]) == (
        name,
        {"step": "answer-1"},
        0.0,
        "reopened",
    )


def test_outside_ids_of_a_session_travel_with_each_step(server: Server) -> None:
    with ebbtide.session(agent="support", correlations={"ticket": "T-88"}) as session:
        session.record([QUESTION], ANSWER)
    ebbtide.reward(None, 1.0, correlation=("ticket", "T-88"))
    assert ebbtide.flush()
    outside = {"kind": "ticket", "value": "T-88"}
    assert server.events[0]["meta"]["correlations"] == [outside]
    assert server.events[-1]["target"] == {"correlation": outside}


def test_without_a_server_recording_warns_once_and_the_agent_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody there")

    monkeypatch.setattr("ebbtide.client.EXIT_FLUSH_S", 0.05)
    surface._default.set(client := Client(Configuration(), httpx.MockTransport(refuse)))
    with caplog.at_level(logging.WARNING, "ebbtide"):
        session = client.session(agent="support")
        session.record([QUESTION], ANSWER)
        assert not ebbtide.flush(0.3)
        client.close()
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "ebbtide: the server does not answer"
    ]


@pytest.mark.parametrize(
    ("url", "api_key"),
    [("nonsense", "key"), ("", "ключ"), ("http://127.0.0.1:x", "key"), ("http://ebbtide.test", "ключ")],
)
def test_a_wrong_setting_is_warned_of_and_the_agent_goes_on(
    url: str, api_key: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebbtide.client.EXIT_FLUSH_S", 0.05)
    with caplog.at_level(logging.WARNING, "ebbtide"):
        ebbtide.configure(url, api_key)
        ebbtide.session(agent="support").record([QUESTION], ANSWER)
    assert "nothing is sent" in caplog.text
    assert "ключ" not in caplog.text
    with pytest.raises(ebbtide.ServerUnreachable):
        ebbtide.forget("user-42")
    surface._default.get().close()


# --- reading -----------------------------------------------------------------------------------------------------


def test_reading_stops_at_the_cut_and_leaves_withdrawals_out(server: Server) -> None:
    server.pages = [[_sample("a"), _withdrawal("b")], [_sample("c")]]
    assert [record.id for record in ebbtide.curated("acme")] == ["a", "c"]
    first, second = (given for _, path, given in server.asked if path == "/v1/curated")
    assert (first["until"], second["until"], second["cursor"]) == ("cut", "cut", "page-1")


def test_a_consumer_that_asks_gets_withdrawals_too(server: Server) -> None:
    server.pages = [[_sample("a"), _withdrawal("a")]]
    sample, withdrawal = ebbtide.curated("acme", withdrawals=True)
    assert isinstance(sample, Sample)
    assert isinstance(withdrawal, Withdrawal)
    assert (sample.reward, withdrawal.reasons) == (1.0, ["subject_erased"])


def test_the_async_twin_reads_off_the_event_loop(server: Server) -> None:
    server.pages = [[_sample("a")], [_sample("b")]]

    async def read() -> list[str]:
        return [record.id async for record in ebbtide.acurated("acme")]

    assert asyncio.run(read()) == ["a", "b"]
    assert threading.main_thread().name not in server.threads


# --- acts --------------------------------------------------------------------------------------------------------


def test_forgetting_gives_a_receipt_that_verifies_offline(server: Server) -> None:
    async def forget() -> tuple[ebbtide.Receipt, ebbtide.Verification]:
        receipt = await ebbtide.aforget("user-42")
        return receipt, await ebbtide.averify(receipt)

    receipt, verification = asyncio.run(forget())
    assert verification.ok
    assert ebbtide.verify(ebbtide.forget("user-42")).ok
    assert receipt.tenant == "acme"
    assert server.asked == [("POST", "/v1/erasures", {"subject": "user-42"})] * 2


def test_consent_names_person_purpose_and_will(server: Server) -> None:
    ebbtide.consent("user-42", "withdrawn", purpose="training")
    ebbtide.consent("user-42", "given")
    assert [given for _, _, given in server.asked] == [
        {"subject": "user-42", "state": "withdrawn", "purpose": "training"},
        {"subject": "user-42", "state": "given"},
    ]


@pytest.mark.parametrize(
    "ask", [lambda: ebbtide.forget("user-42"), lambda: list(ebbtide.curated("acme"))], ids=["forget", "curated"]
)
def test_a_question_that_is_refused_says_why(ask: Callable[[], object]) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(403, json={"error": {"code": "forbidden", "rule": "needs the scope admin"}})

    surface._default.set(Client(Configuration(), httpx.MockTransport(refuse)))
    with pytest.raises(ebbtide.RequestRefused, match=r"403 forbidden.*scope admin"):
        ask()


def test_configure_replaces_server_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "Client", lambda configuration: Client(configuration, httpx.MockTransport(Server())))
    ebbtide.configure("http://elsewhere.test/", "another-key")
    http = surface._default.get()._http
    assert (str(http.base_url).rstrip("/"), http.headers["authorization"]) == (
        "http://elsewhere.test",
        "Bearer another-key",
    )
