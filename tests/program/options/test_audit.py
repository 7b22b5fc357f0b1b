"""
Tests for :mod:`twisted_exec.program.options.audit`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.options.audit import AuditOptions


class AuditOptionsTests(SynchronousTestCase):
    """Tests for :class:`AuditOptions`."""

    def parsed(self, *arguments: str) -> AuditOptions:
        options = AuditOptions()
        options.parseOptions(arguments)
        return options

    def test_rotation(self) -> None:
        """The size is in megabytes; with a number of old files older ones are removed."""
        path = self.mktemp()
        words = (f"--audit-log={path}", "--audit-log-maxsize=1", "--audit-log-maxbackup=1")
        audit = self.parsed(*words).audit()
        for name, size in ((path, (1 << 20) - 10), (f"{path}.1", 1)):
            with open(name, "wb") as file:
                file.write(b" " * size)
        audit.record({"event": "start"})
        self.assertEqual(os.path.getsize(f"{path}.1"), (1 << 20) - 10)
        self.assertLess(os.path.getsize(path), 100)

    def test_no_rotation(self) -> None:
        """By default the file grows without limit."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.truncate(200 << 20)
        self.parsed(f"--audit-log={path}").audit().record({"event": "start"})
        self.assertFalse(os.path.exists(f"{path}.1"))

    def test_wrong_values(self) -> None:
        """Values that are no numbers, or too large, are refused."""
        for word in ("--audit-log-maxsize=-1", "--audit-log-maxsize=1G", "--audit-log-maxbackup=0"):
            with self.assertRaises(SystemExit) as caught:
                self.parsed(word)
            self.assertIn("is not a number from", str(caught.exception.code))
