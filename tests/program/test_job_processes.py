"""
Tests for :mod:`twisted_exec.program.job_processes`.

What all its users share is tested with screens, in ``tests/screens/test_pool.py``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.program.job_messages import encode
from twisted_exec.program.job_processes import PROCESSES, JobKind, JobProcesses, JobRefused

from .memory_processes import MemoryReactor

_PIECE_BYTES = 256
"""So small that the work for a piece outweighs the memory of all: that does not grow evenly."""


class LimitTests(SynchronousTestCase):
    """The limit of each key."""

    def test_of_key(self) -> None:
        """A key with too many jobs is refused more, and others have their places."""
        kind: JobKind[Any] = JobKind(
            lambda head, _body: head,
            worker="the worker",
            jobs="jobs wait",
            owner="the program",
            seconds=5,
            waiting=4,
            waiting_of_key=2,
        )
        pool = JobProcesses(MemoryReactor(), lambda: ["worker"], kind)

        def do(key: str) -> Deferred[Any]:
            return pool.do(encode({}), key)

        for _ in range(PROCESSES + 2):
            self.assertNoResult(do("busy"))
        self.assertIn("2 jobs wait", str(self.failureResultOf(do("busy"), JobRefused).value))
        self.assertNoResult(do("a"))
        self.assertNoResult(do("b"))
        self.assertIn("4 jobs wait", str(self.failureResultOf(do("c"), JobRefused).value))


class AnswerTests(SynchronousTestCase):
    """The answers of processes."""

    def test_pieces(self) -> None:
        """An answer in small pieces takes linear time: a screen can have 14 MB."""
        kind: JobKind[int] = JobKind(
            lambda head, body: len(body), worker="it", jobs="jobs", owner="the program", seconds=5
        )

        def answer(size: int) -> None:
            reactor = MemoryReactor()
            done = JobProcesses(reactor, lambda: ["it"], kind).do(encode({}), "a")
            (process,) = reactor.processes
            text = encode({}, bytes(size))
            for at in range(0, len(text), _PIECE_BYTES):
                process.protocol.outReceived(text[at : at + _PIECE_BYTES])
            self.assertEqual(self.successResultOf(done), size)

        assert_linear(answer, 1 << 18)
