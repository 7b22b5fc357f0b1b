"""
Consoles over the WebSocket of a BMC.

The handshake is ours, and autobahn has the frames (:mod:`twisted_exec.streaming.http.websocket`). A BMC gets the
session's token only behind the verified handshake of TLS, and redirects are not followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Typing

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, BadGateway, NotFound, ServiceUnavailable, Unauthorized
from twisted_exec.runtimes.lines.layer import LineLayer
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.streaming.http.websocket import NORMAL, ClientSocket, client_factory, start
from twisted_exec.wire.upgrade import accept_key, is_answer, last_value, new_key

MESSAGE_BYTES = 1 << 20
"""Largest message that is accepted; bmcweb sends at most 4 KiB."""

INPUT_BYTES = 4096
"""Largest message that is sent: bmcweb keeps what its console does not take yet."""

ANSWER_SECONDS = 15.0
CLOSE_SECONDS = 2.0
MISSED_PINGS = 2

_MAX_REASON = 123


@dataclass(frozen=True)
class SocketHeaders:
    """
    The credentials of a session for a WebSocket.

    :param headers: of the request, such as ``X-Auth-Token``.
    """

    headers: Sequence[tuple[bytes, bytes]] = field(repr=False)

    @classmethod
    def of_token(cls, token: str) -> SocketHeaders:
        """Return those of a session of Redfish."""
        return cls([(b"X-Auth-Token", token.encode("latin-1"))])


class SocketSession(Typing):
    """The session with a BMC, from which each connection gets its credentials."""

    async def socket_headers(self) -> SocketHeaders:
        """
        Return the credentials of the session, logging in if there is none.

        :raises APIError: the BMC refuses, or does not answer.
        """

    async def session_refused(self, headers: SocketHeaders) -> None:
        """
        End a session that the console does not accept, unless there is another one already.

        :param headers: the credentials of that session.
        """


@implementer(IStreamClientEndpoint)
class WebSocketEndpoint:
    """
    Connects to the console of a BMC. Protocols get a :class:`WebSocketLine` as their transport.

    ``connect`` fails with :class:`~twisted_exec.interfaces.APIError`. If the BMC refuses the session, there is one new
    login.

    :param endpoint: with TLS, which verifies the BMC.
    :param host: for the header, with the port if it is not 443.
    :param targets: paths with query; the next one if the BMC knows no such path.
    :param keep_alive_seconds: interval of pings; a BMC that misses two is lost.
    """

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        host: str,
        targets: Sequence[str],
        session: SocketSession,
        clock: IReactorTime,
        *,
        keep_alive_seconds: float = 60.0,
    ) -> None:
        assert targets
        self._endpoint, self._host, self._targets = endpoint, host, targets
        self._session, self._clock = session, clock
        self._keep_alive_seconds = keep_alive_seconds

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        credentials = await self._session.socket_headers()
        try:
            upgraded = await self._upgrade(credentials)
        except Unauthorized:
            await self._session.session_refused(credentials)
            upgraded = await self._upgrade(await self._session.socket_headers())
        socket = _Socket()
        line = WebSocketLine(
            factory.buildProtocol(None),  # type: ignore[arg-type]
            socket,
            self._clock,
            self._keep_alive_seconds,
        )
        protocol = start(
            socket, client_factory(self._clock, MESSAGE_BYTES), line, self._clock, CLOSE_SECONDS
        )
        upgraded.hand_over(protocol)
        return await line.when_begun()

    async def _upgrade(self, credentials: SocketHeaders) -> Upgraded:
        for target in self._targets[:-1]:
            try:
                return await self._upgrade_at(target, credentials)
            except NotFound:
                pass
        return await self._upgrade_at(self._targets[-1], credentials)

    async def _upgrade_at(self, target: str, credentials: SocketHeaders) -> Upgraded:
        key = new_key()
        headers = [
            (b"Connection", b"Upgrade"),
            (b"Upgrade", b"websocket"),
            (b"Sec-WebSocket-Version", b"13"),
            (b"Sec-WebSocket-Key", key),
            *credentials.headers,
        ]
        request = UpgradeRequest(
            b"GET", target.encode("ascii"), self._host.encode("ascii"), headers
        )
        try:
            upgraded = await upgrade(
                self._endpoint, request, clock=self._clock, timeout_seconds=ANSWER_SECONDS
            )
        except UpgradeRefused as refused:
            raise _refusal(refused.code) from None
        is_accepted = last_value(upgraded.headers, b"sec-websocket-accept") == accept_key(key)
        if not is_accepted or not is_answer(upgraded.headers, headers):
            upgraded.abort()
            raise BadGateway("the BMC's answer is not that of a WebSocket")
        return upgraded


def _refusal(code: int) -> APIError:
    """Return the error for a status code; the BMC's words may quote the token, and are not repeated."""
    if code in (401, 403):
        return Unauthorized(
            f"the BMC refuses its user the console (status code {code}): give the user that right there, with "
            "OpenBMC by the group hostconsole"
        )
    if code == 404:
        return NotFound("console", "", message="the BMC has no WebSocket there")
    if 300 <= code < 400:
        return BadGateway(
            f"the BMC redirects its console (status code {code}), which is not followed"
        )
    return BadGateway(f"the BMC refuses its console with status code {code}")


