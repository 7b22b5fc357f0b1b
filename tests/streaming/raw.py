"""
One end of a stream that only keeps what comes.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure


class Raw(Protocol):
    """
    :ivar received: all bytes, an answer's head among them.
    :ivar lost: how it ended; ``None`` while it has not.
    """

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason

    @property
    def head(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]

    @property
    def code(self) -> int:
        return int(self.received.split(b" ", 2)[1])
