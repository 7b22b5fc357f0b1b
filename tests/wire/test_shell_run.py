"""Tests for :mod:`twisted_exec.wire.shell_run`; ``tests.cli.console.test_shell_run`` runs the lines in real shells."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.shell_run import (
    MOST_COMMAND_BYTES,
    command_lines,
    mark,
    probe,
    probe_mark,
)

NONCE = "1a2b3c4d"
READS = b';read -r _r;eval "$_r"'


def assigned(lines: list[bytes], name: str) -> bytes:
    """Return what the lines assign to a variable, as a shell would."""
    value = b""
    for line in lines:
        pattern = rb"""%s=(?:\$%s)?'((?:[^']|'\\'')*)'(?:;|$)|%s=(?:\$\{%s%%x\})?\$\(printf '([^']*)'x?\)"""
        for quoted, octal in re.findall(pattern % ((name.encode(),) * 4), line):
            value += quoted.replace(rb"'\''", b"'")
            numbers = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), octal)
            value += numbers.replace(b"%%", b"%")
    return value


class LinesTests(SynchronousTestCase):
    """What is typed for a command."""

    @given(
        st.text(st.characters(max_codepoint=0x2FF), max_size=3000)
        | st.text("a'\\%\" $", max_size=3000)
    )
    def test_both_copies(self, command: str) -> None:
        """Each copy is the command, without the newlines at its end; no line is long or has a key of a terminal."""
        try:
            lines = command_lines(command, NONCE)
        except ValueError:
            return
        *copies, last = lines
        text = command.rstrip("\n").encode("utf-8", "surrogateescape")
        self.assertEqual([assigned(lines, "_te"), assigned(lines, "_tf")], [text, text])
        for line in lines:
            self.assertLess(len(line), 1024)
            self.assertRegex(line, rb"\A [ -~]*\Z")
        self.assertTrue(all(each.endswith(READS) for each in copies))
        self.assertIn(b'if [ "$_te/', last)

    def test_length(self) -> None:
        """The copies are compared with the length, too, where all shells count the same."""
        (line,) = command_lines("uptime", NONCE)
        self.assertIn(b'[ "$_te/${#_te}" = "$_tf/6" ]', line)
        (line,) = command_lines("\u00e9", NONCE)
        self.assertIn(b'[ "$_te/" = "$_tf/" ]', line)

    def test_too_long(self) -> None:
        """A command that is too long is refused with the limit."""
        command_lines("x" * MOST_COMMAND_BYTES, NONCE)
        with self.assertRaisesRegex(ValueError, f"too long: .* more than {MOST_COMMAND_BYTES}"):
            command_lines("x" * (MOST_COMMAND_BYTES + 1), NONCE)

    def test_marks(self) -> None:
        """The shell makes the Escape characters: what is typed has no mark."""
        self.assertEqual(probe_mark(NONCE), mark(b"R1a2b3c4d:"))
        for typed in (probe(NONCE), *command_lines("true", NONCE)):
            self.assertNotIn(b"\x1b", typed)
        self.assertTrue(probe(NONCE).endswith(READS))
