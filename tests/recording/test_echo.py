"""
Tests for :mod:`twisted_exec.recording.echo`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.recording.echo import ECHO_SECONDS, EchoedInput

letters = st.text("ab*", max_size=6).map(str.encode)


class EchoTests(SynchronousTestCase):
    """Tests for :class:`EchoedInput`."""

    def setUp(self) -> None:
        self.echo = EchoedInput()

    def typed(self, data: bytes, now: float = 0.0, session: str = "s") -> None:
        self.echo.typed(session, data, now)

    def printed(self, data: bytes, now: float = 0.0) -> bytes:
        return b"".join(typed for _, typed in self.echo.printed(data, now))

    def test_echoes(self) -> None:
        """Echoes of terminals are recognized, whole or in pieces."""
        for typed, pieces in (
            (b"ls\r", [b"l", b"s", b"\r\n"]),
            (b"ls\n", [b"ls\r\n"]),
            ("é".encode(), ["é".encode()]),
            (b"x\x7f", [b"x\b \b"]),
            (b"x\x7f", [b"x\b", b" \b"]),
            (b"\x03", [b"^C"]),
            (b"\x03", [b"^", b"C"]),
            (b"\x1b[A", [b"^[[A"]),
        ):
            self.setUp()
            self.typed(typed)
            self.assertEqual(b"".join(map(self.printed, pieces)), typed, typed)

    def test_password(self) -> None:
        """A password without an echo is left out, whatever is printed then."""
        for later in (b"\r\nLast login: hunter2\r\n", b"\r\n", b"***", b"Sorry\r\n"):
            self.setUp()
            self.typed(b"hunter2\r")
            self.assertEqual(self.printed(later), b"", later)
            self.assertEqual(self.printed(b"hunter2\r\n"), b"")
            self.typed(b"id\r")
            self.assertEqual(self.printed(b"id\r\n"), b"id\r")

    def test_late(self) -> None:
        """Output after two seconds is no echo."""
        self.typed(b"secret")
        self.assertEqual(self.printed(b"secret", ECHO_SECONDS + 0.1), b"")

    def test_sessions(self) -> None:
        """Each byte belongs to the session that typed it."""
        self.typed(b"a", session="s1")
        self.typed(b"bc", session="s2")
        self.assertEqual(self.echo.printed(b"abc", 0.0), [("s1", b"a"), ("s2", b"bc")])

    def test_too_much(self) -> None:
        """What waits is bounded."""
        self.typed(b"x" * 100_000)
        self.assertEqual(self.printed(b"x" * 100_000), b"x" * 4096)

    @given(st.lists(st.tuples(st.booleans(), letters), max_size=12))
    def test_never_more_than_printed(self, steps: list[tuple[bool, bytes]]) -> None:
        """Every byte that counts as echoed was printed after it was typed, in the same order."""
        echo, printed, found = EchoedInput(), b"", b""
        for is_typed, data in steps:
            if is_typed:
                echo.typed("s", data, 0.0)
            elif data:
                new = b"".join(typed for _, typed in echo.printed(data, 0.0))
                printed, found = printed + data, found + new
                self.assertTrue(data.startswith(new))
        rest = iter(printed)
        self.assertTrue(all(byte in rest for byte in found))
