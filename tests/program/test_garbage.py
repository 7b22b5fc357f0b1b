"""
Tests for :mod:`twisted_exec.program.garbage`.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tiers import PROGRAMS
from twisted_exec.program.descriptors import open_descriptors
from twisted_exec.program.garbage import OLD, YOUNG, GarbagePolicy


class _Cycle:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class GarbagePolicyTests(SynchronousTestCase):
    """Tests for :class:`GarbagePolicy`."""

    def setUp(self) -> None:
        # Whatever ran in this process before: clients begin without a collector.
        self.addCleanup(gc.enable if gc.isenabled() else gc.disable)
        gc.enable()
        self.before = gc.get_threshold()
        self.clock = Clock()
        self.policy = GarbagePolicy(self.clock)
        self.policy.start()
        self.addCleanup(self.policy.stop)

    def pump(self, seconds: int) -> None:
        self.clock.pump([1.0] * seconds)

    def test_start_and_stop(self) -> None:
        """
        Start freezes existing objects and disables automatic full collections; stop undoes both.
        """
        self.assertGreater(gc.get_freeze_count(), 10_000)
        self.assertEqual(gc.get_threshold()[0], YOUNG)
        self.assertGreater(gc.get_threshold()[2], 1_000_000)
        self.policy.stop()
        self.assertEqual(gc.get_threshold(), self.before)
        self.assertEqual(gc.get_freeze_count(), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_once(self) -> None:
        """A process has one policy: starting a second changes nothing."""
        other = GarbagePolicy(Clock())
        other.start()
        other.stop()
        self.assertEqual(gc.get_threshold()[0], YOUNG)
        self.assertGreater(gc.get_freeze_count(), 10_000)

    def test_few(self) -> None:
        """A cycle is collected within a minute, however few objects there are, also if it is old."""
        cycle = _Cycle()
        gone = weakref.ref(cycle)
        gc.collect(1)
        del cycle
        self.pump(60)
        self.assertIsNone(gone())

    def test_many_old(self) -> None:
        """Many old objects are frozen, all but a few, and no collection visits them."""
        frozen = gc.get_freeze_count()
        held = [[number] for number in range(4 * OLD)]
        self.pump(60)
        self.assertGreaterEqual(gc.get_freeze_count(), frozen + len(held) - OLD)
        self.assertLess(len(gc.get_objects(generation=2)), OLD)

    def test_bounded(self) -> None:
        """While objects become many, no collection visits more than some thousand."""
        sizes: list[int] = []

        def size(phase: str, info: dict[str, Any]) -> None:
            if phase == "start":
                generations = range(info["generation"] + 1)
                sizes.append(sum(len(gc.get_objects(generation=each)) for each in generations))

        gc.callbacks.append(size)
        self.addCleanup(gc.callbacks.remove, size)
        held = []
        for _ in range(100):
            held.append([[number] for number in range(1000)])
            self.pump(5)
        self.assertGreater(len(sizes), 30)
        self.assertLess(max(sizes), 2 * OLD)

    def unexplained(self) -> int:
        """More objects than the policy tolerates, however many this process had before the test."""
        return gc.get_freeze_count() // 2 + 300_000

    def test_frozen_garbage(self) -> None:
        """Garbage among frozen objects is collected when it is more than descriptors explain."""
        cycles = [_Cycle() for _ in range(self.unexplained())]
        gone = weakref.ref(cycles[0])
        gc.collect(1)  # they are many: now they are frozen
        gc.collect()
        self.assertIsNotNone(gone())
        del cycles
        gc.collect()
        self.assertIsNotNone(gone())
        self.pump(600)
        self.assertIsNone(gone())
        self.assertFalse(self.policy.is_beyond_explanation())

    def test_explained(self) -> None:
        """Growth that comes with descriptors, as of sessions, starts no full collection."""
        self.assertFalse(self.policy.is_beyond_explanation())
        held = [[number] for number in range(self.unexplained())]
        gc.freeze()
        self.assertTrue(self.policy.is_beyond_explanation())
        for _ in range(400):
            self.addCleanup(os.close, os.dup(0))
        del held[len(held) // 10 :]
        self.assertFalse(self.policy.is_beyond_explanation())

    def test_descriptors(self) -> None:
        """Open descriptors are counted."""
        before = open_descriptors()
        self.addCleanup(os.close, os.dup(0))
        self.assertEqual(open_descriptors(), before + 1)


_PROGRAM = """
import gc, os
os.umask(0)
DEFAULT = gc.get_threshold()[0]
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted_exec.program.start import make_service

class Service:
    def __init__(self):
        self.ready = Deferred()

    def when_ready(self):
        return self.ready

def report():
    print("umask", oct(os.umask(0)))
    threshold = gc.get_threshold()[0]
    print("threshold", "default" if threshold == DEFAULT else threshold, "frozen", gc.get_freeze_count() > 10000)
    if reactor.running:
        reactor.stop()

def begin():
    service = make_service("exec-x", lambda reactor: Service())
    if %d:
        reactor.callWhenRunning(lambda: reactor.callLater(0, service.ready.callback, None))
    reactor.callWhenRunning(lambda: reactor.callLater(0, report))

%s
reactor.run()
"""


class ProgramTests(SynchronousTestCase):
    """The policy of a whole process."""

    starts = PROGRAMS

    def run_program(self, begin: str, is_started: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM % (is_started, begin)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_program(self) -> None:
        """Each program has it."""
        output = self.run_program("begin()")
        self.assertIn(f"threshold {YOUNG} frozen True", output)
        self.assertIn("umask 0o2\n", output, "others may write to nothing that a program creates")

    def test_not_started(self) -> None:
        """A program that is made but not started leaves the process alone."""
        output = self.run_program("begin()", is_started=False)
        self.assertIn("threshold default frozen False", output)

    def test_application(self) -> None:
        """An application that makes a service while it runs keeps its own policy."""
        output = self.run_program("reactor.callWhenRunning(begin)")
        self.assertIn("threshold default frozen False", output)
