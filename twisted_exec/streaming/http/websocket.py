"""
autobahn's WebSocket, adapted to both ends of a console.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any
from typing import Protocol as Typing

from autobahn.twisted.websocket import (
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from autobahn.util import encode_truncate
from twisted.internet.interfaces import IProtocol, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.paced_connection import PacedConnection
from twisted_exec.tls.turns import IFramed
from twisted_exec.wire.upgrade import accept_key, new_key

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
BAD_GATEWAY = 1014
POLICY_VIOLATION = 1008

MAX_FRAGMENTS = 4096
"""Limit for the fragments of one message, besides one for each :data:`_FRAGMENT_BYTES`."""

_FRAGMENT_BYTES = 16

_TEXT, _BINARY = 1, 2
_NO_MASK = bytes(4)

_REASON_BYTES = 123
"""Limit of a Close's reason: RFC 6455, section 5.5, without the code."""

_NO_TRANSPORT = object()
"""What autobahn describes in place of a connection."""

_log = Logger()


class SocketUser(Typing):
    """Callbacks of a :class:`MessageSocket`."""

    def opened(self) -> None:
        """Messages may be sent."""

    def message_received(self, message: bytes) -> None:
        """One whole message, binary or text."""

    def pong_received(self) -> None:
        """The peer answered a ping."""

    def failing(self, reason: str) -> None:
        """The peer broke the protocol; a message may still precede the Close."""

    def close_received(self, code: int | None, reason: str) -> None:
        """The peer sent a Close, or answered ours; the reason is what it says of it, for people."""

    def lost(self, reason: str) -> None:
        """The connection is lost; called once, as the last call."""


