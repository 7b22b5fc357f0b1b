"""
Tests for :mod:`twisted_exec.screens.from_journal`.
"""

from __future__ import annotations

from sys import getsizeof

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.screens.from_journal import KeyFrame, KeyFrames


def frame(offset: int, content: str = "x" * 10) -> KeyFrame:
    return KeyFrame(offset, 80, 24, content.encode())


class KeyFrameTests(SynchronousTestCase):
    """Key frames in memory."""

    def test_nearest(self) -> None:
        """The last one within the range, of the same journal."""
        frames = KeyFrames()
        for offset in (5, 20, 10):
            frames.add("e", frame(offset))
        frames.add("f", frame(15))
        for first, last, offset in (
            (0, 19, 10),
            (0, 20, 20),
            (0, 99, 20),
            (6, 9, None),
            (0, 4, None),
        ):
            found = frames.nearest("e", first, last)
            self.assertEqual(None if found is None else found.offset, offset)

    def test_limit(self) -> None:
        """Those that were not used for longest go first; a replaced one counts once."""
        frames = KeyFrames(3 * (512 + 10))
        for offset in (1, 2, 3, 3, 3):
            frames.add("e", frame(offset))
        self.assertIsNotNone(frames.nearest("e", 1, 1))
        frames.add("e", frame(4))
        self.assertEqual(
            [offset for offset in (1, 2, 3, 4) if frames.nearest("e", offset, offset)], [1, 3, 4]
        )
        frames.add("e", frame(5, "x" * 2000))
        self.assertIsNone(frames.nearest("e", 0, 9))

    def test_limit_of_emoji(self) -> None:
        """An emoji does not multiply the memory of its key frame."""
        frames = KeyFrames(100_000)
        for offset in range(20):
            frames.add("e", frame(offset, "x" * 10_000 + "\N{ROCKET}"))
        kept = [each for offset in range(20) if (each := frames.nearest("e", offset, offset))]
        self.assertLess(sum(getsizeof(each.content) for each in kept), 100_000)
        self.assertEqual(len(kept), 9)

    def test_limit_of_small_ones(self) -> None:
        """Key frames of empty screens count as well: a user can ask for any number of offsets."""
        frames = KeyFrames(10_000)
        for offset in range(1000):
            frames.add("e", frame(offset, ""))
        kept = [offset for offset in range(1000) if frames.nearest("e", offset, offset)]
        self.assertLess(len(kept), 20)
