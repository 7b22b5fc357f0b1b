"""
An HTTP server without sockets: raw requests in, parsed responses out.

The server is the real :class:`~twisted_exec.streaming.http.site.Site` on a
:class:`~twisted.internet.testing.StringTransport`, so its limits and its
parsing take part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from twisted.web.resource import Resource

from twisted_exec.streaming.http.site import Site


@dataclass(frozen=True)
class Response:
    """One answer.  ``headers`` are by lower-case name, the last value of each."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's document."""
        return json.loads(self.body)


class _Transport(StringTransportWithDisconnection):
    """Closes like a socket: at once, and tells its protocol."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()


_TURNS = 1000
"""Turns of the reactor within which a request is answered: long work is done in short turns."""


class MemoryClient:
    """
    One connection to a :class:`MemoryServer`.

    :ivar transport: the server's side of it.
    """

    def __init__(self, site: Site) -> None:
        self.transport = _Transport(peerAddress=IPv4Address("TCP", "192.0.2.1", 54321))
        self.protocol = site.buildProtocol(self.transport.getPeer())
        self.transport.protocol = self.protocol
        self.protocol.makeConnection(self.transport)

    @property
    def aborted(self) -> bool:
        """The server has reset the connection."""
        return self.transport.aborted

    @property
    def closed(self) -> bool:
        """The server has closed the connection."""
        return not self.transport.connected

    def send(self, data: bytes) -> None:
        """Deliver bytes to the current protocol of the connection."""
        self.transport.protocol.dataReceived(data)

    def received(self) -> bytes:
        """Return the server's bytes since the last call."""
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def responses(self, method: str = "GET") -> list[Response]:
        """Return the server's responses since the last call."""
        rest, answers = BytesIO(self.received()), []
        while rest.tell() < len(rest.getbuffer()):
            answer = HTTPResponse(_Socket(rest), method=method)  # type: ignore[arg-type]
            answer.begin()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            answers.append(Response(answer.status, headers, answer.read()))
        return answers

    def lose(self) -> None:
        """The client goes away; does nothing if the server has closed the connection."""
        if self.transport.connected:
            self.transport.connected = False
            self.transport.protocol.connectionLost(Failure(ConnectionDone()))


class _Socket:
    """The part of a socket that :class:`HTTPResponse` uses."""

    def __init__(self, data: BytesIO) -> None:
        self._data = data

    def makefile(self, mode: str) -> _Unclosed:
        return _Unclosed(self._data)


class _Unclosed:
    """Keeps the rest readable when one response is read to its end."""

    def __init__(self, data: BytesIO) -> None:
        self.read, self.readline, self.readinto = data.read, data.readline, data.readinto

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The next response is still to be read."""


class MemoryServer:
    """
    A resource, served in memory.

    :param limits: as :class:`~twisted_exec.streaming.http.site.Site` takes them.
    :ivar clock: advance it to reach deadlines.
    """

    def __init__(self, resource: Resource, clock: Clock | None = None, **limits: Any) -> None:
        self.clock = clock or Clock()
        self.site = Site(resource, self.clock, **limits)

    def connect(self) -> MemoryClient:
        """A new connection, in a turn of the reactor of its own."""
        self.clock.advance(0)
        return MemoryClient(self.site)

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """
        One request on a connection of its own.

        :raises AssertionError: it was not answered within some turns of the reactor.
        """
        lines = [f"{method} {path} HTTP/1.1", "Host: server"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        client = self.connect()
        client.send("\r\n".join([*lines, "", ""]).encode() + body)
        for _ in range(_TURNS):
            if answers := client.responses(method):
                break
            self.clock.advance(0)
        assert len(answers) == 1, f"{method} {path} was answered {len(answers)} times"
        client.lose()
        return answers[0]
