"""
Tests for ``twisted_exec.cli.ssh.config``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import re
import shlex
import shutil
import stat
from fnmatch import fnmatch
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from twisted_exec.cli.console.main import main
from twisted_exec.cli.ssh.config import ssh_config

from .support import SSHCase

RECORDER = """\
#!/bin/sh
for each; do printf '%s\\n' "$each"; done >> "{path}"
"""
HOSTILE = (
    "x;touch$IFS'marker'",
    "$(touch${IFS}marker)",
    "`touch${IFS}marker`",
    "x|touch${IFS}marker",
    "x&touch${IFS}marker&",
    "x>marker",
    'x";touch${IFS}marker;"',
    "x(touch${IFS}marker)",
    "x\ntouch${IFS}marker\n",
    "*",
    "~root",
    "!!",
    "#x",
)
"""Beginnings of host names; none has what ends the quotes of a shell, except where a test adds that."""


def options(**more: str) -> argparse.Namespace:
    return argparse.Namespace(**{"kubeconfig": None, "context": None, "namespace": None, **more})


def proxy_command(text: str) -> str:
    """Return the ``ProxyCommand`` of a block."""
    [line] = [each.strip() for each in text.splitlines() if "ProxyCommand" in each]
    return line.removeprefix("ProxyCommand ")


class TextTests(SynchronousTestCase):
    """The printed block."""

    def test_words(self) -> None:
        """The program gets its arguments as they are, whatever characters they have."""
        given = options(kubeconfig="/a b/100%/it's", context="$(x)`y`", namespace="prod")
        text = ssh_config("/o p/twisted-exec", given, "/state/known_hosts")
        words = shlex.split(proxy_command(text).replace("%h", "vm.console").replace("%%", "%"))
        self.assertEqual(words[:3], ["/o p/twisted-exec", "ssh", "proxy"])
        self.assertEqual(words[3:7], ["--kubeconfig", "/a b/100%/it's", "--context", "$(x)`y`"])
        self.assertEqual(words[7:], ["--namespace", "prod", "--", "vm.console"])

    def test_absolute(self) -> None:
        """The path of the kubeconfig does not depend on where ssh is started."""
        text = ssh_config("twisted-exec", options(kubeconfig="kubeconfig"), "/known_hosts")
        self.assertIn(os.path.abspath("kubeconfig"), proxy_command(text))

    def test_unusable(self) -> None:
        """A value that would end the line, or the quotes of a path, is refused."""
        for given, known_hosts in (
            (options(context="a\nHost *"), "/known_hosts"),
            (options(), '/a"b/known_hosts'),
            (options(), "/a${HOME}/known_hosts"),
            (options(), "/a\nb/known_hosts"),
        ):
            with self.assertRaises(ValueError):
                ssh_config("twisted-exec", given, known_hosts)

    def test_quotes(self) -> None:
        """The block is not for names with what ends the quotes."""
        text = ssh_config("twisted-exec", options(), "/known_hosts")
        [line] = [each for each in text.splitlines() if each.startswith("Host ")]
        _, ours, *others = [each.strip('"') for each in line.split(" ")]
        for name in ("a'b.console", "a\\b.console", "'.console", "a.b\\.console", "a\\\\.console"):
            self.assertTrue(fnmatch(name, ours))
            self.assertTrue(any(_matches(name, each.removeprefix("!")) for each in others), name)


def _matches(name: str, pattern: str) -> bool:
    """Match as ssh, for which only ``*`` is special here."""
    parts = [re.escape(each) for each in pattern.split("*")]
    return re.fullmatch(".*".join(parts), name) is not None


class CommandTests(SynchronousTestCase):
    """``kubectl console --ssh-config``."""

    skip = needs.ssh()

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, standard output and standard error."""
        self.patch(os, "environ", {**os.environ, "XDG_STATE_HOME": os.path.abspath("state")})
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.addCleanup(gc.enable)  # a client goes on without it until its console is open
                code = main(["--ssh-config", *arguments])
            except SystemExit as ended:
                code = int(ended.code or 0)
        return code, out.getvalue(), err.getvalue()

    def test_prints(self) -> None:
        """It prints the block, and keeps the host key that the block names."""
        code, text, err = self.run_main("--context", "lab", "-n", "prod")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("--context lab --namespace prod -- '%h'", proxy_command(text))
        path = Path(os.path.abspath("state/twisted-exec/ssh/known_hosts"))
        self.assertIn(f'UserKnownHostsFile "{path}"', text)
        self.assertTrue(path.read_bytes().startswith(b"twisted-exec-console ssh-ed25519 "))

    def test_other_options(self) -> None:
        """Options of a session, and credentials, do not go with it."""
        for arguments, name in (
            (("vm",), "NAME"),
            (("--force",), "--force"),
            (("--token", "secret"), "--token"),
            (("-l", "app=web"), "--selector"),
            (("--run", "true"), "--run"),
        ):
            code, text, err = self.run_main(*arguments)
            self.assertEqual((code != 0, text), (True, ""), arguments)
            self.assertIn(f"{name} does not go with --ssh-config", err)
            self.assertNotIn("secret", err)


class ShellTests(SSHCase):
    """ssh gives the host's name to a shell."""

    def setUp(self) -> None:
        super().setUp()
        self.seen = self.state / "seen"
        self.program = self.state / "program"
        self.program.write_text(RECORDER.format(path=self.seen))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        # Nothing else is asked for the address of a name that the block does not match.
        more = "Host *\n    ProxyCommand /bin/false\n"
        self.config = self.write_config(program=str(self.program), more=more)

    def shells(self) -> list[str]:
        found = (shutil.which(name) for name in ("sh", "dash", "bash", "zsh", "fish", "busybox"))
        return [each for each in found if each and not each.endswith("busybox")]

    async def started_with(self, *arguments: str, shell: str) -> list[str]:
        """Run ssh; return the arguments of the program, none if it was not started."""
        self.seen.unlink(missing_ok=True)
        process = self.ssh(*arguments, config=self.config, SHELL=shell)
        self.assertEqual(await process.ended, 255)
        self.assertFalse(os.path.exists("marker"), arguments)
        return self.seen.read_text().splitlines() if self.seen.exists() else []

    async def test_typed(self) -> None:
        """A hostile name on the command line does not run: the program gets it as it is, or nothing does."""
        for shell in self.shells():
            for begin in HOSTILE:
                for name in (f"{begin}.console", f"'{begin}'.console", f"\\'{begin}.console"):
                    arguments = await self.started_with("--", name, shell=shell)
                    if arguments:
                        self.assertNotIn("'", name)
                        self.assertEqual("\n".join(arguments).rpartition("--\n")[2], name.lower())

    async def test_unchecked(self) -> None:
        """So it is where ssh looks at no character: in its option HostName, as ssh before 9.6 does everywhere."""
        for shell in self.shells():
            for begin in HOSTILE:
                if begin.startswith("#") or set("'\n\"").intersection(begin):
                    continue  # it ends the quotes, or the option
                name = f"{begin}.console"
                told = await self.started_with("-o", f"HostName={name}", "vm.console", shell=shell)
                self.assertEqual(told[-1], name.lower())

    async def test_patterns(self) -> None:
        """ssh reads the patterns as they are meant, and the block is for names of machines."""
        for name, is_ours in (
            ("a.b.console", True),
            ("console", False),
            ("a.console.example", False),
        ):
            process = self.ssh("-G", name, config=self.config)
            self.assertEqual(await process.ended, 0, process.stderr)
            self.assertIs(b" ssh proxy --kubeconfig " in process.stdout, is_ours)
