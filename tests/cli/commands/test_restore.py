"""
Tests for :mod:`twisted_exec.cli.commands.restore` and :mod:`twisted_exec.cli.commands.backup`.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, machine
from twisted_exec.cli.main import main
from twisted_exec.storage.sqlite.store import SQLiteStorage


class StoreCommandTests(TestCase):
    """``twisted-exec backup`` and ``twisted-exec restore``."""

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(arguments)
        return code, stdout.getvalue(), stderr.getvalue()

    async def test_commands(self) -> None:
        """Each command prints what it made, or one line with the problem."""
        path, file = os.path.abspath(self.mktemp()), os.path.abspath(self.mktemp())
        storage = SQLiteStorage(path, reactor)
        storage.startService()
        self.addCleanup(storage.stopService)
        await storage.create(MACHINES, machine("a"))
        made = self.run_main("backup", path, file)
        self.assertEqual(made, (0, f"{file}: 1 objects, version 1\n", ""))
        code, _, problem = self.run_main("backup", path, file)
        self.assertEqual(code, 1)
        self.assertEqual(
            problem, f"twisted-exec backup: {file} exists already: give --force to replace it\n"
        )
        code, _, problem = self.run_main("restore", file, path, "--force")
        self.assertEqual(code, 1)
        self.assertIn("is in use by another server: stop it", problem)
        await storage.stopService()
        code, made_, _ = self.run_main("restore", file, path, "--force")
        self.assertEqual((code, made_), (0, f"{path}: 1 objects, version 1000000001\n"))

    def test_one_store(self) -> None:
        """The store to restore is one file or one etcd."""
        for arguments in ((), ("objects.db", "--storage=etcd:https://a")):
            code, out, problem = self.run_main("restore", "backup.db", *arguments)
            self.assertEqual((code, out), (1, ""))
            self.assertEqual(problem, "twisted-exec restore: give either DATABASE or --storage\n")
