"""
The client on other systems, and without the libraries of the servers.
"""

from __future__ import annotations

import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.chain import ChainTestCase
from tests.cli.console.test_program_process import COMMAND, TerminalCase
from tests.cli.foreign import MACOS, WINDOWS
from tests.flows import programs
from tests.tiers import PROGRAMS
from twisted_exec.testing.console import EchoAttachment

TWISTED_EXEC = "import sys; from twisted_exec.cli.main import main; sys.exit(main())"
TWISTD = "from twisted.scripts.twistd import run; run()"


class ConsoleTests(TerminalCase):
    """``kubectl console`` on macOS."""

    starts = PROGRAMS

    async def test_pipe(self) -> None:
        """Piped input and output work."""
        self.serve(EchoAttachment(b"up "))
        process = self.start(command=MACOS + COMMAND)
        process.type(b"question")
        process.transport.closeStdin()
        await self.ends_with(process, 0)
        self.assertEqual(process.stdout, b"up question")

    async def test_terminal(self) -> None:
        """At a terminal each key is sent; the terminal is restored, and blocks as before."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal(command=MACOS + COMMAND)
        await process.until(rb"Connected to vm\. .*\r\n\$ ")
        # The program has opened the terminal again instead of changing the shell's descriptor.
        self.assertTrue(os.get_blocking(self.near))
        process.type(b"a\x03\r")
        await process.until(rb"a\x03\r")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertEqual(attachment.received, b"a\x03\r")


class ServerTests(ChainTestCase):
    """``twisted-exec`` with an API server."""

    starts = PROGRAMS

    async def run_command(self, *words: str) -> tuple[int, str]:
        argv = [sys.executable, "-c", MACOS + TWISTED_EXEC, *words]
        program = programs.start([*argv, "--kubeconfig", self.kubeconfig("user-admin")])
        code = await program.ended
        return code, program.output.decode()

    async def test_commands(self) -> None:
        """Commands that use an API server work."""
        code, out = await self.run_command("doctor")
        self.assertEqual(code, 0, out)
        self.assertTrue(out.endswith("no problem found, 1 check skipped\n"), out)
        code, out = await self.run_command("token", "list")
        self.assertEqual(code, 0, out)
        self.assertIn("found", out)  # no token


class LocalTests(SynchronousTestCase):
    """Commands without a server."""

    starts = PROGRAMS

    def run_python(self, code: str, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def test_macos(self) -> None:
        """Certificates, completion and help need neither Linux nor grpcio."""
        directory = os.path.abspath(self.mktemp())
        for words in (
            ("pki", "init", directory),
            ("completion", "zsh"),
            ("man", "kubectl-console"),
            ("--help",),
        ):
            code, out, err = self.run_python(MACOS + TWISTED_EXEC, *words)
            self.assertEqual((code, err), (0, ""), words)
            self.assertTrue(out)

    def test_missing_library(self) -> None:
        """A command or a server that needs grpcio says how to install it."""
        remedy = f"needs grpcio: {sys.executable} -m pip install grpcio protobuf"
        words = ("iri", "version", "--address", "unix:///nix")
        code, out, err = self.run_python(MACOS + TWISTED_EXEC, *words)
        self.assertEqual((code, out, err), (1, "", f"twisted-exec iri: {remedy}\n"))
        code, out, err = self.run_python(MACOS + TWISTD, "-n", "--pidfile=", "exec-poollet")
        self.assertEqual((code, err), (1, f"exec-poollet: {remedy}\n"))
        directory = os.path.abspath(self.mktemp())
        code, out, err = self.run_python(MACOS + TWISTED_EXEC, "man", "--directory", directory)
        self.assertEqual(code, 0)
        self.assertIn("kubectl-console.1\n", out)
        self.assertIn(f"twisted-exec man: no page for exec-poollet: exec-poollet: {remedy}\n", err)

    def test_archive(self) -> None:
        """The self-contained archive has no pip, so it says what to install instead."""
        words = ("iri", "version", "--address", "unix:///nix")
        frozen = "import sys; sys.frozen = True\n"
        code, _, err = self.run_python(frozen + MACOS + TWISTED_EXEC, *words)
        self.assertEqual(code, 1)
        self.assertRegex(
            err, r"^twisted-exec iri: needs grpcio, .*: install twisted-exec with pip\n$"
        )

    def test_missing_emulator(self) -> None:
        """So does a picture, which needs pyavt."""
        file, result = (os.path.abspath(self.mktemp()) for _ in range(2))
        with open(file, "wb"):
            pass
        words = ("recording", "export", "--svg", file, result)
        without = "import sys; sys.modules['avt'] = None\n"
        for frozen, remedy in (
            ("", f"needs pyavt: {sys.executable} -m pip install pyavt"),
            (
                "sys.frozen = True\n",
                "needs pyavt, which the self-contained archive does not have: install twisted-exec with pip",
            ),
        ):
            said = self.run_python(without + frozen + TWISTED_EXEC, *words)
            self.assertEqual(said, (1, "", f"twisted-exec recording export: {remedy}\n"))

    def test_windows(self) -> None:
        """On Windows the commands say what to use instead."""
        for module in ("main", "console.main", "commands.completion"):
            code, out, err = self.run_python(f"{WINDOWS}import twisted_exec.cli.{module}")
            self.assertEqual((code, out, err.count("\n")), (1, "", 1))
            self.assertIn("Windows", err)
            self.assertIn("WSL", err)
            self.assertIn("kubectl attach -it", err)
