"""
Both ends of a stream whose middle can be lost, in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from twisted_exec.streaming.rejoin.splice import RejoinableSplice
from twisted_exec.streaming.rejoinable_transport import RejoinableTransport
from twisted_exec.testing.network import MemoryNetwork, MemoryTransport
from twisted_exec.wire.channel import V5
from twisted_exec.wire.frame_boundaries import frame_boundaries
from twisted_exec.wire.upgrade import WEBSOCKET

WAIT_SECONDS = 30.0


class Peer(Protocol):
    """One end of the stream, which records what it gets."""

    transport: Any

    def __init__(self) -> None:
        self.got = b""
        self.lost: Failure | None = None
        self.paused = False

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.paused = True


def frame(payload: bytes, kind: int = 2) -> bytes:
    """A server's message."""
    return bytes((0x80 | kind, 126)) + len(payload).to_bytes(2, "big") + payload


class Chain:
    """A user, a splice, a connection that can be lost, and the transport at the machine's end."""

    def __init__(self, encrypted: bool = False) -> None:
        self.clock, self.network, self.encrypted = Clock(), MemoryNetwork(), encrypted
        self.ends: list[str] = []
        self.losses = self.leaves = 0
        boundaries = frame_boundaries(WEBSOCKET, V5, commands=True)
        self.splice = RejoinableSplice(
            self.clock, self.ends.append, self.lost, self.left, boundaries
        )
        self.user, self.machine = Peer(), Peer()
        self.over: list[bool] = []
        self.stream = RejoinableTransport(
            self.machine, self.clock, WAIT_SECONDS, on_end=lambda: self.over.append(True)
        )
        self.network.join(self.user, self.splice.user, encrypted)
        self.middle = self.join(self.splice.machine, self.stream.connection())

    def join(self, near: Any, far: Any) -> tuple[MemoryTransport, MemoryTransport]:
        return self.network.join(near, far, self.encrypted)

    def lost(self) -> None:
        self.losses += 1

    def left(self) -> None:
        self.leaves += 1

    def cut(self) -> None:
        """Lose the connection between splice and stream, with what is on its way."""
        for transport in self.middle:
            transport.abortConnection()
        self.network.pump()

    def rejoin(self) -> None:
        """What the hops do over a new connection."""
        received = self.splice.machine.received
        self.stream.check(received)
        far = self.stream.rejoin(received)
        assert self.splice.can_rejoin(self.stream.received)
        self.middle = self.join(self.splice.rejoined(self.stream.received), far)
