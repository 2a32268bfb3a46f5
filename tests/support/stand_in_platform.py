"""A supervisor over stand-in processes, run as a program: ``python stand_in_platform.py FOLDER NAME=BEHAVIOUR...``.

Each stand-in writes its pid to ``FOLDER/NAME.pid`` and then behaves: ``steady`` ends at SIGTERM, ``stubborn`` ignores
it, ``parent`` has a child of its own (``NAME.child.pid``), ``broken`` ends at once, ``misconfigured`` ends with the
exit code that says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ebbtide_platform.errors import EbbtideError
from ebbtide_platform.local.supervisor import Process, Supervisor
from ebbtide_platform.settings import Settings

STAND_IN = """
import os, pathlib, signal, subprocess, sys, time
folder, name, behaviour = sys.argv[1:]
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    def end(*_):
        with open(f"{folder}/ended", "a") as order:
            order.write(name + "\\n")
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
def tell(suffix, pid):
    path = pathlib.Path(folder, name + suffix)
    path.with_suffix(".new").write_text(str(pid))
    path.with_suffix(".new").replace(path)
if behaviour == "parent":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    tell(".child.pid", child.pid)
print("hello from", name, flush=True)
tell(".pid", os.getpid())
if behaviour == "broken":
    sys.exit(1)
if behaviour == "misconfigured":
    sys.exit(6)
while True:
    time.sleep(600)
"""


def process(folder: Path, name: str, behaviour: str) -> Process:
    """A stand-in that is ready when it has written its pid; a name that begins with ``base`` is a base part."""
    return Process(
        name,
        (sys.executable, "-I", "-c", STAND_IN, str(folder), name, behaviour),
        is_ready=lambda: behaviour != "broken" and (folder / f"{name}.pid").exists(),
        base=name.startswith("base"),
        grace_s=1.0 if behaviour == "stubborn" else 20.0,
    )


def main(folder: Path, *parts: str) -> int:
    """Run until told to end; touch ``FOLDER/ready`` when everything is up."""
    pairs = [part.split("=") for part in parts]
    supervisor = Supervisor(
        Settings(data_dir=folder),
        [process(folder, name, behaviour) for name, behaviour in pairs],
        on_ready=lambda: (folder / "ready").touch(),
    )
    try:
        supervisor.run()
    except EbbtideError as error:
        print(error.diagnostics(), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
