"""Detectors in processes of their own, so that heartbeats never wait for a language model.

Each worker loads its detector once. A worker that dies or takes too long is replaced, and what it had been
given is looked at again, one text at a time; a text that fails twice gets None, and its record must not pass.
Texts travel as msgpack bytes over a pipe; nothing is pickled but the call that makes the detector.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Final

import msgspec

from ebbtide_governance.redaction.detector import Detector, Span, pieces
from ebbtide_platform.errors import FAULT, Misconfigured, Unavailable
from ebbtide_platform.settings import Settings

CHUNK_CHARS: Final = 16_000
"""Texts that travel together: about half a second of work."""
LOAD_TIMEOUT_S: Final = 120.0
"""A cold disk and two busy cores included."""
CHUNKS_PER_WORKER: Final = 2_000
"""Then a worker is replaced: spaCy's string store grows with every new word."""
_END_S: Final = 5.0

log = logging.getLogger(__name__)

_Wire = list[list[tuple[int, int, str, float]]]
_spawn = get_context("spawn")


class DetectorPool:
    """A `Detector` over ``settings.redact_processes`` workers; safe from any thread. To be closed."""

    def __init__(self, settings: Settings, make: Callable[[], Detector] | None = None) -> None:
        """Start the workers and wait until they have loaded; ``make`` must be importable by name.

        Raises:
            Misconfigured: the detector cannot be made on this machine.
            Unavailable: it did not load in time.
        """
        self._make = make or partial(_presidio, settings.spacy_model)
        self._timeout_s = settings.redact_timeout_s
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        count = max(1, settings.redact_processes)
        workers: list[_Worker] = []
        try:
            workers += (_Worker(self._make) for _ in range(count))
            versions = {worker.wait_until_loaded() for worker in workers}
        except BaseException:
            for worker in workers:
                worker.kill()
            raise
        self.version = versions.pop()
        for worker in workers:
            self._idle.put(worker)
        self._count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="redact")

    def detect(self, texts: Sequence[str]) -> list[list[Span] | None]:
        """The spans of each text; None for one at which a detector died or took too long twice.

        Raises:
            Unavailable: a worker had to be replaced, and none could be started.
        """
        where: dict[str, list[tuple[int, int]]] = {}
        for number, text in enumerate(texts):
            for offset, piece in pieces(text):
                where.setdefault(piece, []).append((number, offset))
        chunks = list(_chunks(where))
        found: list[set[Span] | None] = [set() for _ in texts]
        for chunk, results in zip(chunks, self._threads.map(self._look, chunks), strict=True):
            for piece, spans in zip(chunk, results, strict=True):
                for number, offset in where[piece]:
                    so_far = found[number]
                    if spans is None or so_far is None:
                        found[number] = None
                    else:
                        so_far.update(Span(s.start + offset, s.end + offset, s.type, s.score) for s in spans)
        return [None if spans is None else sorted(spans) for spans in found]

    def close(self) -> None:
        """End the workers, after what they are doing now."""
        self._threads.shutdown()
        for _ in range(self._count):
            self._idle.get().kill()

    def _look(self, chunk: Sequence[str]) -> list[list[Span] | None]:
        results = self._ask(chunk)
        if results is not None:
            return [*results]
        return [again[0] if (again := self._ask([text])) is not None else None for text in chunk]

    def _ask(self, chunk: Sequence[str]) -> list[list[Span]] | None:
        """One try; None if the worker failed, and then another one has its place."""
        worker = self._idle.get()
        try:
            results = worker.ask(chunk, self._timeout_s)
            if results is None or worker.asked >= CHUNKS_PER_WORKER:
                worker.kill()
                worker = _started(self._make)
            return results
        finally:
            self._idle.put(worker)


def _started(make: Callable[[], Detector]) -> _Worker:
    try:
        worker = _Worker(make)
    except OSError:
        raise Unavailable(
            "a redaction process could not be started", try_this="look for memory and processes"
        ) from None
    try:
        worker.wait_until_loaded()
    except BaseException:
        worker.kill()
        raise
    return worker


class _Worker:
    """One process with its detector. One thread at a time."""

    def __init__(self, make: Callable[[], Detector]) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_work, args=(theirs, make), name="ebbtide-redact", daemon=True)
        self._process.start()
        theirs.close()
        self.asked = 0

    def wait_until_loaded(self) -> str:
        """The version of its detector."""
        answer = self._receive(LOAD_TIMEOUT_S)
        if answer is None:
            raise Unavailable("the detector did not load", try_this="look for memory: each worker needs about 250 MB")
        version, error = msgspec.msgpack.decode(answer, type=tuple[str, str])
        if error:
            raise Misconfigured(error, try_this="install the extra `ebbtide[streams]`, or set EBBTIDE_SPACY_MODEL")
        return version

    def ask(self, texts: Sequence[str], timeout_s: float) -> list[list[Span]] | None:
        """The spans of each text; None if the worker died or took too long, and is of no more use."""
        self.asked += 1
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(texts))
        except OSError:
            return None
        answer = self._receive(timeout_s)
        if answer is None:
            return None
        return [[Span(*span) for span in spans] for spans in msgspec.msgpack.decode(answer, type=_Wire)]

    def kill(self) -> None:
        """End the process; it has nothing to save."""
        self._process.kill()
        self._process.join(_END_S)
        self._pipe.close()

    def _receive(self, timeout_s: float) -> bytes | None:
        try:
            return self._pipe.recv_bytes() if self._pipe.poll(timeout_s) else None
        except (EOFError, OSError):
            return None


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > CHUNK_CHARS:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text)
    if chunk:
        yield chunk


# --- in the worker --------------------------------------------------------------------------------------------


def _presidio(model: str) -> Detector:
    # Imported here: only the workers need it, and it takes seconds.
    from ebbtide_governance.redaction.presidio import PresidioDetector

    return PresidioDetector(model)


def _work(pipe: Connection, make: Callable[[], Detector]) -> None:
    """Answer until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        detector = make()
    except Misconfigured as error:
        pipe.send_bytes(msgspec.msgpack.encode(("", error.happened)))
        return
    except ImportError as error:
        pipe.send_bytes(
            msgspec.msgpack.encode(("", f"the detector needs {error.name or 'a package'}, which is missing"))
        )
        return
    pipe.send_bytes(msgspec.msgpack.encode((detector.version, "")))
    while True:
        try:
            texts = msgspec.msgpack.decode(pipe.recv_bytes(), type=list[str])
        except (EOFError, OSError):
            return
        try:
            found = detector.detect(texts)
        except Exception as error:
            # Its message may quote the text. Ending tells the parent, which tries each text alone.
            log.error("a detector failed: %s", type(error).__name__)
            os._exit(FAULT)
        wire = [[(s.start, s.end, s.type, s.score) for s in spans or ()] for spans in found]
        pipe.send_bytes(msgspec.msgpack.encode(wire))


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
