"""
MCP on standard input and output: one message in each line.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer, provider

from twisted_exec.cli.console.process import collect_garbage, start_log
from twisted_exec.cli.console.terminal import TerminalInput, TerminalOutput
from twisted_exec.cli.mcp.messages import INVALID_REQUEST, MESSAGE, RPCError
from twisted_exec.cli.mcp.protocol import ServerSession, Tools
from twisted_exec.cli.messages import one_line, say
from twisted_exec.tls.fast.loop import use_monotonic_clock

_TOO_LONG = f"a message has at most {MESSAGE.size_bytes} bytes"


class Lines:
    """
    The messages of a stream of bytes.

    A line that is too long is discarded up to its end, and never kept.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that are complete now; ``None`` for each that is too long."""
        *whole, rest = data.split(b"\n")
        lines = [self._end(part) for part in whole]
        self._keep(rest)
        return [line for line in lines if line is None or line.strip()]

    def _keep(self, part: bytes) -> None:
        if not self._is_skipping:
            self._held += part
        if len(self._held) > MESSAGE.size_bytes:
            self._is_skipping = True
            self._held.clear()

    def _end(self, part: bytes) -> bytes | None:
        self._keep(part)
        line = None if self._is_skipping else bytes(self._held)
        self._is_skipping = False
        self._held.clear()
        return line


@implementer(IPushProducer)
class Pipe:
    """
    The client on a pair of descriptors.

    :param over: called once, when the client has left.
    """

    def __init__(self, tools: Tools, source: int, sink: int, reactor: Any, over: Any) -> None:
        for descriptor in (source, sink):
            os.set_blocking(descriptor, False)
        self._session, self._lines, self._over = ServerSession(tools), Lines(), over
        self._input = TerminalInput(source, self._received, self._lost, reactor)
        self._output = TerminalOutput(sink, lambda _: self._lost(), reactor)
        self._output.registerProducer(self, True)
        self._input.startReading()

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._write(RPCError(INVALID_REQUEST, _TOO_LONG).encode())
            else:
                self._session.received(line).addCallback(self._write)

    def _write(self, response: bytes) -> None:
        if response and not self._is_lost:
            self._output.write(response + b"\n")

    # A client that does not read its responses is not read either.

    def pauseProducing(self) -> None:
        self._input.stopReading()

    def resumeProducing(self) -> None:
        if not self._is_lost:
            self._input.startReading()

    def stopProducing(self) -> None:
        self._lost()

    _is_lost = False

    def _lost(self, *_: object) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._input.stop()
            self._session.close()
            self._over()

    def close(self) -> None:
        """End the session."""
        self._lost()


@provider(ILogObserver)
def say_warning(event: LogEvent) -> None:
    """Pass a warning of the log on to the client's own log, which is standard error."""
    if event.get("log_level") is LogLevel.warn:
        say(one_line(formatEvent(event)))


def serve(tools: Tools, reactor: Any) -> None:
    """Serve the client of the standard descriptors until it leaves, with the reactor of this process."""
    start_log()
    globalLogPublisher.addObserver(say_warning)
    use_monotonic_clock(reactor)
    source, sink = os.dup(0), os.dup(1)
    # Nothing else writes into the client's pipe: neither a stray message, nor a credential plugin.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    over: Deferred[None] = Deferred()
    over.addCallback(lambda _: reactor.callLater(LEAVE_SECONDS, reactor.stop))

    def begin() -> None:
        pipe = Pipe(tools, source, sink, reactor, lambda: over.callback(None))
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: reactor.callFromThread(pipe.close))

    reactor.callWhenRunning(begin)
    collect_garbage()
    reactor.run(installSignalHandlers=False)


LEAVE_SECONDS = 0.2
"""Time for the ends of sessions to leave this process."""
