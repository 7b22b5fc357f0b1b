"""
Tests for :mod:`twisted_exec.recording.playback`.
"""

from __future__ import annotations

import io

from twisted.trial.unittest import SynchronousTestCase

from tests.recording.support import NOW, SECOND, Entry, record
from tests.recording.test_writer import played
from twisted_exec.recording.playback import block_before, first_block, frames
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.recording.writer import BLOCK_BYTES


class SeekTests(SynchronousTestCase):
    """Tests for :func:`block_before`."""

    def test_every_time(self) -> None:
        """The block that has a time is found, or the one in which the time passes."""
        entries: list[Entry] = [
            (NOW + second * SECOND, b"%08d" % second * (BLOCK_BYTES // 16)) for second in range(40)
        ]
        file = io.BytesIO(record(entries))
        begins = [frame for frame in frames(file) if frame.code == "o"]
        for second in range(40):
            time = NOW // 1_000_000 + second * 1000
            block = block_before(file, time)
            assert block is not None
            rest = [each for each in frames(file, block.position) if each.time >= time]
            wanted = next(each for each in begins if each.time >= time)
            self.assertEqual(rest[0], wanted)
            self.assertLess(wanted.block - block.position, 2 * BLOCK_BYTES)

    def test_nothing_printed(self) -> None:
        """A recording without output has no block to play before its end."""
        self.assertEqual(played(record([])), b"")
        self.assertIsNone(first_block(io.BytesIO(b"")))
        self.assertIsNone(block_before(io.BytesIO(b'{"version":3}\n'), 5))

    def test_damaged_lines(self) -> None:
        """A line that is not of the format is named, whatever it is."""
        for line in (
            b"x\n",
            b"[1]\n",
            b'[1e999, "o", "x"]\n',
            b'["1", "o", 5]\n',
            b'[1, "o", "\\ud800"]\n',
            b"# raw !\n",
            b'# at {"time":"x"}\n',
            b"# at []\n",
        ):
            self.assertRaises(InvalidRecording, played, record([(NOW, b"a")]) + line)

    def test_unfinished_line(self) -> None:
        """A file that is still written may end within a line."""
        recording = record([(NOW, b"first"), (NOW, b"second")], sign_each=True, closed=False)
        cut = recording[: recording.index(b"second") + 3]
        self.assertEqual(played(cut), b"first")
