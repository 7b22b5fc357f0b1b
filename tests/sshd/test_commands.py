"""
Tests for :mod:`twisted_exec.sshd.commands`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.logs import LogOptions
from twisted_exec.sshd.commands import (
    MOST_CHARACTERS,
    Help,
    Listing,
    Log,
    Power,
    Screen,
    parse_command,
)
from twisted_exec.sshd.targets import Target


class CommandTests(SynchronousTestCase):
    """What users can ask for beside consoles."""

    def test_commands(self) -> None:
        """Each command has its arguments."""
        for text, command in (
            ("list", Listing(None)),
            (" list  lab ", Listing(Target("", "lab"))),
            ("list site-a/lab", Listing(Target("", "lab", "site-a"))),
            ("screen", Screen()),
            ("power on", Power("On")),
            ("power off", Power("Off")),
            ("log", Log(LogOptions(plain=True, frames=True))),
            ("log -f", Log(LogOptions(follow=True, plain=True, frames=True))),
            (
                "log --previous --tail 50",
                Log(LogOptions(boot=-1, tail_lines=50, plain=True, frames=True)),
            ),
            ("log --no-plain", Log(LogOptions(frames=True))),
        ):
            self.assertEqual(parse_command(text), command, text)

    def test_of_consoles(self) -> None:
        """Other words are for the console, which knows which of them exist."""
        for text in (None, "", "run list", "force", "lists", "LIST", "log;id", "\0list"):
            self.assertIsNone(parse_command(text), text)

    def test_mistakes(self) -> None:
        """Each mistake has a message of one line."""
        for text, why in (
            ("list a b", "list has at most one argument"),
            ("list ../x", "is no NAMESPACE"),
            ("screen --svg /tmp/x", "screen has no arguments"),
            ("power", "power has one argument: on or off"),
            ("power On", "power has one argument"),
            ("power on off", "power has one argument"),
            ("log --tail", "log: argument --tail: expected one argument"),
            ("log --tail -1", "is not a number of lines|expected one argument"),
            ("log --tail x", '"x" is not a number of lines'),
            ("log --kubeconfig=/etc/passwd", "unrecognized arguments: --kubeconfig"),
            ("log --grep x", "unrecognized arguments: --grep"),
            ("log other-machine", "unrecognized arguments: other-machine"),
            ("log --boot 0 --previous", "not allowed with"),
            ("log --between 2h 3h", "the second time of --between is before the first"),
            ("log '", "log: no closing quotation"),
            ("log '\x1b[2J'", "has a control character"),
            ("log " + "x" * MOST_CHARACTERS, "unrecognized arguments: x"),
            ("log x" + "x" * MOST_CHARACTERS, "more than 4096 characters"),
        ):
            with self.assertRaisesRegex(ValueError, why) as caught:
                parse_command(text)
            message = str(caught.exception)
            self.assertTrue(message.isprintable() and len(message) < 500, message)

    def test_help(self) -> None:
        """``log --help`` explains the options."""
        command = parse_command("log --help")
        assert isinstance(command, Help)
        self.assertIn("--tail LINES", command.text)
