"""Tests for :mod:`twisted_exec.cli.web.program`, on real pipes and terminals."""

from __future__ import annotations

import os
import signal
import tempfile

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from twisted_exec.cli.web.program import Enter


class EnterTests(TestCase):
    """Tests for :class:`Enter`."""

    def setUp(self) -> None:
        self.pressed: Deferred[None] = Deferred()
        for number in (signal.SIGTTIN, signal.SIGCONT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def enter(self, fd: int) -> Enter:
        enter = Enter(fd, lambda: self.pressed.callback(None), reactor)
        self.addCleanup(enter.stop)
        enter.start()
        return enter

    async def test_pipe(self) -> None:
        """A line calls back, other input does not."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        self.enter(read)
        os.write(write, b"x")
        os.write(write, b"\n")
        await self.pressed

    async def test_terminal(self) -> None:
        """Enter at a terminal calls back; the terminal's own descriptor stays blocking."""
        far, near = os.openpty()
        self.addCleanup(os.close, far)
        self.addCleanup(os.close, near)
        self.enter(near)
        os.write(far, b"\r")
        await self.pressed
        self.assertTrue(os.get_blocking(near))

    def test_no_input(self) -> None:
        """Files, and a closed standard input, are no reason to fail."""
        with tempfile.TemporaryFile() as file:
            self.enter(file.fileno()).stop()
        self.enter(10**6)
