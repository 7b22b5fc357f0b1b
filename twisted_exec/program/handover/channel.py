"""
Channels between processes of a program: to a successor, and to the processes that it has replaced.

Each message is a JSON object on one line, over a UNIX socket pair.  File descriptors (SCM_RIGHTS)
travel with the first bytes of their message.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

HELLO, READY, FAILED, STOP = "hello", "ready", "failed", "stop"
"""Messages of the successor."""
STATE, GO = "state", "go"
"""Messages of the predecessor."""

_MAX_DESCRIPTORS = 253
"""``SCM_MAX_FD`` of Linux: see unix(7)."""
_READ_BYTES = 1 << 16

Message = dict[str, Any]


class HandoverChannel(LineOnlyReceiver):
    """
    One end of the channel, in a reactor.

    :param closed: called when the channel is closed, by whichever end.
    """

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20
    transport: Any

    def __init__(
        self, received: Callable[[Message], object], closed: Callable[[], object] = lambda: None
    ) -> None:
        self._received, self._closed = received, closed
        self.is_open = False

    @classmethod
    def over(cls, reactor: Any, end: socket.socket, *callbacks: Any) -> HandoverChannel:
        """Return a channel over a connected socket, which it closes at its end."""
        end.setblocking(False)
        channel = cls(*callbacks)
        reactor.adoptStreamConnection(end.fileno(), socket.AF_UNIX, _Once(channel))
        # The reactor has a duplicate (IReactorSocket.adoptStreamConnection).
        end.close()
        return channel

    def connectionMade(self) -> None:
        self.is_open = True

    def lineReceived(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            self._received(message)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_open = False
        self._closed()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message; the descriptors must stay open until it is sent."""
        for each in descriptors:
            self.transport.sendFileDescriptor(each)
        self.transport.write(encode(message, len(descriptors)))

    def close(self) -> None:
        """Close the channel; the other side learns of it unless another process has a copy."""
        self.transport.abortConnection()


class _Once(Factory):
    noisy = False

    def __init__(self, channel: HandoverChannel) -> None:
        self._channel = channel

    def buildProtocol(self, addr: IAddress | None) -> HandoverChannel:
        return self._channel


def encode(message: Message, descriptors: int = 0) -> bytes:
    """Return the line of a message, which has a byte for each descriptor at least."""
    # Twisted closes the connection for fewer bytes than descriptors (FileDescriptorOverrun).
    return json.dumps(message, separators=(",", ":")).encode().rjust(descriptors) + b"\n"


def receive(end: socket.socket) -> tuple[Message, list[int]]:
    """
    Wait for a message, without a reactor.

    :return: the message, and its descriptors, which are not inheritable.
    :raises EOFError: the other process has ended.
    :raises ValueError: it is no message, or its descriptors do not fit into this process.
    """
    data, descriptors = bytearray(), list[int]()
    try:
        while not data.endswith(b"\n"):
            part, some, flags, _ = socket.recv_fds(end, _READ_BYTES, _MAX_DESCRIPTORS)
            descriptors += some
            for each in some:
                os.set_inheritable(each, False)  # recv_fds() ignores MSG_CMSG_CLOEXEC
            if not part:
                raise EOFError("the other process has ended")
            if flags & socket.MSG_CTRUNC:
                raise ValueError(
                    "descriptors of the other process do not fit into this one; raise its limit of "
                    "open files (LimitNOFILE=)"
                )
            data += part
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("the message of the other process is no JSON object")
    except BaseException:
        for each in descriptors:
            os.close(each)
        raise
    return message, descriptors


class Lingering:
    """
    Channels to the earlier processes that still serve sessions, the oldest first.

    A process passes them on to its successor, so that the newest process can stop the others.
    """

    def __init__(self) -> None:
        self._channels: list[HandoverChannel] = []
        self._none_left: list[Deferred[None]] = []

    def attach(self, reactor: Any, ends: Iterable[socket.socket]) -> None:
        """Watch the channels that a predecessor passed on, and own them."""
        for end in ends:
            self.add(HandoverChannel.over(reactor, end, _ignore, self.look))

    def add(self, channel: HandoverChannel) -> None:
        """Take note of a process that lingers; call :meth:`look` when its channel has closed."""
        self._channels.append(channel)

    def look(self) -> None:
        """Forget the processes that have ended."""
        self._channels = [each for each in self._channels if each.is_open]
        if not self._channels:
            waiting, self._none_left = self._none_left, []
            for each in waiting:
                each.callback(None)

    def descriptors(self) -> Sequence[int]:
        """Return the descriptors of the channels, for a successor."""
        return [each.transport.fileno() for each in self._channels]

    def leave(self) -> None:
        """Leave the processes to a successor, which has copies of the channels."""
        channels, self._channels = self._channels, []
        for each in channels:
            # An orderly close would shut the channels of the successor down, too.
            each.close()

    def stop(self) -> Deferred[None]:
        """Stop the processes; fires when they have ended."""
        for each in self._channels:
            each.send({STOP: True})
        if not self._channels:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._none_left.append(waiting)
        return waiting


def _ignore(_: object) -> None:
    pass
