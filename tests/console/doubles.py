"""
A line and a stream in memory, for tests of sessions.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import (
    Ending,
    IAttachmentTransport,
    IBreakable,
    IConsole,
    TerminalSize,
)
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions


class LineTransport(StringTransport):
    """A line's transport; ``close`` is the far end."""

    def __init__(self, console: MemoryConsole) -> None:
        super().__init__()
        self._console = console

    @property
    def paused(self) -> bool:
        return self.producerState == "paused"

    def loseConnection(self) -> None:
        super().loseConnection()
        self._console.close()


@implementer(IConsole)
class MemoryConsole:
    """
    A console whose machine is the test.

    :param later: the line opens when the test fires ``opening``.
    """

    def __init__(self, *, paced: bool = False, later: bool = False) -> None:
        self.paced = paced
        self.sizes: list[TerminalSize] = []
        self.opening: Deferred[Any] | None = Deferred() if later else None
        self.transport: LineTransport
        self.line: Any = None
        self.closed = False

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        opening = succeed(None) if self.opening is None else self.opening

        def opened(_: object) -> Any:
            self.transport = LineTransport(self)
            self.line = factory.buildProtocol(None)  # type: ignore[arg-type]
            self.line.makeConnection(self.transport)
            return self.line

        return opening.addCallback(opened)

    def window_changed(self, size: TerminalSize) -> None:
        self.sizes.append(size)

    def says(self, data: bytes) -> None:
        """The machine prints, whether the line is paused or not."""
        self.line.dataReceived(data)

    def heard(self) -> bytes:
        """Return the input since the last call."""
        data = self.transport.value()
        self.transport.clear()
        return data

    def close(self, reason: BaseException | None = None) -> None:
        if not self.closed:
            self.closed = True
            self.line.connectionLost(Failure(reason or ConnectionDone()))


@implementer(IBreakable)
class BreakableConsole(MemoryConsole):
    """The same with BREAK."""

    def __init__(self, **more: bool) -> None:
        super().__init__(**more)
        self.breaks: list[int] = []

    def send_break(self, milliseconds: int) -> None:
        self.breaks.append(milliseconds)


@implementer(IAttachmentTransport)
class MemoryStream:
    """
    A viewer's stream that accepts a limited number of bytes.

    :param room: bytes until it pauses its producer; ``None`` never pauses.
    """

    session = "s"

    def __init__(
        self,
        viewer: Any,
        *,
        room: int | None = None,
        user: str = "ann",
        options: StreamOptions | None = None,
        terms: Terms = FULL,
    ) -> None:
        self.viewer = viewer
        self.user = user
        self.terms = terms
        self.options = options or StreamOptions()
        self.room = room
        self.got = bytearray()
        self.ending: Ending | None = None
        self.input_paused = False
        self._producer: Any = None
        viewer.attached(self)

    def write(self, data: bytes) -> None:
        assert self.ending is None, "written after the end"
        assert 0 < len(data) <= 32 << 10
        self.got += data
        if self.room is not None:
            self.room -= len(data)
            if self.room <= 0 and self._producer is not None:
                self._producer.pauseProducing()

    def take(self, room: int) -> None:
        """The user's side reads on."""
        self.room = room
        self._producer.resumeProducing()

    def end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending

    def pause_input(self) -> None:
        self.input_paused = True

    def resume_input(self) -> None:
        self.input_paused = False

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert streaming
        self._producer = producer
        if self.room is not None and self.room <= 0:
            self._producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def hold_to(self, terms: Terms) -> None:
        """The session is held to other terms."""
        self.terms = terms
        self.viewer.terms_changed(terms)

    def drop(self) -> None:
        """The stream goes away."""
        self.viewer.detached("connection lost")

    def since(self) -> bytes:
        """Return the output since the last call."""
        data = bytes(self.got)
        self.got.clear()
        return data


class OpenConsoleCase(SynchronousTestCase):
    """A console whose line is open."""

    paced = False

    def setUp(self) -> None:
        self.clock = Clock()
        self.console = MemoryConsole(paced=self.paced)
        self.shared = SharedConsole(self.console, self.clock)
        self.successResultOf(self.shared.open())


class SharedConsoleCase(OpenConsoleCase):
    """A console whose line is open, and streams without marks."""

    def attach(self, shared: SharedConsole | None = None, **options: Any) -> MemoryStream:
        return MemoryStream((shared or self.shared).viewer(), **options)
