"""
Stores of journals whose time is that of a clock, and whose disk freezes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import FailingLayer, close_segments
from tests.program.disks import FreezableThread
from twisted_exec.journal.files import JournalFiles
from twisted_exec.journal.program_run import read_run
from twisted_exec.journal.retention import StoreLimits
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.disk_thread import AtOnce, Files

DAY = 86_400
KEY = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"
OTHER = "7" * 32


class StoreCase(SynchronousTestCase):
    """Stores in a directory of the test, whose time is that of a clock."""

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path, self.memory = self.mktemp(), self.mktemp()
        os.mkdir(self.memory)
        self.clock = Clock()
        self.ahead = 1_700_000_000.0
        self.layer = FailingLayer()

    def now(self) -> int:
        return int((self.ahead + self.clock.seconds()) * 1e9)

    def store(
        self,
        kernel: str = "k1",
        path: str = "",
        limits: StoreLimits | None = None,
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]] = maybeDeferred,
        thread: Files | None = None,
    ) -> JournalStore:
        store = JournalStore(
            path or self.path,
            self.clock,
            limits=limits or StoreLimits(total_bytes=1 << 40, free_bytes=0),
            now=self.now,
            in_thread=in_thread,
            thread=thread or AtOnce(),
            memory=self.memory,
            layer=self.layer,
            kernel=kernel,
        )
        store.open()
        return store

    def stop(self, store: JournalStore) -> None:
        self.successResultOf(Deferred.fromCoroutine(store.close()))

    def wait(self, seconds: float) -> None:
        # Retention looks every minute; days in shorter steps would take seconds.
        step = 60 if seconds > DAY else 5
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def names(self, key: str = KEY) -> list[str]:
        return sorted(os.listdir(os.path.join(self.path, key)))


class StallCase(StoreCase):
    """A store on a disk that freezes."""

    def setUp(self) -> None:
        super().setUp()
        self.ahead = 1_800_000_000.0
        self.thread = FreezableThread()
        self.events: list[tuple[str, str]] = []
        self.waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def store(self, **options: Any) -> Any:
        store = super().store(thread=self.thread, **options)
        store.failed = lambda key, why: self.events.append((key, why))
        store.recovered = lambda key, lost: self.events.append((key, f"lost {lost}"))
        return store

    def front_files(self) -> list[str]:
        return os.listdir(self.memory)

    def thaw(self) -> None:
        self.thread.thaw()
        self.clock.pump([0, 0.1, 0.1, 0.1])

    def begin(self) -> Any:
        """Start a store, whose time goes on where that of the last ended."""
        self.ahead += self.clock.seconds()
        self.clock, self.thread = Clock(), FreezableThread()
        return self.store()

    def is_clean(self) -> bool:
        run = read_run(os, os.path.join(self.path, "run"))
        assert run is not None
        return run.clean

    def break_directory(self) -> list[str]:
        """Let the directory of :data:`KEY` be forced only once the returned list is empty."""
        broken = [os.path.abspath(os.path.join(self.path, KEY))]
        sync = JournalFiles.sync_directory

        def sync_directory(files: JournalFiles) -> None:
            if files.place.path in broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(files)

        self.patch(JournalFiles, "sync_directory", sync_directory)
        return broken
