"""
Tests for ``docs/howto/backup.rst``.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from contextlib import redirect_stderr, redirect_stdout

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, machine
from tests.tiers import PROGRAMS
from twisted_exec.cli.main import main
from twisted_exec.storage.sqlite.store import SQLiteStorage

from . import pages

_COMMAND = re.compile(r"^ +\$ (.+)$", re.MULTILINE)
_ROOT_COMMAND = re.compile(r"^ +# (.+)$", re.MULTILINE)
_STORE, _BACKUPS = "/var/lib/twisted-exec", "/var/backups/twisted-exec"


class BackupPageTests(TestCase):
    """The commands of the page work as it says."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.store, self.backups = (os.path.abspath(self.mktemp()) for _ in range(2))
        os.mkdir(self.store)
        (install,) = self.commands("Back up SQLite", _ROOT_COMMAND)
        owner = install.index("-o")
        subprocess.run([*install[:owner], *install[owner + 2 :]], check=True)
        self.assertEqual(os.stat(self.backups).st_mode & 0o777, 0o700)
        self.path = os.path.join(self.store, "objects.db")

    def commands(self, title: str, kind: re.Pattern[str] = _COMMAND) -> list[list[str]]:
        """Return the commands of a section, with directories of the test."""
        text = pages.section(pages.page("howto/backup"), title)
        text = text.replace(_STORE, self.store).replace(_BACKUPS, self.backups)
        return [shlex.split(command) for command in kind.findall(text)]

    def run_command(self, words: list[str]) -> str:
        output, errors = io.StringIO(), io.StringIO()
        self.assertEqual(words[0], "twisted-exec")
        with redirect_stdout(output), redirect_stderr(errors):
            code = main(words[1:])
        self.assertEqual((code, errors.getvalue()), (0, ""))
        return output.getvalue()

    async def start(self) -> SQLiteStorage:
        storage = SQLiteStorage(self.path, reactor)
        storage.startService()
        self.addCleanup(storage.stopService)
        return storage

    async def test_back_up_and_restore(self) -> None:
        """The server runs during the backup, and has the same objects after the restore."""
        storage = await self.start()
        await storage.create(MACHINES, machine("a"))
        for command in self.commands("Back up SQLite"):
            self.assertIn("objects.db: 1 objects, version 1\n", self.run_command(command))
        await storage.create(MACHINES, machine("b"))
        stop, restore, start = self.commands("Restore SQLite")
        self.assertEqual([stop[:2], start[:2]], [["systemctl", "stop"], ["systemctl", "start"]])
        await storage.stopService()
        self.assertIn("objects.db: 1 objects, version 1000000002\n", self.run_command(restore))
        restored = await (await self.start()).list(MACHINES)
        self.assertEqual([obj["metadata"]["name"] for obj in restored.items], ["a"])

    async def test_loss(self) -> None:
        """What the page says for a loss makes the store usable."""
        storage = await self.start()
        await storage.create(MACHINES, machine("a"))
        await storage.stopService()
        os.remove(self.path)
        await (await self.another()).stopService()
        (command,) = self.commands("When the server reports a loss")
        self.run_command(command)
        self.assertEqual((await (await self.start()).list(MACHINES)).items, [])

    async def another(self) -> SQLiteStorage:
        """Put an empty database in the place of the store's."""
        other = os.path.abspath(self.mktemp())
        storage = SQLiteStorage(other, reactor)
        storage.startService()
        await storage.stopService()
        os.rename(other, self.path)
        return storage
