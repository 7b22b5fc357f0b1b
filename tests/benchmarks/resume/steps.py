"""
The CPU time that rejoining adds to a key and its echo, in this process and without a network.

Whole programs cannot show it: the same program, started twice, differs by more.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from twisted_exec.streaming.rejoin.splice import RejoinableSplice
from twisted_exec.streaming.rejoinable_transport import RejoinableTransport
from twisted_exec.streaming.splice import Splice
from twisted_exec.wire.frame_boundaries import WebSocketFrameBoundaries

KEY = b"\x82\x82mask\x00x"
ECHO = b"\x82\x02\x01x"
ROUNDS, REPEATS = 15, 20_000
_V5 = "v5.channel.k8s.io"


class _Nowhere(StringTransport):
    """A transport that drops everything."""

    def write(self, data: bytes) -> None:
        """Drop data."""


class _Machine(Protocol):
    """The machine's end: each key comes back."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(ECHO)


def measure() -> None:
    """Print the microseconds of a key and its echo at both hops that take part, with and without rejoining."""
    clock = Clock()
    parts: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "first hop": (_hop(_splice(clock)), _hop(_rejoinable_splice(clock))),
        "machine's end": (_end(_Machine()), _end(_rejoinable_transport(clock))),
    }
    added = 0.0
    for name, functions in parts.items():
        figures: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for function, times in zip(functions, figures, strict=True):
                times.append(timeit.timeit(function, number=REPEATS) / REPEATS * 1e6)
        ordinary, rejoined = map(statistics.median, figures)
        added += rejoined - ordinary
        print(f"us of a key at the {name}: ordinary {ordinary:.2f}, rejoined {rejoined:.2f}")
    print(f"us that rejoining adds to a key: {added:.2f}", flush=True)


def _splice(clock: Clock) -> Splice:
    return Splice(clock, lambda _: None)


def _rejoinable_splice(clock: Clock) -> Splice:
    boundaries = WebSocketFrameBoundaries(_V5)
    return RejoinableSplice(clock, lambda _: None, lambda: None, lambda: None, boundaries)


def _hop(splice: Splice) -> Callable[[], None]:
    user: Any = splice.user
    machine: Any = splice.machine
    for end in (user, machine):
        end.makeConnection(_Nowhere())

    def key() -> None:
        user.dataReceived(KEY)
        machine.dataReceived(ECHO)

    return key


def _rejoinable_transport(clock: Clock) -> Any:
    stream = RejoinableTransport(_Machine(), clock, 60)

    stream.ping = lambda: True
    return stream.connection()


def _end(protocol: Any) -> Callable[[], None]:
    protocol.makeConnection(_Nowhere())
    return lambda: protocol.dataReceived(KEY)
