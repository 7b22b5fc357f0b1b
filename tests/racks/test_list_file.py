"""
Tests for :mod:`twisted_exec.racks.list_file`.
"""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.server_list import Server
from twisted_exec.racks import list_file
from twisted_exec.racks.list_file import ListFile

ROWS = [Server("default/a", "10.0.1.1", "S", {"rack": "r7"}), Server("default/b", "10.0.1.2")]


class ListFileTests(SynchronousTestCase):
    """The file between ``exec-racks`` and the runtime."""

    def setUp(self) -> None:
        self.file = ListFile(os.path.abspath(self.mktemp()) + ".csv")

    def test_written(self) -> None:
        """What was written is read; a list without rows is one, and so is none."""
        self.assertEqual(self.file.read(), ())
        for rows in (ROWS, [], ROWS[:1]):
            self.file.write(rows)
            self.assertEqual(list(self.file.read()), rows)
        directory, name = os.path.split(self.file.path)
        self.assertEqual([each for each in os.listdir(directory) if name in each], [name])

    def test_mode(self) -> None:
        """The runtime can read it as another user, whatever the umask."""
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.file.write(ROWS)
        self.assertEqual(os.stat(self.file.path).st_mode & 0o777, 0o644)

    def test_refused(self) -> None:
        """A file with a wrong row is not used at all: the row stood for a Server."""
        Path(self.file.path).write_text("name,address\ndefault/a,10.0.1.1\ndefault/b,bmc\n")
        with self.assertRaisesRegex(ConfigError, "default/b: address 'bmc' is not an IP address"):
            self.file.read()

    def test_too_large(self) -> None:
        """A list that the runtime would refuse is not written; the old one stays."""
        self.file.write(ROWS)
        self.patch(list_file, "MAX_FILE_BYTES", 64)
        with self.assertRaisesRegex(ConfigError, "divide the Servers with --server-selector"):
            self.file.write([*ROWS, Server("default/c", "10.0.1.3")])
        self.assertEqual(list(self.file.read()), ROWS)
