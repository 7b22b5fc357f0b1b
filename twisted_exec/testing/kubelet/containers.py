"""
Containers of the kubelet double: their processes and the attached clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zope.interface import implementer

from twisted_exec.streaming.interfaces import (
    COMPLETED,
    Ending,
    IAttachment,
    IAttachmentTransport,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import ConsoleServer
from twisted_exec.testing.kubelet.logs import STDERR, STDOUT, ContainerLog
from twisted_exec.testing.kubelet.processes import LocalProcess
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.stream_options import StreamOptions


@dataclass
class Container:
    """
    One container.

    :param command: its main command, started with the kubelet, for ``attach``; empty for none.
    :param tty: whether the main command has a terminal.
    :param environment: environment of its commands, added to that of this process.
    :param directory: working directory of its commands.
    :param log: log of the container; the output of the main command is appended.
    :param previous: log of the previous container; ``None`` if there was none.
    """

    command: Sequence[str] = ()
    tty: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    log: ContainerLog = field(default_factory=ContainerLog)
    previous: ContainerLog | None = None
    main: MainProcess | None = None

    def run(self, reactor: Any) -> None:
        """Start the main command, if there is one."""
        if self.command:
            self.main = MainProcess(self)
            self.start(reactor, self.main.process, self.command, stdin=True)

    def start(
        self, reactor: Any, process: LocalProcess, command: Sequence[str], *, stdin: bool
    ) -> None:
        """Start a command in the container."""
        process.start(
            reactor,
            command,
            stdin=stdin,
            environment=self.environment,
            directory=self.directory,
        )


class MainProcess:
    """A container's main command, whose input and output all attached clients share."""

    def __init__(self, container: Container) -> None:
        self._log = container.log
        self.process = LocalProcess(self, tty=container.tty)
        self.users: set[AttachStream] = set()

    def printed(self, channel: Channel, data: bytes) -> None:
        self._log.write(data, STDOUT if channel is Channel.STDOUT else STDERR)
        for each in list(self.users):
            each.printed(channel, data)

    def process_ended(self, ending: Ending) -> None:
        self._log.end()
        for each in list(self.users):
            each.process_ended(ending)

    def paced(self) -> None:
        """Follow the pace of the slowest attached client."""
        if any(each.full for each in self.users):
            self.process.pause()
        else:
            self.process.resume()


@implementer(IAttachment)
class _Stream:
    """
    A client's streams, connected to a process.

    :param over: called when the client has disconnected.
    :ivar full: the client has stopped reading.
    """

    process: LocalProcess
    transport: ConsoleServer
    full = False

    def __init__(self, options: StreamOptions, over: Callable[[Any], None]) -> None:
        self._options, self._over = options, over
        self._is_up = False

    def attached(self, transport: IAttachmentTransport) -> None:
        assert isinstance(transport, ConsoleServer)
        self.transport, self._is_up = transport, True
        self.begin()
        self.transport.registerProducer(self, True)

    def begin(self) -> None:
        """Connect to the process."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        self.process.write(data)

    def window_changed(self, size: TerminalSize) -> None:
        self.process.resize(size)

    def input_ended(self) -> None:
        """The client has closed its input."""
        raise NotImplementedError

    def detached(self, reason: str) -> None:
        if self._is_up:
            self.left()
        self._over(self)

    def left(self) -> None:
        """The client has disconnected."""
        raise NotImplementedError

    def cut(self) -> None:
        """Abort the connection, because the kubelet stops."""
        if self._is_up:
            self.transport.cut()

    # The process's output.

    def printed(self, channel: Channel, data: bytes) -> None:
        if self._options.channels is None or channel not in self._options.channels:
            return
        if channel is Channel.STDERR:
            self.transport.write_error(data)
        else:
            self.transport.write(data)

    def process_ended(self, ending: Ending) -> None:
        self.transport.end(ending)

    # As the producer of the client's transport.

    def pauseProducing(self) -> None:
        self.full = True
        self.paced()

    def resumeProducing(self) -> None:
        self.full = False
        self.paced()

    def stopProducing(self) -> None:
        """Do nothing: ``detached`` follows."""

    def paced(self) -> None:
        """Pause the process while the client is ``full``."""
        raise NotImplementedError


class _ClientInput:
    """The client as the producer of a process's input."""

    def __init__(self, stream: _Stream) -> None:
        self.pauseProducing = stream.transport.pause_input
        self.resumeProducing = stream.transport.resume_input
        self.stopProducing = stream.transport.resume_input  # further input is dropped


class ExecStream(_Stream):
    """A client with a command of its own."""

    def __init__(
        self,
        reactor: Any,
        container: Container,
        command: Sequence[str],
        options: StreamOptions,
        over: Callable[[Any], None],
    ) -> None:
        super().__init__(options, over)
        self._reactor, self._container, self._command = reactor, container, command
        self.process = LocalProcess(self, tty=options.tty)

    def begin(self) -> None:
        takes = self._options.takes_input
        self._container.start(self._reactor, self.process, self._command, stdin=takes)
        if takes:
            self.process.register_input(_ClientInput(self))

    def input_ended(self) -> None:
        self.process.end_input()

    def left(self) -> None:
        self.process.hang_up()

    def paced(self) -> None:
        if self.full:
            self.process.pause()
        else:
            self.process.resume()


class AttachStream(_Stream):
    """A client of the main command, which continues when the client disconnects."""

    def __init__(
        self, main: MainProcess, options: StreamOptions, over: Callable[[Any], None]
    ) -> None:
        super().__init__(options, over)
        self._main, self.process = main, main.process

    def begin(self) -> None:
        if self.process.ended is not None:
            self.transport.end(Ending(COMPLETED))
        else:
            self._main.users.add(self)

    def input_ended(self) -> None:
        """Do nothing: other clients may still send input."""

    def left(self) -> None:
        self._main.users.discard(self)
        self._main.paced()

    def paced(self) -> None:
        self._main.paced()

    def process_ended(self, ending: Ending) -> None:
        super().process_ended(Ending(COMPLETED))  # the exit code concerns exec only
