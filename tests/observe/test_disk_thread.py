"""
Tests for :mod:`twisted_exec.observe.disk_thread`.
"""

from __future__ import annotations

import os
import threading

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from twisted_exec.observe.disk_thread import DiskThread, Unanswered


class ThreadTests(TestCase):
    """The thread of a disk."""

    def setUp(self) -> None:
        self.thread = DiskThread(reactor, wait_seconds=0.01)
        self.addCleanup(self.thread.stop)
        self.frozen = threading.Event()
        self.addCleanup(self.frozen.set)
        self.heard: list[str] = []
        self.thread.late = lambda: self.heard.append("late")
        self.thread.answered = lambda: self.heard.append("answered")

    def freeze(self) -> str:
        """The disk answers when the test says so."""
        self.frozen.wait(60)
        return "thawed"

    def test_call(self) -> None:
        """A call returns what the function returns, which runs in another thread."""
        thread = self.thread.call(threading.get_ident)
        self.assertNotEqual(thread, threading.get_ident())
        self.assertEqual(self.thread.call(lambda: self.thread.call(threading.get_ident)), thread)

    def test_error(self) -> None:
        """An error of the function is that of the call."""
        self.assertRaises(FileNotFoundError, self.thread.call, lambda: os.stat("missing/file"))

    async def test_late(self) -> None:
        """The reactor does not wait for a disk that does not answer; the call ends later."""
        with self.assertRaises(Unanswered) as raised:
            self.thread.call(self.freeze)
        self.assertEqual(raised.exception.strerror, "the disk does not answer")
        self.assertEqual(self.heard, ["late"])
        with self.assertRaises(Unanswered) as second:
            self.thread.call(list)
        self.assertIsNone(second.exception.answer)
        self.frozen.set()
        assert raised.exception.answer is not None
        self.assertEqual(await raised.exception.answer, "thawed")
        self.assertEqual(self.heard, ["late", "answered"])
        self.assertEqual(self.thread.call(list), [])

    async def test_order(self) -> None:
        """What need not be answered is done in order, however long the disk takes."""
        done: list[int] = []
        self.assertRaises(Unanswered, self.thread.call, self.freeze)
        for number in range(3):
            last = self.thread.run(lambda number=number: done.append(number))  # type: ignore[misc]
        self.frozen.set()
        await last
        self.assertEqual(done, [0, 1, 2])

    async def test_run_fails(self) -> None:
        """An error of what runs later is that of its Deferred."""
        with self.assertRaises(FileNotFoundError):
            await self.thread.run(lambda: os.stat("missing/file"))
