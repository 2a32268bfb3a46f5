"""Sends events in the background: batched, retried under the same ids, and never in the agent's way."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

log = logging.getLogger("ebbtide")

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""An agent whose server is away holds at most this much; then new events are counted as lost, with a warning."""
MAX_BATCH_EVENTS = 200
MAX_BATCH_BYTES = 4 * 1024 * 1024
LINGER_S = 0.05
"""How long the first event of a batch waits for company."""
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 10.0
"""Waiting doubles from the first to the last; a Retry-After of the server is obeyed within the same bound."""

Post = Callable[[bytes], httpx.Response]


@dataclass
class Counts:
    """What became of the events so far."""

    sent: int = 0
    refused: int = 0
    lost: int = 0


class Publisher:
    """A bounded queue and the one thread that empties it.

    `put` returns at once and raises nothing. Delivery is at least once; the ids make a repeat harmless.
    """

    def __init__(self, post: Post, *, max_queued_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._post = post
        self._max_queued_bytes = max_queued_bytes
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._warned: set[str] = set()
        self._thread: threading.Thread | None = None
        self.counts = Counts()

    def put(self, event: bytes) -> None:
        """Queue one event's JSON; a full queue counts it as lost and warns once."""
        with self._changed:
            if self._closing or self._queued_bytes + len(event) > self._max_queued_bytes:
                self.counts.lost += 1
                self._warn("full", "events are being lost: the server has been away for too long and the queue is full")
                return
            self._queue.append(event)
            self._queued_bytes += len(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ebbtide-publisher", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued so far is answered; False if that took longer than ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Flush, then end the thread; what is still queued is counted as lost."""
        done = self.flush(timeout_s)
        with self._changed:
            self._closing = True
            self.counts.lost += len(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=timeout_s)
        return done

    def _run(self) -> None:
        wait_s = FIRST_RETRY_S
        while batch := self._next_batch():
            retry_after_s = self._send(batch)
            if retry_after_s is None:
                self._remove(len(batch))
                wait_s = FIRST_RETRY_S
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closing, min(max(wait_s, retry_after_s), LAST_RETRY_S))
            wait_s = min(wait_s * 2, LAST_RETRY_S)

    def _next_batch(self) -> list[bytes]:
        """The oldest events that fit one request, left in the queue until they are answered; empty when closing."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue) or self._closing)
            deadline = time.monotonic() + LINGER_S
            while not self._closing and len(self._queue) < MAX_BATCH_EVENTS:
                if not self._changed.wait(deadline - time.monotonic()):
                    break
            batch: list[bytes] = []
            size = 0
            for event in self._queue:
                if batch and (len(batch) == MAX_BATCH_EVENTS or size + len(event) > MAX_BATCH_BYTES):
                    break
                batch.append(event)
                size += len(event)
            return batch

    def _remove(self, count: int) -> None:
        with self._changed:
            for _ in range(min(count, len(self._queue))):
                self._queued_bytes -= len(self._queue.popleft())
            self._changed.notify_all()

    def _send(self, batch: Sequence[bytes]) -> float | None:
        """None when the batch is answered for good, else the least number of seconds to wait before the next try."""
        try:
            answer = self._post(b"\n".join(batch) + b"\n")
        except httpx.HTTPError as error:
            self._warn(
                "away", f"the server does not answer ({type(error).__name__}); events wait and are sent when it does"
            )
            return 0.0
        if answer.status_code in (401, 403):
            self._warn(
                "key",
                f"the server refuses the API key ({answer.status_code}); set EBBTIDE_API_KEY, events wait until then",
            )
            return LAST_RETRY_S
        if answer.status_code == 429 or answer.status_code >= 500:
            return _retry_after(answer)
        self._count(answer, len(batch))
        return None

    def _count(self, answer: httpx.Response, batch: int) -> None:
        try:
            results = answer.json()["results"]
        except (ValueError, KeyError, TypeError):
            results = []
        refused = [item for item in results if item.get("status") == "error"]
        if not results and answer.status_code >= 400:
            self.counts.refused += batch
            self._warn(
                f"http{answer.status_code}", f"the server refused a batch of {batch} events ({answer.status_code})"
            )
            return
        self.counts.refused += len(refused)
        self.counts.sent += batch - len(refused)
        for item in refused:
            field, rule = item.get("field", "event"), item.get("rule", item.get("code", "refused"))
            self._warn(f"{field}:{item.get('code')}", f"the server refused an event: {field}: {rule}")

    def _warn(self, kind: str, text: str) -> None:
        """Once for each kind of trouble: an agent's log is not ours to fill."""
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("ebbtide: %s", text)


def _retry_after(answer: httpx.Response) -> float:
    try:
        return float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