class _Socket(ClientSocket):
    """Keeps the reason of the BMC's Close, such as that it has too many consoles."""

    close_reason = ""

    def onCloseFrame(self, code: int | None, reason: bytes | None) -> Any:
        text = (reason or b"")[:_MAX_REASON].decode("utf-8", "replace")
        self.close_reason = "".join(char for char in text if char.isprintable())
        return super().onCloseFrame(code, reason)


class WebSocketLine(LineLayer):
    """One connection, between autobahn's socket and the console."""

    def __init__(
        self, upper: Any, socket: _Socket, clock: IReactorTime, keep_alive_seconds: float
    ) -> None:
        super().__init__(upper)
        self._socket, self._clock = socket, clock
        self._seconds = keep_alive_seconds
        self._unanswered = 0
        self._ticking: IDelayedCall | None = None
        self._is_closing = False

    # SocketUser.

    def opened(self) -> None:
        self.makeConnection(_Wire(self._socket))
        self._tick()

    def message_received(self, message: bytes) -> None:
        self._unanswered = 0
        if message:
            self.deliver(message)

    def pong_received(self) -> None:
        self._unanswered = 0

    def failing(self, reason: str) -> None:
        if self.error is None:
            self.error = ServiceUnavailable(f"the BMC broke the protocol of WebSockets: {reason}")

    def close_received(self, code: int | None, reason: str) -> None:
        reason = self._socket.close_reason
        if self.error is None and (reason or code != NORMAL):
            why = reason or f"with code {code}"
            self.error = ServiceUnavailable(f"the BMC closed its console: {why}")

    def lost(self, reason: str) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        why = ServiceUnavailable(f"the BMC's WebSocket ended: {reason}")
        self.connectionLost(connectionDone if self._is_closing else Failure(why))

    # Keep-alive.

    def _tick(self) -> None:
        self._ticking = self._clock.callLater(self._seconds, self._ping)

    def _ping(self) -> None:
        self._ticking = None
        if self._unanswered >= MISSED_PINGS:
            seconds = self._unanswered * self._seconds
            self.fail(ServiceUnavailable(f"the BMC has not answered for {seconds:g} s"))
            return
        if not self.is_paused:  # else nobody reads the answer
            self._unanswered += 1
        self._socket.ping()
        self._tick()

    # ISharedLineTransport of the console.

    def loseConnection(self) -> None:
        self._is_closing = True
        super().loseConnection()


class _Wire:
    """autobahn's socket as the transport of a layer."""

    def __init__(self, socket: _Socket) -> None:
        self._socket = socket
        self._producer: Any = None

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), INPUT_BYTES):
            self._socket.send(data[at : at + INPUT_BYTES])

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer
        self._socket.on_flow(self._flow)
        if self._socket.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def _flow(self, is_full: bool) -> None:
        if self._producer is None:
            return
        if is_full:
            self._producer.pauseProducing()
        else:
            self._producer.resumeProducing()

    def pauseProducing(self) -> None:
        self._socket.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._socket.transport.resumeProducing()

    def loseConnection(self) -> None:
        self._socket.close()
        self._socket.hang_up()

    def abortConnection(self) -> None:
        self._socket.abort()
