"""
A connection from the runtime to the keeper.

A message goes out when the ones before it were accepted by the socket, and answers arrive in the order
of the requests.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from .protocol import MAX_MESSAGE_BYTES, VERSION, BadMessage, Message


@dataclass
class Request:
    """A message, with a descriptor that stays the caller's until it was sent."""

    data: bytes
    descriptor: int | None = None
    answered: Deferred[tuple[Message, int | None]] = field(default_factory=Deferred)


@implementer(IReadWriteDescriptor)
class Connection:
    """
    One connection to the keeper.

    :param handle: connected and non-blocking.
    :param exited: called with the name and status of each command that ended.
    :param lost: called after the keeper has closed the connection, with the requests that were not
        answered, and whether it had greeted.
    """

    def __init__(
        self,
        handle: socket.socket,
        exited: Callable[[str, int], None],
        lost: Callable[[Sequence[Request], bool], None],
        reactor: Any,
    ) -> None:
        self._handle = handle
        self._exited, self._lost = exited, lost
        self._reactor = reactor
        self._is_greeted = False
        self._unsent: deque[Request] = deque()
        self._unanswered: deque[Request] = deque()
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._handle.fileno()

    def logPrefix(self) -> str:
        return "keeper"

    def send(self, request: Request) -> None:
        """Send a request as soon as the keeper has greeted."""
        self._unsent.append(request)
        if self._is_greeted and len(self._unsent) == 1:
            self._reactor.addWriter(self)

    def doWrite(self) -> Any:
        while self._unsent:
            request = self._unsent[0]
            descriptors = [] if request.descriptor is None else [request.descriptor]
            try:
                socket.send_fds(self._handle, [request.data], descriptors)
            except BlockingIOError:
                return None
            except OSError:
                return ConnectionLost()
            self._unanswered.append(self._unsent.popleft())
        self._reactor.removeWriter(self)
        return None

    def doRead(self) -> Any:
        while self._handle.fileno() >= 0:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._handle, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            except OSError:
                return ConnectionLost()
            descriptor = descriptors[0] if descriptors else None
            try:
                if not data:
                    return ConnectionLost()
                self._received(Message.decode(data), descriptor)
            except BadMessage:
                return ConnectionLost()
        return None

    def _received(self, message: Message, descriptor: int | None) -> None:
        if message.kind == "hello":
            if message.number("version") < VERSION:
                raise BadMessage("it is too old")
            self._is_greeted = True
            if self._unsent:
                self._reactor.addWriter(self)
        elif message.kind == "exited":
            self._exited(os.fsdecode(message.text("name")), message.number("status"))
        elif self._unanswered:
            answered = self._unanswered.popleft().answered
            if not answered.called:
                answered.callback((message, descriptor))
            elif descriptor is not None:  # the request has timed out
                os.close(descriptor)

    def connectionLost(self, reason: Failure) -> None:
        requests = [*self._unanswered, *self._unsent]
        was_greeted = self._is_greeted
        self.close()
        self._lost(requests, was_greeted)

    def close(self) -> None:
        """Close the connection and report nothing."""
        if self._handle.fileno() >= 0:
            self._reactor.removeReader(self)
            self._reactor.removeWriter(self)
            self._handle.close()
