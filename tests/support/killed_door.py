"""A key door that kills itself with -9 at a named point of a destruction: ``killed_door.py DATA_DIR POINT``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ebbtide_platform.keydoor.door import LocalKeyDoor
from ebbtide_platform.keydoor.keystore.port import FileKeyPort, KeyName
from ebbtide_platform.settings import Settings

POINTS = ("page-made", "half-moved", "moved", "page-destroyed")
HALF = 3
"""Keys moved by then, of the five that stand on the page."""


class KilledPort(FileKeyPort):
    """Ends the process, without a chance to tidy up, when the point is reached."""

    point: str | None = None
    moved = 0

    def create(self, name: KeyName) -> None:
        super().create(name)
        self._reach("page-made")

    def wrap(self, name: KeyName, plain: bytes, *bound: str) -> bytes:
        self.moved += name.kind == "page"
        if self.moved == HALF:
            self._reach("half-moved")
        return super().wrap(name, plain, *bound)

    def destroy(self, name: KeyName) -> int:
        self._reach("moved")
        gone_ms = super().destroy(name)
        self._reach("page-destroyed")
        return gone_ms

    def _reach(self, point: str) -> None:
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def main(data_dir: Path, point: str) -> None:
    """Destroy the subject ``p-0`` and die on the way."""
    port = KilledPort(data_dir / "keys/kek")
    with LocalKeyDoor(Settings(data_dir=data_dir), port=port) as door:
        port.point = point
        door.destroy_subject("acme", "p-0")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
