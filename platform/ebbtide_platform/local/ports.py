"""TCP ports of this machine: whether one is free, answers, or can be had."""

from __future__ import annotations

import socket

CONNECT_S = 0.5
TRIES = 50


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
