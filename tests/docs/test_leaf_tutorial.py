"""
Tests for ``docs/tutorial/leaf-start.sh``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

SCRIPT = Path(__file__).parents[2] / "docs" / "tutorial" / "leaf-start.sh"

SERVER = f"""#!{sys.executable}
import os, signal
os.write(1, b"%d\\n" % os.getpid())  # at once: both servers have the same pipe
signal.pause()
"""
"""In place of ``twistd``: it prints its process id and runs until a signal."""


class LeafStartTests(SynchronousTestCase):
    """Start both API servers, and stop them with Ctrl-C."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        for name, text in (("twistd", SERVER), ("twisted-exec", "#!/bin/sh\n")):
            path = self.directory / name
            path.write_text(text)
            path.chmod(0o755)

    def test_ctrl_c(self) -> None:
        """Ctrl-C ends the script and both servers."""
        path = f"{self.directory}:{os.environ['PATH']}"
        script = subprocess.Popen(
            ["sh", str(SCRIPT)],
            cwd=self.directory,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a process group, as a terminal signals it
        )
        self.addCleanup(script.wait)
        self.addCleanup(_kill_group, script.pid)
        assert script.stdout is not None
        for _ in range(2):
            int(script.stdout.readline())
        os.killpg(script.pid, signal.SIGINT)
        # The output ends when no server has the pipe any more.
        self.assertEqual(script.communicate(timeout=600), ("", None))
        self.assertEqual(script.returncode, 130)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
