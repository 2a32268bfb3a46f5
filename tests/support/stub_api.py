"""The smallest server that takes events: for processes that have no Ebbtide to talk to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class StubApi:
    """What was posted so far, and by which key."""

    url: str
    events: list[dict[str, Any]] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)


@contextmanager
def stub_api() -> Iterator[StubApi]:
    """A server on a free port of this machine that accepts every event."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server's name
            body = self.rfile.read(int(self.headers["content-length"]))
            events = [json.loads(line) for line in body.splitlines()]
            api.events += events
            api.authorizations.add(self.headers["authorization"])
            results = [{"index": index, "status": "accepted"} for index in range(len(events))]
            answer = json.dumps({"accepted": len(events), "results": results}).encode()
            self.send_response(202)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
            """A test's output is not for access logs."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api = StubApi(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
