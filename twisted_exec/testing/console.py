"""Doubles of a console: a line without a machine, and ends and producers that record their events."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IPushProducer
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.interfaces import (
    Break,
    Ending,
    IAttachmentTransport,
    IBreakable,
    IConsole,
    IMarkTransport,
    IMessaging,
    IOperable,
    IResumableAttachment,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.stream import ConsoleUser
from twisted_exec.wire.marks import At, Attendance, Notice
from twisted_exec.wire.resume import Position
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions


class _Line(StringTransport):
    def __init__(self, console: FakeConsole) -> None:
        super().__init__()
        self._console = console

    def write(self, data: bytes) -> None:
        super().write(data)
        if self._console.echo:
            self._console.says(data)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._console.deliver()

    def loseConnection(self) -> None:
        super().loseConnection()
        self._console.ends()

    def abortConnection(self) -> None:
        self.loseConnection()


@implementer(IConsole, IBreakable)
class FakeConsole:
    """
    A line whose other end is the test.

    :param paced: as :class:`~twisted_exec.streaming.interfaces.IConsole` has it.
    :ivar opened: number of connections so far.
    :ivar refusal: an exception to fail the next :meth:`connect` with.
    :ivar sizes: terminal sizes, also of the closed line.
    :ivar breaks: duration of each BREAK of the open line, in milliseconds.
    """

    def __init__(self, paced: bool = True, echo: bool = False) -> None:
        self.paced, self.echo = paced, echo
        self.opened = 0
        self.refusal: Exception | None = None
        self.sizes: list[TerminalSize] = []
        self.breaks: list[int] = []
        self._line: _Line | None = None
        self._protocol: IProtocol | None = None
        self._unread = b""

    @property
    def is_open(self) -> bool:
        """True if a client is connected."""
        return self._protocol is not None

    @property
    def is_paused(self) -> bool:
        """True if the client has paused reading."""
        return self._line is not None and self._line.producerState == "paused"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return fail(Failure(refusal))
        self.opened += 1
        protocol = protocolFactory.buildProtocol(UNIXAddress("fake"))
        assert protocol is not None
        self._protocol, self._line, self._unread = protocol, _Line(self), b""
        protocol.makeConnection(self._line)
        return succeed(protocol)

    def window_changed(self, size: TerminalSize) -> None:
        self.sizes.append(size)

    def send_break(self, milliseconds: int) -> None:
        if self.is_open:
            self.breaks.append(milliseconds)

    def typed(self) -> bytes:
        """Return the input since the last call."""
        if self._line is None:
            return b""
        data: bytes = self._line.value()
        self._line.clear()
        return data

    def says(self, data: bytes) -> None:
        """Print output of the machine; it is lost while the line is closed."""
        if self.is_open:
            self._unread += data
            self.deliver()

    def deliver(self) -> None:
        if self._protocol is not None and self._unread and not self.is_paused:
            unread, self._unread = self._unread, b""
            self._protocol.dataReceived(unread)

    def ends(self, reason: Exception | None = None) -> None:
        """The line is lost, or its process ends; once."""
        protocol, self._protocol = self._protocol, None
        self._line = None
        if protocol is not None:
            protocol.connectionLost(Failure(reason or ConnectionDone()))


@implementer(IMessaging, IOperable)
class RecordingAttachment:
    """
    An attachment that does nothing by itself.

    :ivar received: all input, joined.
    :ivar wishes: what else the user asked for, in order.
    :ivar messages: messages to the other users, in order.
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
        self.messages: list[str] = []
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

    def said(self, text: str) -> None:
        self.messages.append(text)

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


