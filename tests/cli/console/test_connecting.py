"""Tests for :mod:`twisted_exec.cli.console.connecting`."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.connecting import ADDRESS, TLS, WAITING, ProgressLine, step


class LineTests(SynchronousTestCase):
    """The line of a connection that begins, in a terminal of 40 columns."""

    def begin(self, **more: Any) -> ProgressLine:
        self.clock = Clock()
        self.written: list[str] = []
        self.step = "TLS"
        settings = {"is_plain": False, **more}
        return ProgressLine(
            self.clock,
            self.written.append,
            lambda seconds: f"connecting to vm at https://a: {self.step}, {seconds} s",
            lambda: 40,
            **settings,
        )

    def test_progress(self) -> None:
        """The line appears after a moment, is drawn anew each second in one row, with the seconds, and is erased."""
        line = self.begin()
        line.erase()
        self.assertEqual(self.written, [])
        self.clock.advance(0.5)
        self.step = "a longer step"
        self.clock.advance(1)
        line.stop()
        self.clock.advance(9)
        line.stop()
        self.assertEqual(
            self.written,
            [
                "\r\x1b[Kconnecting to vm at https://a: TLS, 1 s",
                "\r\x1b[Kconnecting to vm at ...longer step, 2 s",
                "\r\x1b[K",
            ],
        )

    def test_fast(self) -> None:
        """A wait that ends soon has no line."""
        line = self.begin()
        line.stop()
        self.clock.advance(9)
        self.assertEqual(self.written, [])

    def test_plain(self) -> None:
        """A terminal that cannot erase gets the line once."""
        line = self.begin(is_plain=True)
        self.clock.advance(0.5)
        line.erase()
        self.clock.advance(5)
        line.stop()
        self.assertEqual(self.written, ["connecting to vm at https://a: TLS, 1 s\r\n"])

    def test_terminal_gone(self) -> None:
        """A terminal that is gone has no size, and ends nothing."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        self.patch(os, "environ", {"TERM": "xterm"})
        reactor, written = MemoryReactorClock(), []
        line = ProgressLine.on_terminal(writer, reactor, lambda seconds: "TLS", written.append)
        reactor.advance(1)
        line.stop()
        self.assertIn(b"TLS", b"".join(written))


class Reactor:
    """A reactor that reads these descriptors."""

    def __init__(self, *readers: Any) -> None:
        self.readers = readers

    def getReaders(self) -> Any:
        return self.readers


class StepTests(SynchronousTestCase):
    """Tests for :func:`step`."""

    def test_steps(self) -> None:
        """A connection is open, or has a peer, or is being made; what else a reactor reads does not count."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        first, second = socket.socketpair()
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        pipe = os.pipe()
        self.addCleanup(os.close, pipe[1])
        reader = os.fdopen(pipe[0], "rb")
        self.addCleanup(reader.close)
        reactor = Reactor(listener, first, reader)
        self.assertEqual(step(reactor, is_verified=False), ADDRESS)
        client = socket.create_connection(listener.getsockname())
        self.addCleanup(client.close)
        self.assertEqual(step(Reactor(reader, client), is_verified=False), TLS)
        self.assertEqual(step(Reactor(client), is_verified=True), WAITING)
        self.assertNotEqual(client.fileno(), -1)