@implementer(IFramed)
class MessageSocket(PacedConnection):
    """Common part of both ends; mixed in before autobahn's protocols."""

    state: Any
    data: bytes
    failedByMe: bool
    STATE_OPEN: Any
    STATE_CLOSED: Any
    user: SocketUser

    @staticmethod
    def _head(opcode: int, length: int) -> bytes:
        """Return the head of an outgoing frame."""
        raise NotImplementedError

    # For the user.

    def send(self, message: bytes, text: bool = False) -> None:
        """Send one message, unfragmented; dropped when the socket is closing."""
        if self.state == self.STATE_OPEN:
            # autobahn's sendMessage applies the limit of received messages, and raises.
            self.sendFrame(_TEXT if text else _BINARY, message)

    def ping(self) -> None:
        """Send a ping, unless output is blocked."""
        if not self.blocked:
            self.sendPing()  # type: ignore[attr-defined]

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        """
        Send a Close.

        :param reason: for people; at most 123 bytes of it are sent.
        """
        self.sendCloseFrame(code, encode_truncate(reason, _REASON_BYTES) if reason else None)

    def fail(self, reason: str, code: int = PROTOCOL_ERROR) -> None:
        """Fail the connection: the peer broke the protocol inside the messages."""
        if self.can_send:
            # As autobahn does for what it finds itself.
            _log.warn("failing WebSocket connection ({code}): {reason}", code=code, reason=reason)
            self.failedByMe = True
            self.sendCloseFrame(code, encode_truncate(reason, _REASON_BYTES))
        self.hang_up()

    @property
    def can_send(self) -> bool:
        """Return whether messages can be sent."""
        return bool(self.state == self.STATE_OPEN)

    # Methods that Twisted and autobahn call.

    def dataReceived(self, data: bytes) -> None:
        # autobahn would buffer bytes after the end, and format a debug message first.
        if self.state != self.STATE_CLOSED:
            self.data += data
            self.consumeData()  # type: ignore[attr-defined]

    def frame_rest(self, size: int) -> int:
        # Slices are short, also because autobahn copies all that it has got for each frame.
        frame: Any = self.current_frame  # type: ignore[attr-defined]
        return frame.length - self.current_frame_masker.pointer() if frame is not None else 0  # type: ignore[attr-defined]

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        # Skip autobahn's coloured debug message per frame: a quarter of the cost of an echo.
        self.transport.write(data)

    def sendFrame(self, opcode: int, payload: bytes = b"", **more: Any) -> None:
        self.transport.write(self._head(opcode, len(payload)) + payload)

    def onFrameData(self, payload: bytes) -> bool | None:
        frame: Any = self.current_frame  # type: ignore[attr-defined]
        if frame.mask is not None and frame.mask != _NO_MASK:
            begin = self.current_frame_masker.pointer() - len(payload)  # type: ignore[attr-defined]
            payload = unmasked(payload, frame.mask, begin)
        answer: bool | None = super().onFrameData(payload)  # type: ignore[misc]
        return answer

    def onOpen(self) -> None:
        self.transport.registerProducer(self, True)
        self.user.opened()

    def connectionMade(self) -> None:
        # autobahn describes its transport: it knows one kind of TLS only, and parses the peer's
        # certificate for each session.
        transport, self.transport = self.transport, _NO_TRANSPORT
        super().connectionMade()  # type: ignore[misc]
        self.transport, self.peer = transport, str(transport.getPeer())

    def onMessageBegin(self, isBinary: bool) -> None:
        super().onMessageBegin(isBinary)  # type: ignore[misc]
        self.message_data: Any = bytearray()
        self.fragments = 0

    def onMessageFrame(self, payload: list[bytes]) -> None:
        # Not into a list: autobahn counts fragments by bytes, and empty ones have none.
        if not self.failedByMe:
            self.message_data += b"".join(payload)
            self.fragments += 1
            if self.fragments > MAX_FRAGMENTS + len(self.message_data) // _FRAGMENT_BYTES:
                self.fail("a message in too many small fragments", POLICY_VIOLATION)

    def onMessageEnd(self) -> None:
        # Skip autobahn's Future per message.
        message = bytes(self.message_data)
        self.message_data = None
        if not self.failedByMe:
            self.user.message_received(message)

    def onPing(self, payload: bytes) -> None:
        self.ping_received(payload)

    def answer(self, question: bytes) -> None:
        self.sendPong(question)  # type: ignore[attr-defined]

    def onPong(self, payload: bytes) -> None:
        self.user.pong_received()

    def onCloseFrame(self, code: int | None, reason: bytes | None) -> Any:
        self.user.close_received(code, (reason or b"").decode("utf-8", "replace"))
        # Proxies send 1014, which autobahn does not know.
        valid = NORMAL if code == BAD_GATEWAY else code
        return super().onCloseFrame(valid, reason)  # type: ignore[misc]

    def sendCloseFrame(
        self, code: int | None = None, reasonUtf8: bytes | None = None, isReply: bool = False
    ) -> None:
        fails = self.failedByMe and self.can_send
        if fails:
            self.user.failing((reasonUtf8 or b"").decode("utf-8", "replace"))
        super().sendCloseFrame(code, reasonUtf8, isReply)  # type: ignore[misc]
        if fails:  # without waiting for the peer's Close (RFC 6455, 7.1.7)
            self.hang_up()

    def dropConnection(self, abort: bool = False) -> None:
        # autobahn would reset the connection once the peer has answered our Close.
        if self.state != self.STATE_CLOSED:
            self.state = self.STATE_CLOSED
            self.hang_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        cause = self.connection_lost(reason)
        self.wasClean = True  # else autobahn composes a reason of its own
        # Otherwise autobahn's is_closed would refer to the socket, and the socket refers to it.
        self.state = self.STATE_CLOSED
        super().connectionLost(connectionDone)  # type: ignore[misc]  # autobahn logs other reasons
        self.user.lost(cause)
        del self.user  # which refers to this socket