@implementer(IResumableAttachment)
class ResumableAttachment(RecordingAttachment):
    """
    An attachment that can outlive its stream.

    :ivar output: what the machine has printed.
    :ivar events: names of the events, in order, such as ``away``.
    :ivar oldest: the oldest position that the session may read.
    """

    epoch = "0123456789abcdef"

    def __init__(self) -> None:
        super().__init__()
        self.output = b""
        self.events: list[str] = []
        self.terms: list[Terms] = []
        self.is_away = False
        self.oldest = Position(self.epoch, 0)

    @property
    def bytes_to_machine(self) -> int:
        return len(self.received)

    def prints(self, data: bytes) -> None:
        """Print something; the present stream gets it."""
        self.output += data
        if self.attachments and not self.is_away and not self.detached_with:
            self.transport.write(data)

    def attached(self, transport: IAttachmentTransport) -> None:
        super().attached(transport)
        self._continue(Position(self.epoch, 0))

    def resumed(self, transport: IMarkTransport, position: Position) -> None:
        self.transport, self.is_away = transport, False
        self.attachments += 1
        self.events.append("resumed")
        self._continue(position)

    def _continue(self, position: Position) -> None:
        if IMarkTransport.providedBy(self.transport):
            self.transport.send_mark(At(position))
        if rest := self.output[position.offset :]:
            self.transport.write(rest)

    def away(self) -> None:
        assert not self.is_away, "away twice"
        self.is_away = True
        self.events.append("away")

    def answered(self) -> None:
        self.events.append("answered")

    def check(self, position: Position) -> None:
        if position.epoch == self.epoch and position.offset > len(self.output):
            raise BadRequest("the position is beyond the end of the output")

    def admit(self, terms: Terms) -> None:
        self.terms.append(terms)

    def input_refused(self) -> None:
        self.events.append("input refused")

    def terms_changed(self, terms: Terms) -> None:
        self.terms.append(terms)


class RecordingUser(ConsoleUser):
    """The user's end of a :class:`~twisted_exec.streaming.remotecommand.client.ConsoleClient`."""

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


@implementer(IMarkTransport)
class MarkStream:
    """
    A stream with marks, in memory, for attachments that can resume.

    :param capacity: bytes of output until it pauses its producer; ``None`` never pauses.
    :ivar sent: output and marks, in order.
    :ivar questions: how often the attachment has asked.
    :ivar ending: the status; ``None`` before it.
    """

    def __init__(
        self,
        *,
        session: str = "s",
        user: str = "ann",
        capacity: int | None = None,
        options: StreamOptions | None = None,
        terms: Terms = FULL,
    ) -> None:
        self.session, self.user, self.capacity, self.terms = session, user, capacity, terms
        self.options = options or StreamOptions()
        self.settled = self.questions = 0
        self.sent: list[bytes | At | Attendance | Notice] = []
        self.ending: Ending | None = None
        self.input_paused = False
        self.producer: Any = None

    @property
    def output(self) -> bytes:
        """All output."""
        return b"".join(each for each in self.sent if isinstance(each, bytes))

    @property
    def notices(self) -> list[str]:
        """The texts of all notices."""
        return [each.text for each in self.sent if isinstance(each, Notice)]

    @property
    def positions(self) -> list[int]:
        """The offsets of all positions."""
        return [each.position.offset for each in self.sent if isinstance(each, At)]

    def take(self, capacity: int | None = None) -> None:
        """Read on, on the user's side."""
        self.capacity = capacity
        if self.producer is not None:
            self.producer.resumeProducing()

    def write(self, data: bytes) -> None:
        assert self.ending is None, "written after the end"
        assert 0 < len(data) <= 32 << 10
        self.sent.append(data)
        if self.capacity is not None:
            self.capacity -= len(data)
            if self.capacity <= 0 and self.producer is not None:
                self.producer.pauseProducing()

    def ask(self) -> None:
        self.questions += 1  # the test answers

    def send_mark(self, mark: At | Attendance | Notice) -> None:
        assert self.ending is None, "a mark after the end"
        self.sent.append(mark)

    def end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending

    def pause_input(self) -> None:
        self.input_paused = True

    def resume_input(self) -> None:
        self.input_paused = False

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert streaming and self.producer is None
        self.producer = producer
        if self.capacity is not None and self.capacity <= 0:
            self.producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self.producer = None


@implementer(IPushProducer)
class RecordingProducer:
    """
    A producer that records its calls.

    :ivar calls: in order: ``pause``, ``resume``, ``stop``.
    """

    def __init__(self) -> None:
        self.paused = False
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.paused = True
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.paused = False
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.paused = True
        self.calls.append("stop")
