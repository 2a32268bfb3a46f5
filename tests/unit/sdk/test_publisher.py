"""The background publisher: batches, retries under the same ids, never blocks, never raises."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from ebbtide.publisher import Publisher

DEADLINE_S = 10.0


class Server:
    """Answers what it is told to, and remembers every line it was sent."""

    def __init__(self, *answers: Callable[[list[bytes]], httpx.Response]) -> None:
        self.requests: list[list[bytes]] = []
        self._answers = list(answers)

    def __call__(self, body: bytes) -> httpx.Response:
        lines = body.splitlines()
        self.requests.append(lines)
        answer = self._answers.pop(0) if self._answers else accept
        return answer(lines)


def accept(lines: list[bytes]) -> httpx.Response:
    results = [{"index": i, "status": "accepted"} for i, _ in enumerate(lines)]
    return httpx.Response(202, json={"accepted": len(lines), "results": results})


def away(lines: list[bytes]) -> httpx.Response:
    raise httpx.ConnectError("nobody listens")


def busy(lines: list[bytes]) -> httpx.Response:
    return httpx.Response(429, headers={"retry-after": "0.01"})


def refuse_first(lines: list[bytes]) -> httpx.Response:
    results = [{"index": i, "status": "accepted"} for i, _ in enumerate(lines)]
    results[0] = {"index": 0, "status": "error", "code": "invalid", "field": "meta.agent", "rule": "must be a label"}
    return httpx.Response(207, json={"results": results})


@pytest.fixture
def publish() -> Iterator[Callable[..., Publisher]]:
    made: list[Publisher] = []

    def make(server: Server, **options: int) -> Publisher:
        made.append(Publisher(server, **options))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(0.1)


def test_events_are_sent_in_order_and_in_batches(publish: Callable[..., Publisher]) -> None:
    server = Server()
    publisher = publish(server)
    events = [json.dumps({"n": n}).encode() for n in range(500)]
    for event in events:
        publisher.put(event)
    assert publisher.flush(DEADLINE_S)
    assert [line for request in server.requests for line in request] == events
    assert len(server.requests) < 50
    assert publisher.counts.sent == 500


@pytest.mark.parametrize("trouble", [away, busy], ids=["away", "busy"])
def test_the_same_bytes_are_sent_again_after_trouble(
    publish: Callable[..., Publisher], trouble: Callable[[list[bytes]], httpx.Response]
) -> None:
    server = Server(trouble, trouble)
    publisher = publish(server)
    publisher.put(b'{"n":1}')
    assert publisher.flush(DEADLINE_S)
    assert server.requests == [[b'{"n":1}']] * 3
    assert publisher.counts.sent == 1


def test_a_server_that_is_away_is_warned_of_once(
    publish: Callable[..., Publisher], caplog: pytest.LogCaptureFixture
) -> None:
    publisher = publish(Server(away, away, away))
    with caplog.at_level(logging.WARNING, "ebbtide"):
        publisher.put(b'{"n":1}')
        assert publisher.flush(DEADLINE_S)
    assert len(caplog.records) == 1
    assert "does not answer" in caplog.text


def test_a_refused_event_is_counted_and_explained_and_the_rest_is_taken(
    publish: Callable[..., Publisher], caplog: pytest.LogCaptureFixture
) -> None:
    publisher = publish(Server(refuse_first))
    with caplog.at_level(logging.WARNING, "ebbtide"):
        publisher.put(b'{"n":1}')
        publisher.put(b'{"n":2}')
        assert publisher.flush(DEADLINE_S)
    assert (publisher.counts.refused, publisher.counts.sent) == (1, 1)
    assert "meta.agent: must be a label" in caplog.text


def test_a_full_queue_counts_what_it_loses_and_does_not_block(publish: Callable[..., Publisher]) -> None:
    hold = threading.Event()

    def stuck(lines: list[bytes]) -> httpx.Response:
        hold.wait(DEADLINE_S)
        return accept(lines)

    publisher = publish(Server(stuck), max_queued_bytes=100)
    for _ in range(30):
        publisher.put(b"x" * 10)
    assert publisher.counts.lost == 20
    hold.set()
    assert publisher.flush(DEADLINE_S)
    assert publisher.counts.sent == 10