class ServerSocket(MessageSocket, WebSocketServerProtocol):  # type: ignore[misc]
    """The server's end, on an upgraded connection."""

    def __init__(self, key: str, subprotocol: str, headers: dict[str, str]) -> None:
        super().__init__()
        self._key, self._subprotocol, self._headers = key, subprotocol, headers

    def makeConnection(self, transport: Any) -> None:
        super().makeConnection(transport)
        offer = f"Sec-WebSocket-Protocol: {self._subprotocol}\r\n" if self._subprotocol else ""
        head = (
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {self._key}\r\n{offer}\r\n"
        )
        self.dataReceived(head.encode("ascii"))
        # Sent by now, and one of the headers may be a secret.
        self._headers, self.http_response_data = {}, ""

    @staticmethod
    def _head(opcode: int, length: int) -> bytes:
        if length < 126:
            return bytes((0x80 | opcode, length))
        if length <= 0xFFFF:
            return struct.pack("!BBH", 0x80 | opcode, 126, length)
        return struct.pack("!BBQ", 0x80 | opcode, 127, length)

    def onConnect(self, request: object) -> tuple[str | None, dict[str, str]]:
        return self._subprotocol or None, self._headers


class ClientSocket(MessageSocket, WebSocketClientProtocol):  # type: ignore[misc]
    """The client's end, over a connection after its 101."""

    def makeConnection(self, transport: Any) -> None:
        super().makeConnection(transport)
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            # No subprotocol: autobahn did not offer one, and would refuse it.
            f"Sec-WebSocket-Accept: {accept_key(self.websocket_key).decode()}\r\n\r\n"
        )
        self.dataReceived(head.encode("ascii"))

    def startHandshake(self) -> None:
        self.websocket_key = new_key()  # the request has been sent already

    @staticmethod
    def _head(opcode: int, length: int) -> bytes:
        # Masked, as RFC 6455 demands of a client, but with the key 0, which changes nothing: masks
        # keep scripts in browsers from talking HTTP to proxies, and we are no browser.
        if length < 126:
            return struct.pack("!BB4x", 0x80 | opcode, 0x80 | length)
        if length <= 0xFFFF:
            return struct.pack("!BBH4x", 0x80 | opcode, 0xFE, length)
        return struct.pack("!BBQ4x", 0x80 | opcode, 0xFF, length)

    def onCloseFrame(self, code: int | None, reason: bytes | None) -> Any:
        handled = super().onCloseFrame(code, reason)
        # autobahn's client waits for the server to close; ours does so itself.
        self.hang_up()
        return handled


def unmasked(data: bytes, mask: bytes, begin: int) -> bytes:
    """
    Return a part of a masked frame's payload without its mask (RFC 6455, section 5.3).

    :param mask: four bytes.
    :param begin: where the part begins in the payload.
    """
    size, at = len(data), begin % 4
    key = ((mask[at:] + mask[:at]) * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


@lru_cache(maxsize=8)
def server_factory(clock: IReactorTime, message_bytes: int) -> WebSocketServerFactory:
    """Return the options of server ends; calls with equal arguments share a factory."""
    factory = WebSocketServerFactory(reactor=clock, server=None)
    factory.setProtocolOptions(openHandshakeTimeout=0, **_options(message_bytes))
    return factory


@lru_cache(maxsize=8)
def client_factory(clock: IReactorTime, message_bytes: int) -> WebSocketClientFactory:
    """Return the options of client ends."""
    factory = WebSocketClientFactory(reactor=clock)
    factory.setProtocolOptions(
        openHandshakeTimeout=0, serverConnectionDropTimeout=0, **_options(message_bytes)
    )
    return factory


def _options(message_bytes: int) -> dict[str, Any]:
    return {
        # True would drop the connection instead of sending Close 1009.
        "failByDrop": False,
        # Both are unlimited by default.
        "maxMessagePayloadSize": message_bytes,
        "maxFramePayloadSize": message_bytes,
        # autobahn's own timer starts before a slow reader has the output, and ends in a reset.
        "closeHandshakeTimeout": 0,
        "utf8validateIncoming": False,
        # onFrameData unmasks: autobahn would make a compiled object for each frame.
        "applyMask": False,
    }


def start(
    socket: MessageSocket,
    factory: Any,
    user: SocketUser,
    clock: IReactorTime,
    linger_seconds: float,
) -> IProtocol:
    """Prepare a socket for its connection."""
    socket.user, socket.clock, socket.linger_seconds = user, clock, linger_seconds
    socket.factory = factory  # type: ignore[attr-defined]
    return socket  # type: ignore[return-value]
