"""Tests for :mod:`twisted_exec.program.handover.undo`."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.handover.undo import UndoStack


class UndoStackTests(SynchronousTestCase):
    """Steps that write their names; the step "broken" fails."""

    def setUp(self) -> None:
        self.taken: list[str] = []
        self.undo = UndoStack()

    def push(self, *names: str) -> None:
        for name in names:
            self.undo.push(partial(self.take, name))

    def take(self, name: str) -> Deferred[None]:
        self.taken.append(name)
        return fail(ValueError(name)) if name == "broken" else succeed(None)

    def test_order(self) -> None:
        """The last step comes first; a step that fails does not hold up the others."""
        self.push("first", "broken", "last")
        self.successResultOf(Deferred.fromCoroutine(self.undo.undo()))
        self.assertEqual(self.taken, ["last", "broken", "first"])
        self.assertTrue(self.undo.is_empty)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_may_not_go_on(self) -> None:
        """The steps behind a failure stay if they may not be taken."""
        self.push("first", "broken", "last")
        undoing = Deferred.fromCoroutine(self.undo.undo(lambda: False))
        self.failureResultOf(undoing, ValueError)
        self.assertEqual(self.taken, ["last", "broken"])
        self.assertFalse(self.undo.is_empty)

    def test_cancelled(self) -> None:
        """A program that stops takes no further step; they stay for its end."""
        self.push("first")
        self.undo.push(Deferred)
        undoing = Deferred.fromCoroutine(self.undo.undo())
        undoing.cancel()
        self.failureResultOf(undoing, CancelledError)
        self.assertEqual(self.taken, [])
        self.successResultOf(Deferred.fromCoroutine(self.undo.undo()))
        self.assertEqual(self.taken, ["first"])

    def test_clear(self) -> None:
        """After the hand-over has succeeded there is nothing to take back."""
        self.push("first")
        self.undo.clear()
        self.assertTrue(self.undo.is_empty)
        self.successResultOf(Deferred.fromCoroutine(self.undo.undo()))
        self.assertEqual(self.taken, [])
