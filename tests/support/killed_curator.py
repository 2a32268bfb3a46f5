"""A curator that kills itself with -9 at a named point of its first transaction: ``killed_curator.py POINT``."""

from __future__ import annotations

import os
import signal
import sys
import threading

from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.sealing.sealer import Sealer
from ebbtide_platform.settings import read_settings
from ebbtide_streams.curator import Curator
from ebbtide_streams.facts_reader import FactsReader

POINTS = ("produced", "offsets sent", "committed")


def main(point: str) -> None:
    """Curate, and die on the way without a chance to tidy up."""

    def crash(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = read_settings()
    Curator(settings, FactsReader(settings), Sealer(MemoryKeyDoor("acme")), crash).run(threading.Event())


if __name__ == "__main__":
    main(sys.argv[1])
