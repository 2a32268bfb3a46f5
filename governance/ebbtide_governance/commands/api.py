"""The API process: key door, outbox, log and read model put together behind one address."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine

from ebbtide_governance.standing import newest_policy, policy_fact, wanted_policy
from ebbtide_governance.tables.database import connect, migrate
from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.web.reads import reads_router
from ebbtide_platform.adapters.kafka import Follower, KafkaLogWriter
from ebbtide_platform.doors.app import Doors, clock_ms, create_app
from ebbtide_platform.doors.auth import Authenticator
from ebbtide_platform.doors.outbox import Outbox
from ebbtide_platform.errors import EbbtideError, Misconfigured
from ebbtide_platform.keydoor.client import RemoteKeyDoor
from ebbtide_platform.ports import KeyDoor, LogWriter
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FACTS

log = logging.getLogger("ebbtide.api")

FINISH_S = 5
"""Requests that are under way at the end get this long; what was answered 202 is on disk by then."""
POLICY_S = 5.0
"""The first event waits so long for the standing policy; a broker that is away must not keep the door shut."""
RETRY_S = 1.0


def serve(settings: Settings) -> None:
    """Answer on ``settings.host:port`` until SIGTERM or Ctrl-C.

    Raises:
        Misconfigured: the address is taken, another process has the outbox, or no key door has run here.
        Unavailable: the read model's database does not answer.
    """
    # uvicorn raises the signal that ended it once more; the outbox must still be closed then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with ExitStack() as stack:
        listener = stack.enter_context(_listen(settings))
        engine = connect(settings)
        stack.callback(engine.dispose)
        migrate(engine)
        door = stack.enter_context(closing(RemoteKeyDoor(settings.socket_path, _token(settings))))
        writer = stack.enter_context(closing(KafkaLogWriter(settings)))
        outbox = stack.enter_context(Outbox(settings.data_dir / "outbox", writer, max_bytes=settings.outbox_max_bytes))
        stack.enter_context(_StandingPolicy(settings, writer))
        app = compose(settings, door, outbox, engine)
        config = uvicorn.Config(
            app,
            # Access lines hold paths, and paths hold producers' own ids.
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=FINISH_S,
        )
        uvicorn.Server(config).run(sockets=[listener])


def compose(settings: Settings, door: KeyDoor, outbox: Outbox, engine: Engine) -> FastAPI:
    """The whole API over its parts: the doors, and the routes that read the read model."""
    model, authenticator = ReadModel(engine), Authenticator(door)
    doors = Doors(
        settings=settings,
        door=door,
        authenticator=authenticator,
        sealer=Sealer(door),
        outbox=outbox,
        follow=lambda topics, start: Follower(settings, topics, start),
        index=model,
    )
    return create_app(doors, [reads_router(model, authenticator.require("read"), door.identity_key)])


def publish_policy(settings: Settings, writer: LogWriter, now_ms: Callable[[], int] = clock_ms) -> bool:
    """Write the settings' policy to the facts if it is not the newest there; True if it was.

    Raises:
        Unavailable: the broker does not answer.
        Misconfigured: the facts topic does not exist.
    """
    with Follower(settings, [FACTS]) as follower:
        newest = newest_policy(follower.read_to_end())
    wanted = wanted_policy(newest, settings)
    if wanted is None:
        return False
    writer.write([policy_fact(wanted, now_ms())])
    return True


class _StandingPolicy:
    """Publishes the standing policy beside the API, as soon as the broker takes it."""

    def __init__(self, settings: Settings, writer: LogWriter) -> None:
        self._settings = settings
        self._writer = writer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="standing-policy", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        self._thread.join(POLICY_S)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(RETRY_S)

    def _publish(self) -> None:
        while not self._stop.is_set():
            try:
                publish_policy(self._settings, self._writer)
            except EbbtideError as error:
                log.warning("the standing policy waits: %s", error.happened)
                self._stop.wait(RETRY_S)
            else:
                return


def _listen(settings: Settings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.port))
    except OSError:
        raise Misconfigured(
            f"the address {settings.host}:{settings.port} cannot be listened on",
            try_this="another platform may be running; set EBBTIDE_PORT to a free port",
        ) from None


def _token(settings: Settings) -> str:
    """The API's own token, which may do less than the one for everything."""
    own = settings.run_dir / "workload-api.token"
    if settings.workload_token or not own.exists():
        return settings.token()
    return own.read_text(encoding="ascii").strip()
