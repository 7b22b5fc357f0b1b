"""
Tests for :mod:`twisted_exec.cli.commands.man`.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.test_options import programs
from twisted_exec.cli.main import main


class ManTests(SynchronousTestCase):
    """Tests for ``twisted-exec man``."""

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = main(["man", *arguments])
        return code, stdout.getvalue(), stderr.getvalue()

    def page(self, name: str) -> str:
        code, page, err = self.run_main(name)
        self.assertEqual((code, err), (0, ""))
        return page.replace("\\-", "-")

    def test_every_option(self) -> None:
        """The page of each program has all options of the program and of its commands."""
        pages = {"kubectl console": self.page("kubectl-console")}
        for program, options in programs().items():
            name = program.split()[0] if program.startswith("twisted-exec") else program
            if name not in pages:
                pages[name] = self.page(name)
            missing = [option for option in options if option not in pages[name]]
            self.assertEqual(missing, [], program)
        self.assertIn("exec-runtime", pages)

    def test_format(self) -> None:
        """Only macros begin with a dot, and each page has the sections that users expect."""
        for name, section in (("twisted-exec", 1), ("kubectl-console", 1), ("exec-runtime", 8)):
            page = self.page(name)
            lines = page.splitlines()
            self.assertTrue(lines[0].startswith(f".TH {name.upper()} {section} "), lines[0])
            macros = {line.split()[0] for line in lines if line.startswith((".", "'"))}
            self.assertLessEqual(macros, {".TH", ".SH", ".SS", ".TP", ".PP", ".B"})
            for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
                self.assertIn(f".SH {title}", lines)

    def test_directory(self) -> None:
        """All pages are written where ``man`` looks for them."""
        directory = self.mktemp()
        code, out, _ = self.run_main("--directory", directory)
        self.assertEqual(code, 0)
        paths = out.splitlines()
        self.assertIn(os.path.join(directory, "man1", "kubectl-console.1"), paths)
        self.assertIn(os.path.join(directory, "man8", "exec-apiserver.8"), paths)
        self.assertTrue(all(map(os.path.exists, paths)))

    def test_unwritable(self) -> None:
        """A directory that cannot be written is an error of one line."""
        code, _, err = self.run_main("--directory", "/dev/null/man")
        self.assertEqual((code, err.count("\n")), (1, 1))
        self.assertIn("cannot write /dev/null/man", err)

    def test_no_page(self) -> None:
        """For an unknown page the message lists the pages."""
        code, out, err = self.run_main("nix")
        self.assertEqual((code, out), (1, ""))
        self.assertIn('there is no page "nix"; the pages are twisted-exec, kubectl-console', err)


class VersionTests(SynchronousTestCase):
    """``--version`` of the commands."""

    def test_version(self) -> None:
        """Both commands print name and version."""
        from twisted_exec import build
        from twisted_exec.cli.console.options import parse_options

        for run, name in ((main, "twisted-exec"), (parse_options, "kubectl console")):
            stdout = io.StringIO()
            with redirect_stdout(stdout), self.assertRaises(SystemExit) as caught:
                run(["--version"])
            self.assertEqual((caught.exception.code, stdout.getvalue()), (0, f"{name} {build()}\n"))
