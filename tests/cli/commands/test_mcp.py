"""Tests for ``twisted-exec mcp``."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser


class CommandTests(SynchronousTestCase):
    """The command line."""

    def run_command(self, *words: str) -> tuple[int, str]:
        """Return the exit code and the message of a command that serves nobody."""
        options = make_parser().parse_args(["mcp", *words])
        message = io.StringIO()
        with redirect_stderr(message):
            code = options.run(options)
        return code, message.getvalue()

    def test_by_hand(self) -> None:
        """A person who types the command learns whose command it is."""
        self.patch(os, "isatty", lambda descriptor: descriptor == 0)
        code, message = self.run_command()
        self.assertEqual(code, 1)
        self.assertIn("an agent's program runs this command", message)

    def test_no_kubeconfig(self) -> None:
        """A kubeconfig that does not exist is named."""
        self.patch(os, "isatty", lambda descriptor: False)
        code, message = self.run_command("--kubeconfig=none.yaml")
        self.assertEqual(code, 1)
        self.assertIn("none.yaml", message)
