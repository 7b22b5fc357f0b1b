"""
Free ports for new local spaces; a space that was usable keeps its port (:mod:`.space`).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from twisted_exec.api.status import ServiceUnavailable

LOWEST = 20000
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


class NoFreePort(ServiceUnavailable):
    """All ports for spaces are in use."""


def free_port(used: Collection[int], ports: range | None = None) -> int:
    """
    Return a free loopback port.

    :param used: ports of spaces that may not be running.
    :param ports: permitted ports; by default those from :data:`LOWEST` to below :func:`highest`.
    :raises NoFreePort: none is free.
    """
    ports = ports or range(LOWEST, highest())
    for port in random.sample(ports, len(ports)):
        if port not in used and _is_free(port):
            return port
    raise NoFreePort(
        f"local spaces: no free port from {ports[0]} to {ports[-1]} on 127.0.0.1; delete a Space,"
        " stop other programs there, or give a larger --space-port-range"
    )


def highest() -> int:
    """Return the first port beyond the default range."""
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
