"""
Ports for local spaces: such as nobody else is given by chance.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from twisted_exec.api.status import ServiceUnavailable

LOWEST = 20000
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_TRIES = 100


def free_port(taken: Collection[int]) -> int:
    """
    A port of loopback that is free now, and below those that the kernel gives to whoever connects: a space
    that was stopped for a while finds it free again.

    :param taken: by others that may not run just now.
    :raises ServiceUnavailable: there seems to be none.
    """
    for _ in range(_TRIES):
        port = random.randrange(LOWEST, highest())
        if port not in taken and _is_free(port):
            return port
    raise ServiceUnavailable(
        f"local spaces: no free port from {LOWEST} to {highest()} on 127.0.0.1; free some"
    )


def highest() -> int:
    """The first port that is not for us."""
    try:
        with open(_RANGE, encoding="ascii") as file:
            lowest_given = int(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        lowest_given = 32768
    return lowest_given if lowest_given > LOWEST + 1000 else 32768


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
