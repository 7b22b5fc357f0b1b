"""
The two ends of a console, which record their events.
"""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from twisted_exec.streaming.interfaces import (
    Break,
    Ending,
    IAttachmentTransport,
    IOperable,
    Role,
    TerminalSize,
)


@implementer(IOperable)
class RecordingAttachment:
    """
    An attachment that does nothing by itself.

    :ivar transport: what it is attached to.
    :ivar received: all input, in one.
    :ivar sizes: the terminal sizes, in order.
    :ivar wishes: what else the user asked for, in order.
    :ivar input_ends: how often the input ended.
    :ivar detached_with: reasons of detachment; a correct stream detaches at most once.
    :ivar greeting: written as soon as it is attached.
    """

    transport: IAttachmentTransport

    def __init__(self, greeting: bytes = b"") -> None:
        self.greeting = greeting
        self.attachments = 0
        self.received = b""
        self.sizes: list[TerminalSize] = []
        self.wishes: list[Break | Role] = []
        self.input_ends = 0
        self.detached_with: list[str] = []

    def attached(self, transport: IAttachmentTransport) -> None:
        self.attachments += 1
        self.transport = transport
        if self.greeting:
            transport.write(self.greeting)

    def data_received(self, data: bytes) -> None:
        assert data, "an attachment gets 1 byte or more"
        self.received += data

    def window_changed(self, size: TerminalSize) -> None:
        self.sizes.append(size)

    def wished(self, wish: Break | Role) -> None:
        self.wishes.append(wish)

    def input_ended(self) -> None:
        self.input_ends += 1

    def detached(self, reason: str) -> None:
        self.detached_with.append(reason)


class EchoAttachment(RecordingAttachment):
    """Sends back what it gets, and ends well when the input ends."""

    ending = Ending("Completed")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)

    def input_ended(self) -> None:
        super().input_ended()
        self.transport.end(self.ending)


class RecordingUser:
    """
    The user's end; gets what a
    :class:`~twisted_exec.streaming.remotecommand.client.ConsoleClient` tells.
    """

    stream: Any = None

    def __init__(self) -> None:
        self.received = b""
        self.endings: list[Ending] = []
        self.detached_with: list[str] = []

    def attached(self, stream: Any) -> None:
        assert self.stream is None, "attached twice"
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        assert self.stream is not None and data
        self.received += data

    def ended(self, ending: Ending) -> None:
        self.endings.append(ending)

    def detached(self, reason: str) -> None:
        self.detached_with.append(reason)
