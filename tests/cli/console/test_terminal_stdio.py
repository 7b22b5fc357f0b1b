"""
Tests for :mod:`twisted_exec.cli.console.terminal`, on real pipes, files and devices.
"""

from __future__ import annotations

import errno
import os
import tempfile

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from twisted_exec.cli.console.terminal import TerminalInput, TerminalOutput


class InputTests(TestCase):
    """Tests for :class:`TerminalInput`."""

    def read_all(self, fd: int) -> Deferred[bytes]:
        got: list[bytes] = []
        whole: Deferred[bytes] = Deferred()
        TerminalInput(
            fd, got.append, lambda: whole.callback(b"".join(got)), reactor
        ).resumeProducing()
        return whole

    async def test_pipe(self) -> None:
        """Everything arrives, then the end, once."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        os.set_blocking(read, False)
        whole = self.read_all(read)
        os.write(write, b"version\r")
        os.close(write)
        self.assertEqual(await whole, b"version\r")

    async def test_file(self) -> None:
        """A regular file, which epoll refuses, works as well."""
        with tempfile.TemporaryFile() as file:
            content = os.urandom(100_000)
            file.write(content)
            file.seek(0)
            self.assertEqual(await self.read_all(file.fileno()), content)

    async def test_dev_null(self) -> None:
        """The null device is at its end immediately."""
        fd = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, fd)
        self.assertEqual(await self.read_all(fd), b"")

    async def test_hung_up_terminal(self) -> None:
        """A terminal whose window was closed is at its end."""
        far, near = os.openpty()
        self.addCleanup(os.close, near)
        whole = self.read_all(near)
        os.close(far)
        self.assertEqual(await whole, b"")


class OutputTests(TestCase):
    """Tests for :class:`TerminalOutput`."""

    def output(self, fd: int) -> tuple[TerminalOutput, Deferred[OSError | None]]:
        lost: Deferred[OSError | None] = Deferred()
        return TerminalOutput(fd, lost.callback, reactor), lost

    async def test_flushed(self) -> None:
        """``loseConnection`` waits until everything is written, however slow the reader."""
        read, write = os.pipe()
        self.addCleanup(os.close, write)
        self.addCleanup(os.close, read)
        os.set_blocking(write, False)
        output, lost = self.output(write)
        content = os.urandom(300_000)
        output.write(content)
        output.loseConnection()
        got: list[bytes] = []
        source = TerminalInput(read, got.append, lambda: None, reactor)
        source.resumeProducing()
        self.assertIsNone(await lost)
        source.stop()
        rest = b"".join(got)
        while len(rest) < len(content):
            rest += os.read(read, 1 << 20)
        self.assertEqual(rest, content)

    async def test_reader_gone(self) -> None:
        """A closed pipe is not an error."""
        read, write = os.pipe()
        self.addCleanup(os.close, write)
        os.close(read)
        output, lost = self.output(write)
        output.write(b"more")
        self.assertIsNone(await lost)

    async def test_disk_full(self) -> None:
        """A failed write is reported with its error."""
        fd = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, fd)
        output, lost = self.output(fd)
        output.write(b"precious")
        error = await lost
        assert error is not None
        self.assertEqual(error.errno, errno.ENOSPC)

    async def test_back_pressure(self) -> None:
        """A reader who does not read pauses the producer, and reading resumes it."""
        read, write = os.pipe()
        self.addCleanup(os.close, write)
        self.addCleanup(os.close, read)
        os.set_blocking(write, False)
        output, lost = self.output(write)
        told: list[str] = []
        resumed: Deferred[None] = Deferred()

        class Producer:
            def pauseProducing(self) -> None:
                told.append("pause")

            def resumeProducing(self) -> None:
                told.append("resume")
                resumed.callback(None)

            def stopProducing(self) -> None:
                pass

        output.registerProducer(Producer(), True)
        output.write(b"x" * 200_000)
        self.assertEqual(told, ["pause"])
        source = TerminalInput(read, lambda _: None, lambda: None, reactor)
        source.resumeProducing()
        await resumed
        self.assertEqual(told, ["pause", "resume"])
        output.unregisterProducer()
        output.loseConnection()
        await lost
        source.stop()
