"""
Tests for :mod:`twisted_exec.runtimes.qemu.log_port`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Any

from twisted.internet import inotify
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from tests import needs
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.qemu.log_port import LogPort, LogWatcher
from twisted_exec.runtimes.qemu.serial import QemuSerialLine
from twisted_exec.runtimes.qemu.serial_log import SerialLog


class LogWatcherTests(TestCase):
    """Tests for :class:`LogWatcher`."""

    def setUp(self) -> None:
        self.path, self.watcher = self.mktemp(), LogWatcher(_reactor)
        with open(self.path, "wb"):
            pass

    def grow(self) -> None:
        with open(self.path, "ab") as file:
            file.write(b"x")

    async def test_growth(self) -> None:
        """It tells when a file has grown."""
        grown: Deferred[None] = Deferred()
        told = self.watcher.watch(self.path, lambda: grown.called or grown.callback(None))
        self.assertTrue(told)
        self.addCleanup(self.watcher.unwatch, self.path)
        self.grow()
        await grown

    def test_no_library(self) -> None:
        """Without the C library, as Python finds it, the caller has to poll."""
        # Its import fails if there is no ldconfig.
        needs.without(self, "twisted.internet.inotify")
        self.assertFalse(self.watcher.watch(self.path, self.grow))
        self.watcher.unwatch(self.path)

    def test_no_instance(self) -> None:
        """The caller has to poll as well if the host has no more inotify instances."""

        def init() -> int:
            raise inotify._inotify.INotifyError("INotify initialization error.")

        self.patch(inotify._inotify, "init", init)
        self.assertFalse(self.watcher.watch(self.path, self.grow))


class LogPortTests(TestCase):
    """Tests for :class:`LogPort`."""

    def test_guest_reads_nothing(self) -> None:
        """Input that the guest has not taken yet stays in the FIFO for it, in order, when the port closes."""
        reactor: Any = _reactor
        log = SerialLog(self.mktemp(), Journal())
        log.create()
        guest = log.open_input()
        self.addCleanup(os.close, guest)
        line = QemuSerialLine(lambda: None)
        for data in (bytes(range(256)) * 512, b"later"):
            line.join(LogPort(log, line, LogWatcher(reactor), reactor))
            for at in range(0, len(data), 1000):
                line.write(data[at : at + 1000])
            line.drop()
            self.assertEqual(reactor.getDelayedCalls(), [])
        self.assertEqual(os.read(guest, 1 << 20), bytes(range(256)) * 512 + b"later")

    def test_no_room(self) -> None:
        """If the kernel allows no larger FIFO, the log says how much is lost."""

        def refuse(descriptor: int, command: int, *more: Any) -> int:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        reactor: Any = _reactor
        log = SerialLog(self.mktemp(), Journal())
        log.create()
        line = QemuSerialLine(lambda: None)
        line.join(LogPort(log, line, LogWatcher(reactor), reactor))
        line.write(bytes(1 << 20))
        self.patch(fcntl, "fcntl", refuse)
        with capturedLogs() as logs:
            line.drop()
        (event,) = logs
        self.assertIn("bytes of input are lost", formatEvent(event))
