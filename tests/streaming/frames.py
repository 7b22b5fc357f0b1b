"""
A WebSocket client of another make: wsproto, over a server in memory.

What our server sends is read by a second implementation, and what it reads was
written by one.
"""

from __future__ import annotations

from typing import Any

import wsproto
from wsproto.connection import ConnectionType
from wsproto.events import (
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    TextMessage,
)
from wsproto.frame_protocol import FrameProtocol

from twisted_exec.testing.network import MemoryClient, MemoryServer

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def handshake(
    *lines: bytes,
    path: bytes = b"/exec",
    protocols: bytes = b"v5.channel.k8s.io",
    query: bytes = b"",
) -> bytes:
    """A complete request; further header lines may be added."""
    return b"\r\n".join(
        [
            b"GET " + path + query + b" HTTP/1.1",
            b"Host: server",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: " + KEY,
            *([b"Sec-WebSocket-Protocol: " + protocols] if protocols else []),
            *lines,
            b"",
            b"",
        ]
    )


class Peer:
    """
    A client, after its 101.

    :ivar head: the answer's head.
    """

    def __init__(
        self, server: MemoryServer, early: bytes = b"", lines: tuple[bytes, ...] = (), **more: Any
    ) -> None:
        self.client: MemoryClient = server.connect()
        self.frames = wsproto.Connection(ConnectionType.CLIENT)
        self.client.send(handshake(*lines, **more) + early)
        self.head, found, rest = self.client.received().partition(b"\r\n\r\n")
        assert found, "no answer"
        self._events: list[Any] = []
        self.frames.receive_data(rest)

    def send(self, message: bytes) -> None:
        """One binary message."""
        self.client.send(self.frames.send(BytesMessage(message)))

    def say(self, event: Any) -> None:
        """Any event."""
        self.client.send(self.frames.send(event))

    def raw(self, data: bytes) -> None:
        self.client.send(data)

    def events(self) -> list[Any]:
        """Events from the server since the last call."""
        data = self.client.received()
        if data:
            self.frames.receive_data(data)
        return list(self.frames.events())

    def messages(self) -> list[bytes]:
        """The messages among it; anything else is an error."""
        events = self.events()
        assert all(isinstance(event, BytesMessage) for event in events), events
        return [bytes(event.data) for event in events]


def masked(message: bytes, opcode: int = 2, fin: bool = True) -> bytes:
    """A client's frame, byte by byte."""
    length = len(message)
    first = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head = first + bytes([0x80 | length])
    elif length < 1 << 16:
        head = first + b"\xfe" + length.to_bytes(2, "big")
    else:
        head = first + b"\xff" + length.to_bytes(8, "big")
    return head + b"\0\0\0\0" + message


__all__ = [
    "KEY",
    "BytesMessage",
    "CloseConnection",
    "FrameProtocol",
    "Message",
    "Peer",
    "Ping",
    "Pong",
    "TextMessage",
    "handshake",
    "masked",
]
