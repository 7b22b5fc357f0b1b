"""
A network of the test's own, in which packets can be dropped.

Nobody is told: neither a reset nor an error follows, as behind a cable that was pulled.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence

_CLONE_NEWNET = 0x40000000
_THIS_NETWORK = "/proc/thread-self/ns/net"


def missing() -> str:
    """Return why there can be no such network; empty if there can."""
    if os.geteuid() != 0:
        return "only root can create a network namespace"
    programs = [name for name in ("ip", "iptables") if shutil.which(name) is None]
    return f"there is no program {' or '.join(programs)}" if programs else ""


class LossyNetwork:
    """
    A network namespace with a loopback device.  This process and the programs that it starts are in it.

    :raises OSError: there can be none.
    """

    def __init__(self) -> None:
        self._former = os.open(_THIS_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._call(self._libc.unshare(_CLONE_NEWNET))
        _run("ip", "link", "set", "lo", "up")

    def drop(self, ports: Sequence[int]) -> None:
        """Drop all packets to and from these TCP ports."""
        for rule in _rules(ports):
            _run("iptables", "-A", "INPUT", *rule)

    def mend(self, ports: Sequence[int]) -> None:
        """Let the packets of these ports pass again."""
        for rule in _rules(ports):
            _run("iptables", "-D", "INPUT", *rule)

    def leave(self) -> None:
        """Return to the network from before."""
        self._call(self._libc.setns(self._former, _CLONE_NEWNET))
        os.close(self._former)

    def _call(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _rules(ports: Sequence[int]) -> list[list[str]]:
    # Not at the output: the sender would get an error.
    return [
        ["-p", "tcp", which, str(port), "-j", "DROP"]
        for port in sorted(set(ports))
        for which in ("--dport", "--sport")
    ]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
