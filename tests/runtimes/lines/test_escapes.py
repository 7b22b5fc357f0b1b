"""
Tests for :mod:`twisted_exec.runtimes.lines.escapes`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.lines.escapes import Escaper


def arrives(typed: bytes) -> tuple[bytes, bytes]:
    """Interpret keys as ssh(1) does (clientloop.c): input for the machine, and commands."""
    machine, commands = bytearray(), bytearray()
    pending, at_start = False, True
    for key in typed:
        if pending:
            pending = False
            if key != ord("~"):
                commands.append(key)
                continue
        elif at_start and key == ord("~"):
            pending = True
            continue
        at_start = key in b"\r\n"
        machine.append(key)
    return bytes(machine), bytes(commands)


class EscaperTests(SynchronousTestCase):
    """Tests for :class:`Escaper`."""

    def test_at_a_start(self) -> None:
        """The character is doubled where it would be a command, and only there."""
        escaper = Escaper()
        self.assertEqual(escaper.encode(b"~."), b"~~.")
        self.assertEqual(escaper.encode(b"~"), b"~")
        self.assertEqual(escaper.encode(b"x\r~~\n~"), b"x\r~~~\n~~")
        self.assertEqual(escaper.encode(b"\r"), b"\r")
        self.assertEqual(escaper.encode(b"~"), b"~~")

    def test_command(self) -> None:
        """A command is at the start of a line, which is inserted if necessary."""
        escaper = Escaper()
        self.assertEqual(escaper.command(b"B"), b"~B")
        self.assertEqual(escaper.command(b"B"), b"~B")
        escaper.encode(b"h")
        self.assertEqual(escaper.command(b"B"), b"\r~B")
        self.assertEqual(escaper.encode(b"~"), b"~~")

    @given(st.lists(st.one_of(st.none(), st.text("~\r\nx.B", min_size=1, max_size=6)), max_size=8))
    def test_as_ssh_reads_it(self, steps: list[str | None]) -> None:
        """Whatever is typed arrives, and nothing but BREAK is a command."""
        escaper, typed, expected, breaks = Escaper(), b"", b"", b""
        for step in steps:
            if step is None:
                keys = escaper.command(b"B")
                expected += keys.removesuffix(b"~B")
                breaks += b"B"
            else:
                keys = escaper.encode(step.encode())
                expected += step.encode()
            typed += keys
        self.assertEqual(arrives(typed), (expected, breaks))
