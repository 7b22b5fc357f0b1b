"""
The connections of the keeper, and its holdings.

The keeper imports this module without the rest of the project.
"""

from __future__ import annotations

import os
import socket
import sys

from .protocol import MAX_MESSAGE_BYTES, VERSION, BadMessage, Message

_INT_BYTES = 4


class Holding:
    """
    A terminal that the keeper holds, with its command.

    :param owner: the client that gets the report of the command's end. Without ``keep``, the
        holding ends with the owner's connection.
    :ivar body: input that the terminal has not accepted.
    """

    def __init__(self, descriptor: int, owner: Peer | None, keep: bool) -> None:
        self.descriptor = descriptor
        self.owner = owner
        self.keep = keep
        self.pid = self.start = 0
        self.status: int | None = None
        self.body = b""

    def close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1


class Peer:
    """
    One connection.

    :ivar is_busy: a request is under way, and no other is read.
    """

    def __init__(self, handle: socket.socket) -> None:
        self.handle = handle
        self.is_busy = False
        self.answer: tuple[bytes, Holding | None] | None = (
            Message("hello", [("version", VERSION)]).encode(),
            None,
        )
        self.ended: dict[bytes, int] = {}

    def send(self) -> None:
        try:
            if self.answer is not None:
                data, holding = self.answer
                ancillary = []
                if holding is not None and holding.descriptor < 0:
                    data = Message("error", [("why", "it was forgotten")]).encode()
                elif holding is not None:
                    number = holding.descriptor.to_bytes(_INT_BYTES, sys.byteorder)
                    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, number)]
                self.handle.sendmsg([data], ancillary)
                self.answer = None
            # A command may end before the request that started it is answered.
            while self.ended and not self.is_busy:
                name, status = next(iter(self.ended.items()))
                self.handle.send(Message("exited", [("name", name), ("status", status)]).encode())
                del self.ended[name]
        except BlockingIOError:
            pass

    @property
    def has_output(self) -> bool:
        return self.answer is not None or (bool(self.ended) and not self.is_busy)

    def receive(self) -> Message | None:
        """
        Read one request, without blocking; the kernel closes descriptors that come with it.

        :return: ``None`` if there is no request yet.
        :raises EOFError: the client has closed the connection.
        :raises BadMessage: the request is not valid.
        """
        try:
            data = self.handle.recv(MAX_MESSAGE_BYTES + 1)
        except (BlockingIOError, InterruptedError):
            return None
        if not data:
            raise EOFError
        if len(data) > MAX_MESSAGE_BYTES:
            raise BadMessage("the message is too long")
        return Message.decode(data)
