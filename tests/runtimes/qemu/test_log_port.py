"""
Tests for :mod:`twisted_exec.runtimes.qemu.log_port`.
"""

from __future__ import annotations

from twisted.internet import inotify
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests import needs
from twisted_exec.runtimes.qemu.log_port import LogWatcher


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
