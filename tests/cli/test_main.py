"""
Tests for :mod:`twisted_exec.cli.main`.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.main import main


class MainTests(SynchronousTestCase):
    """Tests for :func:`main`."""

    def run_main(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """Exit code, standard output and standard error."""
        stdout, stderr = io.StringIO(), io.StringIO()
        code: int | str | None
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                code = main(arguments)
            except SystemExit as exit:
                code = exit.code
        return code, stdout.getvalue(), stderr.getvalue()

    def test_pki(self) -> None:
        """A command prints the files that it made."""
        directory = os.path.join(self.mktemp(), "pki")
        code, stdout, stderr = self.run_main("pki", "init", directory)
        self.assertEqual((code, stderr), (0, ""))
        self.assertIn(os.path.join(directory, "ca.crt"), stdout)

    def test_mistakes(self) -> None:
        """A mistake is one line on standard error, and exit code 1."""
        for arguments in ([], ["pki"], ["frob"], ["pki", "user", "nowhere", "--user", "ann"]):
            code, stdout, stderr = self.run_main(*arguments)
            self.assertEqual((code, stdout), (1, ""), arguments)
            self.assertEqual(len(stderr.splitlines()), 1, stderr)

    def test_codes_of_grep(self) -> None:
        """Only with --grep errors of logs have a code of their own, because 1 says that no line matched."""
        self.assertEqual(self.run_main("logs", "vm", "--boot", "x")[0], 1)
        self.assertEqual(self.run_main("logs", "vm", "--grep=a", "--boot", "x")[0], 2)
        self.assertEqual(self.run_main("screen", "vm", "--at", "yesterday")[0], 1)

    def test_unknown_arguments(self) -> None:
        """An unknown argument names the help of its command."""
        told = "twisted-exec logs: unrecognized arguments: --frob; see twisted-exec logs --help"
        self.assertEqual(self.run_main("logs", "vm", "--frob"), (1, "", f"{told}\n"))
        told = told.replace("frob; see", "sinse=1h; did you mean --since? See")
        self.assertEqual(self.run_main("logs", "vm", "--sinse=1h"), (1, "", f"{told}\n"))
        told = told.replace("--sinse=1h", "--tial 5").replace("--since?", "--tail?")
        self.assertEqual(self.run_main("logs", "vm", "--tial", "5"), (1, "", f"{told}\n"))

    def test_kind_and_name(self) -> None:
        """A user who types kind and name as two words reads how both are one."""
        told = "twisted-exec logs: unrecognized arguments: vm; did you mean machine/vm? See twisted-exec logs --help"
        self.assertEqual(self.run_main("logs", "machine", "vm"), (1, "", f"{told}\n"))

    def test_unknown_commands(self) -> None:
        """The message for a misspelled command names the command that was meant, or kubectl console."""
        for words, told in (
            (["loogs"], 'twisted-exec: there is no command "loogs"; did you mean logs? See'),
            (
                ["pki", "usr"],
                'twisted-exec pki: there is no command "usr"; did you mean user? See',
            ),
            (["console", "vm"], 'no command "console"; kubectl console NAME opens a console; see'),
            (["conosle"], 'no command "conosle"; kubectl console NAME opens a console; see'),
            (["a'b (c"], """there is no command "a'b (c"; there are pki, iri, """),
            (["space", "list"], "there are kubeconfig, "),
        ):
            code, _, stderr = self.run_main(*words)
            self.assertEqual(code, 1)
            self.assertIn(told, stderr)

    def test_help(self) -> None:
        """Help lists the commands, and says what the exit codes mean."""
        code, stdout, _ = self.run_main("--help")
        self.assertEqual(code, 0)
        self.assertIn("Exit code: ", stdout)
        self.assertIn("pki", stdout)
        self.assertIn("iri", stdout)
