"""
SPDY tunnelled in WebSocket messages, for a next hop that knows only SPDY.

From 1.31 on kubectl forwards ports over a WebSocket whose binary messages contain the bytes of a
SPDY connection (subprotocol ``SPDY/3.1+portforward.k8s.io``).  For older kubelets and API servers
this hop requests SPDY, and unwraps the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import Upgraded
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.http.websocket import (
    NORMAL,
    ServerSocket,
    server_factory,
    start,
)
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.carriers import (
    DEFAULT_LIMITS,
    STREAM_PROTOCOL,
    Attempt,
    OtherProtocol,
)
from twisted_exec.streaming.remotecommand.translate import cancel
from twisted_exec.streaming.transports import close_behind
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import SPDY, WEBSOCKET, check_websocket, tokens, values

PREFIX = "SPDY/3.1+"
"""Prefix of a tunnel's subprotocol; the rest is a protocol over SPDY."""

GOING_AWAY, BROKEN = 1001, 1011

LEAVE_SECONDS = 1.0

_MESSAGE_BYTES = 32 << 10


def tunnelled(request: Request) -> list[str]:
    """Return the SPDY protocols that a request offers inside a tunnel; empty without a tunnel."""
    headers = header_pairs(request.requestHeaders)
    if requested_protocol(request) != WEBSOCKET:
        return []
    offered = [
        each.decode("ascii", "replace")
        for each in tokens(values(headers, b"sec-websocket-protocol"))
    ]
    tunnels = [each for each in offered if each.startswith(PREFIX) and each.endswith(".k8s.io")]
    return [each.removeprefix(PREFIX) for each in tunnels]


async def untunnel(
    request: Request,
    ask: Callable[[Attempt], Awaitable[Upgraded]],
    tunnel: Tunnel,
    confirm: Callable[[], Awaitable[None]],
) -> str:
    """
    Connect a client's tunnel to a next hop that refused it, by plain SPDY.

    :param ask: sends an offer to that hop on a new connection.
    :return: the subprotocol sent to the client.
    :raises UpgradeRefused: the next hop refuses that too.
    :raises OtherProtocol: the next hop chose a protocol that was not offered.
    :raises APIError: the handshake is incomplete, or the session cannot or must not be opened.
    :raises ConnectionDone: the client has left.
    """
    try:
        check_websocket(request.method, header_pairs(request.requestHeaders))
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    attempt = _over_spdy(tunnelled(request))
    # The next hop answers first, so its refusal is an HTTP error.
    upgraded = await ask(attempt)
    protocol = PREFIX + attempt.chosen(upgraded)
    try:
        await confirm()
        tunnel.take(request, protocol)
    except BaseException:
        upgraded.abort()
        raise
    upgraded.hand_over(tunnel.machine)
    return protocol


def _over_spdy(protocols: list[str]) -> Attempt:
    def check(upgraded: Upgraded) -> str:
        versions = tokens(values(upgraded.headers, STREAM_PROTOCOL))
        chosen = versions[0].decode("ascii", "replace") if len(versions) == 1 else ""
        if chosen not in protocols:
            raise OtherProtocol("the server speaks a protocol over SPDY that was not offered")
        return chosen

    offers = [(STREAM_PROTOCOL, version.encode("ascii")) for version in protocols]
    upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", SPDY), (b"Content-Length", b"0")]
    return Attempt(b"POST", [*upgrade, *offers], check)


