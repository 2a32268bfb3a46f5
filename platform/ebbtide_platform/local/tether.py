"""Ties a program to its parent: when the parent dies, by whatever signal, the kernel kills the program.

Run by path, with the standard library only, so that it costs a few milliseconds:
``python -I -S tether.py PARENT_PID SIGNAL PROGRAM ARGUMENT...`` becomes PROGRAM under the same pid.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PARENT_GONE = 71
"""Exit code when the parent died before the tie held."""


def main(argv: list[str]) -> None:
    """Ask the kernel for the signal, see that the parent still lives, and become the program."""
    parent, name, program = int(argv[0]), argv[1], argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.Signals[name]), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        os._exit(PARENT_GONE)
    try:
        os.execvp(program[0], program)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.exit(f"cannot start {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
