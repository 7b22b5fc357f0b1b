"""
Tests for :mod:`twisted_exec.cli.start`: Ctrl-C at many moments of a command, in processes of their own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from tests.heard import hear_signals

_INTERRUPTED = """
import signal, sys
from twisted_exec.cli.start import {entry}

class Finder:
    left = {imports}

    def find_spec(self, *_):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
if {imports} == 0:
    import atexit
    atexit.register(signal.raise_signal, signal.SIGINT)
sys.exit({entry}())
"""
"""A command that Ctrl-C interrupts at one of its imports; at import 0, when it has ended."""

_CONSOLE = ("x", "--server", "http://127.0.0.1:1", "--kubeconfig", "/dev/null")


_ENTRY = "import sys; from twisted_exec.cli.start import {0}; sys.exit({0}())"
_REQUEST = """
import sys
from twisted_exec.cli.runner import run_in_reactor

async def write(reactor):
    sys.stdout.buffer.write(b"output")
    sys.stdout.buffer.flush()

sys.exit(run_in_reactor("logs", write))
"""


class FullTests(SynchronousTestCase):
    """A disk that is full."""

    def test_full(self) -> None:
        """A command says in one line that its output cannot be written."""
        for program, words, name in (
            (_ENTRY.format("twisted_exec"), ("man",), "twisted-exec"),
            (_ENTRY.format("twisted_exec"), ("--help",), "twisted-exec"),
            (_ENTRY.format("kubectl_console"), ("--help",), "kubectl console"),
            (_REQUEST, (), "twisted-exec logs"),
        ):
            with open("/dev/full", "wb") as full:
                done = subprocess.run(
                    [sys.executable, "-c", program, *words],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    timeout=600,
                    check=False,
                )
            line = f"{name}: cannot write output: No space left on device\n"
            self.assertEqual((done.returncode, done.stderr.decode()), (1, line), words)


class InterruptTests(SynchronousTestCase):
    """Ctrl-C prints no traceback at any moment."""

    def setUp(self) -> None:
        hear_signals(self)

    def interrupted(self, entry: str, imports: int, words: Sequence[str]) -> int:
        """The exit code."""
        program = _INTERRUPTED.format(entry=entry, imports=imports)
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, timeout=600, check=False
        )
        self.assertNotIn(b"Traceback", done.stderr, (entry, imports))
        self.assertNotIn(b"KeyboardInterrupt", done.stderr, (entry, imports))
        return done.returncode

    def test_imports(self) -> None:
        """A command ends by the signal, as the shell expects."""
        for entry, words in (
            ("kubectl_console", _CONSOLE),
            ("twisted_exec", ("logs", *_CONSOLE)),
            ("kubectl_complete_console", ("",)),
        ):
            for imports in (1, 30, 100):
                self.assertIn(
                    self.interrupted(entry, imports, words), (-signal.SIGINT, 130), (entry, imports)
                )

    def test_ended(self) -> None:
        """So does a command that has done its work."""
        for entry in ("kubectl_console", "twisted_exec"):
            self.assertEqual(self.interrupted(entry, 0, ("--version",)), -signal.SIGINT, entry)

    def test_ignored(self) -> None:
        """A command that may not be interrupted, such as a background job of a plain shell, goes on."""
        program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        program += _INTERRUPTED.format(entry="twisted_exec", imports=30)
        argv = [sys.executable, "-c", program, "--version"]
        self.assertEqual(
            subprocess.run(argv, capture_output=True, timeout=600, check=False).returncode, 0
        )
