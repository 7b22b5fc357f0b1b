"""
A SPDY client that sends single frames to a server in memory, as kubectl does.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.testing.network import MemoryClient, MemoryServer
from twisted_exec.wire import spdy
from twisted_exec.wire.spdy import (
    Data,
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    Ping,
    RstStream,
    SynReply,
)

KUBECTLS = (
    b"v5.channel.k8s.io",
    b"v4.channel.k8s.io",
    b"v3.channel.k8s.io",
    b"v2.channel.k8s.io",
    b"channel.k8s.io",
)


def handshake(*lines: bytes, offers: tuple[bytes, ...] = KUBECTLS, query: bytes = b"") -> bytes:
    """kubectl's request; further header lines may be added."""
    return b"\r\n".join(
        [
            b"POST /exec" + query + b" HTTP/1.1",
            b"Host: server",
            b"Content-Length: 0",
            b"Connection: Upgrade",
            b"Upgrade: SPDY/3.1",
            *(b"X-Stream-Protocol-Version: " + each for each in offers),
            *lines,
            b"",
            b"",
        ]
    )


class SPDYPeer:
    """
    A client, after its 101.

    :ivar head: the answer's head.
    :ivar ids: of the streams it opened, by type.
    """

    def __init__(self, server: MemoryServer, **more: Any) -> None:
        self.client: MemoryClient = server.connect()
        self.writer, self.reader = FrameWriter(), FrameReader()
        self.ids: dict[str, int] = {}
        self._last = -1
        self.client.send(handshake(**more))
        self.head, found, rest = self.client.received().partition(b"\r\n\r\n")
        assert found, "no answer"
        self.reader.feed(rest)

    def open(self, *names: str) -> None:
        """Open streams without waiting for the answers."""
        for name in names:
            self._last += 2
            self.ids[name] = self._last
            self.raw(self.writer.syn_stream(self._last, [(b"streamType", name.encode())]))

    def send(self, name: str, data: bytes, fin: bool = False) -> None:
        """Data on one of the streams."""
        self.raw(b"".join(spdy.data(self.ids[name], data, fin)))

    def raw(self, data: bytes) -> None:
        self.client.send(data)

    def frames(self) -> list[Frame]:
        """Frames from the server since the last call."""
        self.reader.feed(self.client.received())
        found = []
        while (frame := self.reader.next_frame()) is not None:
            found.append(frame)
        return found

    def said(self) -> list[Any]:
        """Frames in short form, without SYN_REPLY: ``("stdout", b"hi")``, ``"end stdout"``..."""
        names = {number: name for name, number in self.ids.items()}
        short: list[Any] = []
        for frame in self.frames():
            if isinstance(frame, Data):
                if frame.data:
                    short.append((names[frame.stream_id], frame.data))
                if frame.fin:
                    short.append(f"end {names[frame.stream_id]}")
            elif isinstance(frame, RstStream):
                short.append(f"reset {names[frame.stream_id]}")
            elif isinstance(frame, GoAway):
                short.append(f"go away {frame.status}")
            elif isinstance(frame, Ping):
                short.append(f"ping {frame.ping_id}")
            else:
                assert isinstance(frame, SynReply), frame
        return short

    def output(self) -> bytes:
        """Standard output since the last time; anything else is left aside."""
        said = [each for each in self.said() if isinstance(each, tuple)]
        return b"".join(data for name, data in said if name == "stdout")
