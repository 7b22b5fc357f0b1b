"""
One user of a console, whatever it speaks, over a server in memory.

Received events have the same few names in all protocols, so that one scenario can be
played with each.
"""

from __future__ import annotations

import base64
from typing import Any

from wsproto.connection import ConnectionState

from tests.contracts.attachment import ContractUser, Heard
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire import spdy

from .frames import BytesMessage, CloseConnection, Peer, Ping, Pong, TextMessage, masked
from .spdy_peer import SPDYPeer

STDIN, STDOUT, ERROR, RESIZE = 0, 1, 3, 4


class WebSocketUser(ContractUser):
    """A user over WebSocket, in version 5."""

    protocol = b"v5.channel.k8s.io"
    broken = masked(b"x", 3)
    """A frame with an opcode that nobody defined."""

    def __init__(self, server: MemoryServer, query: bytes = b"") -> None:
        self.peer = Peer(server, protocols=self.protocol, query=query)
        self.client = self.peer.client

    def say(self, channel: int, data: bytes) -> None:
        self.send(BytesMessage(bytes([channel]) + data), 2)

    def send(self, event: Any, opcode: int) -> None:
        """By the other make, or by hand, where that will not send any more."""
        if self.peer.frames.state is ConnectionState.OPEN:
            self.peer.say(event)
        else:
            data = event.data if opcode == 2 else event.data.encode()
            self.peer.raw(masked(data, opcode))

    def types(self, data: bytes) -> None:
        self.say(STDIN, data)

    def resizes(self, document: bytes) -> None:
        self.say(RESIZE, document)

    def ends_input(self) -> None:
        self.peer.send(b"\xff\0")

    def pings(self, number: int) -> None:
        self.peer.say(Ping(b"%d" % number))

    def leaves(self) -> None:
        self.peer.say(CloseConnection(1000))

    def hears(self) -> list[Heard]:
        return [told for event in self.peer.events() for told in self._told(event)]

    def _told(self, event: Any) -> list[Heard]:
        if isinstance(event, CloseConnection):
            return ["end" if event.code == 1000 else "broken"]
        if isinstance(event, Pong):
            return [("pong", bytes(event.payload))]
        if isinstance(event, Ping):
            return ["ping"]
        channel, data = self.read(event)
        name = {STDOUT: "output", ERROR: "status"}[channel]
        return [(name, data)] if data else []  # the greeting is empty

    def read(self, event: Any) -> tuple[int, bytes]:
        assert isinstance(event, BytesMessage), event
        return event.data[0], bytes(event.data[1:])


class OlderUser(WebSocketUser):
    """A user over WebSocket, in version 4."""

    protocol = b"v4.channel.k8s.io"


class Base64User(WebSocketUser):
    """A user over base64 text messages."""

    protocol = b"v4.base64.channel.k8s.io"

    def say(self, channel: int, data: bytes) -> None:
        self.send(TextMessage(f"{channel}{base64.b64encode(data).decode()}"), 1)

    def read(self, event: Any) -> tuple[int, bytes]:
        assert isinstance(event, TextMessage), event
        return int(event.data[0]), base64.b64decode(event.data[1:])


class SPDYUser(ContractUser):
    """A user over SPDY with a terminal."""

    broken = b"\x80\x03\0\x05\0\0\0\0"
    """A frame of a type that nobody speaks."""

    def __init__(self, server: MemoryServer, query: bytes = b"") -> None:
        self.peer = SPDYPeer(server, query=query)
        self.client = self.peer.client
        self.peer.open("error", "stdin", "stdout", "resize")
        self._ends = {"end error", "end stdout"}

    def types(self, data: bytes) -> None:
        self.peer.send("stdin", data)

    def resizes(self, document: bytes) -> None:
        self.peer.send("resize", document)

    def ends_input(self) -> None:
        self.peer.send("stdin", b"", fin=True)

    def pings(self, number: int) -> None:
        self.peer.raw(spdy.ping(2 * number + 1))

    def leaves(self) -> None:
        self.peer.raw(spdy.go_away(0))

    def hears(self) -> list[Heard]:
        return [told for each in self.peer.said() for told in self._told(each)]

    def _told(self, said: Any) -> list[Heard]:
        if isinstance(said, tuple):
            return [({"stdout": "output", "error": "status"}[said[0]], said[1])]
        word, _, what = said.partition(" ")
        if word == "ping":
            number = int(what)
            return [("pong", b"%d" % ((number - 1) // 2)) if number % 2 else "ping"]
        if said == "go away 1":
            return ["broken"]
        if said in self._ends:
            self._ends.discard(said)
            return [] if self._ends else ["end"]
        return []  # the other streams' ends, and the farewell