class Tunnel:
    """
    Two connections: SPDY in WebSocket messages at the frontend, plain SPDY at the backend.

    :param on_end: called once, when both connections are closed, with the reason for audit; never
        if the client was not answered.
    :ivar bytes_to_machine: bytes of the inner connection.
    :ivar bytes_to_user: bytes of the inner connection.
    """

    def __init__(self, clock: IReactorTime, on_end: Callable[[str], None], *, session: str) -> None:
        self._clock, self._on_end, self._session = clock, on_end, session
        self.bytes_to_machine = self.bytes_to_user = 0
        self.machine = _MachineEnd(self)
        self._socket: _Socket
        self._is_answered = False
        self._early: list[
            bytes
        ] = []  # before the backend is connected, or while the user is paused
        self._reason = ""
        self._user_gone = False
        self._user_paused = False  # by the hop
        self._machine_full = False
        self._is_over = False
        self._closing: IDelayedCall | None = None  # time limit of the user's connection
        self._leaving: IDelayedCall | None = None  # time limit of the backend's

    def take(self, request: Request, protocol: str) -> None:
        """
        Answer the client.

        :raises ConnectionDone: the client has left.
        """
        (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
        limits = DEFAULT_LIMITS
        self._socket = _Socket(key.decode("ascii"), protocol, {"Audit-Id": self._session})
        self._socket.on_flow(self.machine.pace)
        factory = server_factory(self._clock, limits.message_bytes)
        take_over(request, start(self._socket, factory, self, self._clock, limits.close_seconds))
        self._is_answered = True
        self._pace_user()

    # Called by the hop

    def end(self, ending: Ending) -> None:
        self._over(ending.reason, GOING_AWAY)

    def pause_user(self) -> None:
        self._user_paused = True
        self._pace_user()

    def resume_user(self) -> None:
        self._user_paused = False
        if self.machine.transport is not None:
            self._pass_early()
        self._pace_user()

    def cut(self) -> None:
        self._is_over = True
        self._reason = self._reason or "cut"
        for end in (self._socket, self.machine):
            if end.transport is not None:
                end.transport.abortConnection()

    # Called by the backend's end

    def connected(self) -> None:
        if not self._user_paused:
            self._pass_early()
        if self._user_gone:
            self._leave()
        else:
            self.machine.pace(self._socket.blocked)

    def _pass_early(self) -> None:
        early, self._early = b"".join(self._early), []
        if early:
            self.machine.transport.write(early)

    def from_machine(self, data: bytes) -> None:
        self.bytes_to_user += len(data)
        for at in range(0, len(data), _MESSAGE_BYTES):
            self._socket.send(data[at : at + _MESSAGE_BYTES])

    def machine_gone(self, clean: bool) -> None:
        self._over(f"backend {'closed' if clean else 'lost'}", NORMAL if clean else BROKEN)
        cancel(self._leaving)
        self._finish()

    # SocketUser

    def opened(self) -> None:
        """Nothing to do: the backend's end exists already."""

    def message_received(self, message: bytes) -> None:
        if self._is_over:
            return  # a closing TCP transport would still queue it
        self.bytes_to_machine += len(message)
        if self.machine.transport is None or self._user_paused:
            self._early.append(message)
        # kubectl sends an empty message for each empty write: it is no end.
        elif message:
            self.machine.transport.write(message)

    def pong_received(self) -> None:
        """Ignored: this end sends no pings."""

    def failing(self, reason: str) -> None:
        self._reason = self._reason or f"protocol error: {reason}"

    def close_received(self, code: int | None, reason: str) -> None:
        self._reason = self._reason or "client closed"
        self._leave()

    def lost(self, reason: str) -> None:
        self._user_gone = True
        self._reason = self._reason or reason.replace("connection", "client", 1)
        cancel(self._closing)
        self._leave()
        self._finish()

    # End

    def _over(self, reason: str, code: int) -> None:
        self._reason = self._reason or reason
        self._is_over = True
        self._early.clear()
        if not self._user_gone:
            self._socket.close(code)
            self._socket.transport.resumeProducing()  # to notice when it leaves
            if self._closing is None:
                patience = DEFAULT_LIMITS.close_seconds
                self._closing = self._clock.callLater(patience, self._socket.hang_up)
        self._leave()

    def _leave(self) -> None:
        if self.machine.transport is not None and self._leaving is None and not self.machine.gone:
            self._leaving = self._clock.callLater(LEAVE_SECONDS, self.machine.abort)
            self.machine.close()

    def _finish(self) -> None:
        if self._user_gone and self.machine.gone:
            self._on_end(self._reason)
            # Break reference cycles: OpenSSL's memory does not count towards the garbage
            # collector's thresholds, and would pile up.
            del self._on_end, self._socket, self.machine

    def machine_flow(self, full: bool) -> None:
        """The backend's buffer is full, or has room again."""
        self._machine_full = full
        self._pace_user()

    def _pace_user(self) -> None:
        if self._user_gone or not self._is_answered:
            return
        if self._machine_full or (self._user_paused and not self._is_over):
            self._socket.transport.pauseProducing()
        else:
            self._socket.transport.resumeProducing()


class _Socket(ServerSocket):
    def onMessageBegin(self, isBinary: bool) -> None:
        super().onMessageBegin(isBinary)
        if not isBinary:
            self.fail("a text message in a tunnel")


@implementer(IPushProducer)
class _MachineEnd(Protocol):
    transport: Any = None
    gone = False
    _closed = False

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)
        self._tunnel.connected()

    def dataReceived(self, data: bytes) -> None:
        if not self._closed:
            self._tunnel.from_machine(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        tunnel, self.gone = self._tunnel, True
        del self._tunnel
        tunnel.machine_gone(reason.check(ConnectionDone) is not None)

    def pace(self, full: bool) -> None:
        if self.transport is None or self.gone or self._closed:
            return
        if full:
            self.transport.pauseProducing()
        else:
            self.transport.resumeProducing()

    def close(self) -> None:
        self._closed = True
        self.transport.unregisterProducer()
        self.transport.resumeProducing()  # or its end would stay unnoticed
        close_behind(self.transport)

    def abort(self) -> None:
        self.transport.abortConnection()

    # IPushProducer

    def pauseProducing(self) -> None:
        self._tunnel.machine_flow(True)

    def resumeProducing(self) -> None:
        self._tunnel.machine_flow(False)

    def stopProducing(self) -> None:
        """``connectionLost`` follows."""
