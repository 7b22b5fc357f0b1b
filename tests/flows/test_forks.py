"""Forked programs behave as started ones."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.tiers import PROGRAMS

from . import forks, programs

_LOOK = """\
import os, sys
with open(os.environ["SEEN"], "w") as file:
    print(sys.argv, sys.orig_argv, os.getcwd(), os.getppid(), os.getsid(0) == os.getpid(),
          sys.stdin.isatty(), sys.stdout.line_buffering, sorted(os.environ.items()), sys.path,
          __name__, sorted(os.listdir("/proc/self/fd")), file=file, sep="\\n")
"""


class ForkTests(TestCase):
    """A fork beside a real start of the same console script."""

    starts = PROGRAMS
    exact = True

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).resolve()
        self.directory.mkdir(parents=True)
        # A console script that prints what it sees, with a name that is forked.
        self.script = self.directory / "twistd"
        self.script.write_text(f"#!{sys.executable}\n{_LOOK}")
        self.script.chmod(0o755)
        self.patch(forks, "script_directory", lambda: str(self.directory))

    def seen(self, name: str) -> list[str]:
        return (self.directory / name).read_text().splitlines()

    async def test_pipes(self) -> None:
        """Arguments, environment, directory, parent and standard streams are the same."""
        for fork in (False, True):
            env = {"SEEN": str(self.directory / "seen")}
            argv = [str(self.script), "--option", "word"]
            program = programs.start(argv, env=env, cwd=tempfile.gettempdir(), fork=fork)
            self.assertEqual(await program.ended, 0, program.output)
            os.rename(self.directory / "seen", self.directory / f"seen-{fork}")
        self.assertEqual(self.seen("seen-True"), self.seen("seen-False"))

    async def test_terminal(self) -> None:
        """A terminal is the controlling terminal of a new session."""
        program = programs.terminal([str(self.script)], SEEN=str(self.directory / "seen"))
        await program.ended
        lines = str("PYTHONUNBUFFERED" not in os.environ)
        self.assertEqual(self.seen("seen")[4:7], ["True", "True", lines])

    def test_other_environment(self) -> None:
        """What libraries read when they are imported needs a real start."""
        argv = [str(self.script)]
        self.assertTrue(forks.can_fork(argv, os.environ))
        for name in ("PYTHONPATH", "PYTHONUNBUFFERED", "LC_ALL", "GRPC_TRACE"):
            self.assertFalse(forks.can_fork(argv, {**os.environ, name: "other"}), name)
        self.assertFalse(forks.can_fork(["/usr/bin/env"], os.environ))
