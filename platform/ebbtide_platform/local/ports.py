"""Ports and sockets of this machine: whether one is free, answers, or can be had."""

from __future__ import annotations

import os
import socket
from pathlib import Path

CONNECT_S = 0.5
TRIES = 50
LONGEST_SOCKET_PATH = 107
"""Bytes of a Unix socket's path on Linux."""


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def answers(host: str, port: int) -> bool:
    """Whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def free_ports(count: int = 1, host: str = "127.0.0.1") -> int:
    """The first of ``count`` consecutive ports that were free a moment ago.

    Raises:
        OSError: no such run was found.
    """
    for _ in range(TRIES):
        with socket.socket() as probe:
            probe.bind((host, 0))
            first = int(probe.getsockname()[1])
        if first + count <= 65_536 and all(is_free(host, first + more) for more in range(count)):
            return first
    raise OSError("no run of free ports was found")


def socket_problem(path: Path) -> str | None:
    """What is wrong with a path as that of a Unix socket, if anything."""
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        return f"{path} is longer than the {LONGEST_SOCKET_PATH} bytes that a Unix socket may have"
    return None


def socket_answers(path: Path) -> bool:
    """Whether a server accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
