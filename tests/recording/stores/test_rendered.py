"""
Text that is rendered whenever it is read: :mod:`twisted_exec.recording.stores.rendered`.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.recording.stores.interfaces import ReadText, fill
from twisted_exec.recording.stores.rendered import RenderedText

TEXT = b"abcdefghij"


class RenderedTests(SynchronousTestCase):
    """A text of ten bytes."""

    def setUp(self) -> None:
        self.renders = 0
        self.problem: OSError | None = None
        self.text = RenderedText(self.render, Clock())

    def render(self) -> Iterator[bytes]:
        """The text, in pieces of which some are empty."""
        self.renders += 1
        yield b""
        yield TEXT[:3]
        yield b""
        if self.problem is not None:
            raise self.problem
        yield TEXT[3:]

    @property
    def read(self) -> ReadText:
        """The function that reads."""
        return lambda offset, limit: self.text.read(offset, limit)

    def whole(self, size: int) -> bytes:
        """The text, read in pieces."""
        data = b""
        while piece := self.successResultOf(self.read(len(data), size)):
            self.assertLessEqual(len(piece), size)
            data += piece
        return data

    def test_in_order(self) -> None:
        """Reading in order renders once."""
        for size in (1, 2, 4, 100):
            self.text = RenderedText(self.render, Clock())
            self.assertEqual(self.whole(size), TEXT)
        self.assertEqual(self.renders, 4)

    def test_again(self) -> None:
        """From an earlier offset it is rendered again."""
        self.assertEqual(self.whole(4), TEXT)
        self.assertEqual(self.whole(3), TEXT)
        self.assertEqual(self.successResultOf(self.read(5, 2)), b"fg")
        self.assertEqual(self.renders, 3)

    def test_ahead(self) -> None:
        """Bytes between are skipped; at the end there are none."""
        self.assertEqual(self.successResultOf(self.read(7, 2)), b"hi")
        self.assertEqual(self.successResultOf(self.read(20, 2)), b"")
        self.assertEqual(self.renders, 1)

    def test_failure(self) -> None:
        """After a failure the next attempt begins again."""
        self.problem = OSError(5, "Input/output error")

        async def read() -> bytes:
            return await fill(self.read, 0, 100)

        self.failureResultOf(Deferred.fromCoroutine(read()), OSError)
        self.problem = None
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(read())), TEXT)
