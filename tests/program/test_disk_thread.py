"""
Tests for :mod:`twisted_exec.program.disk_thread`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from twisted.internet import reactor
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from twisted_exec.program import disk_thread
from twisted_exec.program.disk_thread import DiskThread, Unanswered


class ThreadTests(TestCase):
    """The thread of a disk."""

    def setUp(self) -> None:
        self.thread = DiskThread(reactor, wait_seconds=600.0)
        self.addCleanup(self.thread.stop)
        self.frozen = threading.Event()
        self.addCleanup(self.frozen.set)
        self.heard: list[str] = []
        self.thread.late = lambda: self.heard.append("late")
        self.thread.answered = lambda: self.heard.append("answered")

    def freeze(self) -> str:
        """The disk answers when the test says so."""
        self.frozen.wait(600)
        return "thawed"

    def call_late(self, function: Callable[[], object]) -> Unanswered:
        """Call a function that waits for the test: nobody waits for its answer."""
        limits = self.patch(self.thread, "_wait_seconds", 0.01)
        with self.assertRaises(Unanswered) as raised:
            self.thread.call(function)
        limits.restore()
        return raised.exception

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
        late = self.call_late(self.freeze)
        self.assertEqual(late.strerror, "the disk does not answer")
        self.assertEqual(self.heard, ["late"])
        with self.assertRaises(Unanswered) as second:
            self.thread.call(list)
        self.assertIsNone(second.exception.answer)
        self.frozen.set()
        assert late.answer is not None
        self.assertEqual(await late.answer, "thawed")
        self.assertEqual(self.heard, ["late", "answered"])
        self.assertEqual(self.thread.call(list), [])

    def test_stood_still(self) -> None:
        """A process that stands still while it waits does not blame the disk for that."""

        class Lock:
            """Its first time limit passes while the process stands still."""

            def __init__(self) -> None:
                self._lock, self._limits = threading.Lock(), 0
                self.release = self._lock.release

            def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
                self._limits += timeout >= 0
                return self._limits != 1 and self._lock.acquire(blocking, timeout)

        job = disk_thread._Job(lambda: "done")
        job._done = Lock()
        job._done.acquire()
        thread = threading.Thread(target=job.run)
        thread.start()
        self.addCleanup(thread.join, 60)
        self.assertTrue(job.wait(600))
        self.assertEqual(job.result(), "done")

    async def test_late_error(self) -> None:
        """An error that comes too late is its caller's, or nobody's; a mistake is always logged."""
        table = {(OSError, True): OSError, (OSError, False): None, (ValueError, False): ValueError}
        for (kind, is_awaited), expected in table.items():

            def fail(kind: type[Exception] = kind) -> None:
                self.freeze()
                raise kind

            self.frozen.clear()
            answer = self.call_late(fail).answer
            assert answer is not None
            errors: list[Failure] = []
            if is_awaited:
                answer.addErrback(errors.append)
            self.frozen.set()
            await self.thread.run(list)
            answer.addErrback(errors.append)
            self.assertEqual([each.type for each in errors], [expected] if expected else [])

    async def test_order(self) -> None:
        """What need not be answered is done in order, however long the disk takes."""
        done: list[int] = []
        self.call_late(self.freeze)
        for number in range(3):
            last = self.thread.run(lambda number=number: done.append(number))  # type: ignore[misc]
        self.frozen.set()
        await last
        self.assertEqual(done, [0, 1, 2])

    async def test_run_fails(self) -> None:
        """An error of what runs later is that of its Deferred."""
        with self.assertRaises(FileNotFoundError):
            await self.thread.run(lambda: os.stat("missing/file"))
