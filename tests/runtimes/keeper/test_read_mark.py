"""
Tests for :mod:`twisted_exec.runtimes.keeper.read_mark`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.keeper.read_mark import ReadMark


class ReadMarkTests(SynchronousTestCase):
    """Tests for :class:`ReadMark`."""

    def test_interrupted(self) -> None:
        """The next run finds the note of a terminal that was being read, until it forgets it."""
        path = os.path.abspath(self.mktemp())
        mark = ReadMark(path)
        mark.set(b"vm-1")
        mark.clear()
        with mark.reading("vm-2"):
            mark.close()
        for is_forgotten in (False, True):
            mark = ReadMark(path)
            self.assertFalse(mark.was_interrupted(b"vm-1"))
            self.assertEqual(mark.was_interrupted(b"vm-2"), not is_forgotten)
            mark.forget(b"vm-2")
            mark.close()

    def test_many_kills(self) -> None:
        """When there are more terminals of killed runtimes than notes, each may lack output."""
        path = os.path.abspath(self.mktemp())
        for number in range(16):
            mark = ReadMark(path)
            mark.set(b"%d" % number)
            mark.close()
            self.assertFalse(number and mark.was_interrupted(b"other"))
        mark = ReadMark(path)
        self.assertTrue(mark.was_interrupted(b"other"))
        mark.forget(b"0")
        mark.close()
        mark = ReadMark(path)
        self.assertTrue(mark.was_interrupted(b"14"))
        mark.close()
