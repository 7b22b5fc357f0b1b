"""
``docs/examples/read_journal.py``: a reader that knows only the page about the format.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk
from tests.tiers import PROGRAMS
from twisted_exec.journal.journal import Journal

PROGRAM = Path(__file__).parents[2] / "docs" / "examples" / "read_journal.py"


class ReadJournalTests(SynchronousTestCase):
    """Output of a journal, read by its format."""

    starts = PROGRAMS
    exact = True

    def setUp(self) -> None:
        self.path = self.mktemp()
        self.disk = ManualDisk(self.path)
        self.journal = Journal(disk=self.disk)

    def write(self) -> bytes:
        """Output in sealed segments and an open one, with events in between."""
        whole = bytearray()
        for number in range(300):
            if number % 100 == 0:
                self.journal.booted("Started")
                self.journal.joined("s-1", "ada", "writer")
            # Not arbitrary bytes: a journal begins a boot by ending a control sequence that the one before left open.
            output = b"%05d line\r\n" % number * 900 + os.urandom(number).hex().encode()
            self.journal.append(output)
            whole += output
        self.disk.seal_all()
        return bytes(whole)

    def test_whole(self) -> None:
        """It prints every byte."""
        whole = self.write()
        names = os.listdir(self.path)
        self.assertEqual(sum(name.endswith(".sealed") for name in names), 3)
        ran = subprocess.run([sys.executable, PROGRAM, self.path], capture_output=True, check=True)
        self.assertEqual(ran.stderr, b"")
        self.assertEqual(ran.stdout, whole)

    def test_offsets(self) -> None:
        """It finds the offsets, also after a gap."""
        self.write()
        files = self.journal.open_files()
        assert files is not None
        files.skip(10_000_000, 5)
        read = runpy.run_path(str(PROGRAM))["journal"]
        Journal(disk=self.disk).append(b"after the gap")
        pieces = list(read(self.path))
        self.assertEqual(pieces[0][0], 0)
        self.assertEqual(pieces[-1], (10_000_000, b"after the gap"))
