"""
Tests for :mod:`twisted_exec.cli.messages`.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import termios
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.test_options import programs
from twisted_exec.cli import commands, explanations
from twisted_exec.cli.commands.registry import COMMANDS
from twisted_exec.cli.messages import age, for_stdout, one_line, rows, say


class AgeTests(SynchronousTestCase):
    """Tests for :func:`age`."""

    def test_whole_seconds(self) -> None:
        """Ages have no fractions of a second."""
        for seconds, text in (
            (0.9, "0 s"),
            (3.99, "3 s"),
            (125, "2 min 5 s"),
            (4320, "1 h 12 min"),
        ):
            self.assertEqual(age(seconds), text)


class OneLineTests(SynchronousTestCase):
    """Tests for :func:`one_line`."""

    def test_safe_for_a_terminal(self) -> None:
        """A server cannot move the cursor or add lines."""
        self.assertEqual(one_line("größe\r\n\x1b[2J ok\x07"), "größe ?[2J ok?")


class RowsTests(SynchronousTestCase):
    """Tests for :func:`rows`."""

    def test_commands(self) -> None:
        """A command that a user may copy is never broken, wherever it is."""
        use = "  kubectl console --reason TICKET -n lab vm"
        for line, shown in (
            (f"it needs a reason: use {use[2:]}", ["it needs a reason: use", use]),
            (f"it needs one: request it with {use[2:]}", ["it needs one: request it with", use]),
            (use, [use]),
            (
                f"wait: or with {use[2:]}, or twisted-exec request approve -n lab x; then go on",
                [
                    "wait: or with",
                    use,
                    "  or",
                    "  twisted-exec request approve -n lab x",
                    "  then go on",
                ],
            ),
            (
                "ask: kubectl patch a --user='b; c, d'",
                ["ask:", "  kubectl patch a --user='b; c, d'"],
            ),
            (
                f'ConsolePolicy "a" is closed; ConsolePolicy "b" needs it: use {use[2:]}; ConsolePolicy "c" is not',
                [
                    'ConsolePolicy "a" is closed',
                    'ConsolePolicy "b" needs it:',
                    "  use",
                    use,
                    'ConsolePolicy "c" is not',
                ],
            ),
        ):
            self.assertEqual(rows(line, 30), shown)


class SayTests(SynchronousTestCase):
    """Messages on standard error."""

    def test_safe(self) -> None:
        """A message is one line without control characters, whatever a server has sent."""
        printed = io.StringIO()
        with redirect_stderr(printed):
            say("space lab-1: \x1b]0;title\x07a\r\nb | c\x9b2J\u202e")
        self.assertEqual(printed.getvalue(), "space lab-1: ?]0;title?a b | c?2J?\n")

    def test_terminal(self) -> None:
        """A terminal gets it broken at blanks, as wide as it is; a command of kubectl stays whole."""
        user, terminal = os.openpty()
        self.addCleanup(os.close, user)
        termios.tcsetwinsize(terminal, (24, 20))
        with open(terminal, "w") as stream, redirect_stderr(stream):
            say("one two three four five six")
            say("ask somebody for it: kubectl create something --for=you")
            say("ask with kubectl console --reason TICKET vm, or kubectl exec -it vm; or wait")
            print("end", file=sys.stderr)
        with open(user, closefd=False) as shown:
            rows = list(iter(lambda: shown.readline().rstrip(), "end"))
        self.assertEqual(rows[:2], ["one two three four", "  five six"])
        self.assertEqual(
            rows[2:4], ["ask somebody for it:", "  kubectl create something --for=you"]
        )
        commands = ["  kubectl console --reason TICKET vm", "  or", "  kubectl exec -it vm"]
        self.assertEqual(rows[4:], ["ask with", *commands, "  or wait"])

    def test_output(self) -> None:
        """A sentence on standard output is broken for a terminal, and whole for other programs."""
        user, terminal = os.openpty()
        self.addCleanup(os.close, user)
        termios.tcsetwinsize(terminal, (24, 20))
        with open(terminal, "w") as stream, redirect_stdout(stream):
            self.assertEqual(
                for_stdout("one two three four five\x1b"), "one two three four\n  five?"
            )
        with redirect_stdout(io.StringIO()):
            self.assertEqual(for_stdout("one two three four five"), "one two three four five")


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_OTHER_PROGRAM = re.compile(r"kubectl|poollet|API server|runtime|exec-|twisted-exec \w")


def _texts(module: Path) -> Iterator[str]:
    """Yield the texts of a module that have several words, without docstrings."""
    tree = ast.parse(module.read_text())
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            texts = (each.value for each in node.values if isinstance(each, ast.Constant))
            yield " ".join(map(str, texts))
        elif isinstance(node, ast.Constant) and node not in parts and " " in str(node.value):
            yield str(node.value)


class OptionsTests(SynchronousTestCase):
    """Messages of a command name options that it has."""

    def absent(self, module: Path, options: set[str]) -> list[str]:
        """Return the options that texts of a module name, but no program has that the text is about."""
        return [
            option
            for text in _texts(module)
            if not _OTHER_PROGRAM.search(text)
            for option in _OPTION.findall(text)
            if option not in options | {"--help"}
        ]

    def test_own(self) -> None:
        """An option that a module of a command names belongs to it, or the text names the program."""
        package = Path(commands.__file__).parent
        for command in COMMANDS:
            prefix = f"twisted-exec {command}"
            options = {
                option
                for name, its_options in programs().items()
                if name == prefix or name.startswith(f"{prefix} ")
                for option in its_options
            }
            self.assertEqual(self.absent(package / f"{command}.py", options), [], command)
        console = set(programs()["kubectl console"])
        for module in (package.parent / "console").glob("*.py"):
            self.assertEqual(self.absent(module, console), [], module.name)

    def test_shared(self) -> None:
        """Options in remedies for a cluster exist in all commands that have a kubeconfig and a context."""
        shared = Path(explanations.__file__)
        for name, options in programs().items():
            is_command = name.startswith(("kubectl ", "twisted-exec "))
            if is_command and {"--kubeconfig", "--context"} <= set(options):
                self.assertEqual(self.absent(shared, {"--read-only", *options}), [], name)
