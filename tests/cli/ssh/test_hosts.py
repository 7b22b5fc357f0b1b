"""
Tests for ``twisted_exec.cli.ssh.hosts``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.ssh.hosts import ConsoleHost, console_host


class HostTests(SynchronousTestCase):
    """Host names of consoles."""

    def test_names(self) -> None:
        """The last label but one is the namespace, unless it is the only one."""
        for text, name, namespace in (
            ("demo-vm.console", "demo-vm", ""),
            ("web-1.prod.console", "web-1", "prod"),
            ("db.eu.prod.console", "db.eu", "prod"),
            ("web-1.lab", "web-1", ""),
        ):
            self.assertEqual(console_host(text), ConsoleHost(name, namespace))

    def test_hostile(self) -> None:
        """A name with other characters is refused, and shown without its control characters."""
        for text in (
            "console",
            ".console",
            "a..console",
            "-x.console",
            "a;touch x.console",
            "a'b.console",
            "$(id).console",
            "a\nb.console",
            "../a.console",
            "a/b.console",
            "A.console",
            "a.-b.console",
            "a.console\n",
            "x" * 300 + ".console",
        ):
            with self.assertRaises(ValueError) as caught:
                console_host(text)
            self.assertIn(" names no machine: ", str(caught.exception), text)
            self.assertLess(len(str(caught.exception)), 220)
