"""
Tests for :mod:`twisted_exec.api.declared_reasons`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.declared_reasons import (
    BLANK,
    check_reason,
    reason_headers,
    reason_of_command,
    reason_of_headers,
    reason_of_query,
)
from twisted_exec.api.status import BadRequest


class ReasonTests(SynchronousTestCase):
    """A declared reason on its way through the hops."""

    def test_query(self) -> None:
        """The query key is UTF-8; surrounding spaces do not count, and no key is no reason."""
        for value, reason in ((b" INC-7 ", "INC-7"), ("für Ada".encode(), "für Ada"), (b"", "")):
            self.assertEqual(reason_of_query({b"reason": [value]}), reason)
        self.assertEqual(reason_of_query({}), "")

    def test_refused(self) -> None:
        """Control and invisible characters, more than 256 characters, two reasons and bytes that are
        not UTF-8 are refused; the message says which."""
        for values, word in (
            ([b"a\nb"], "U+000A"),
            ([b"a\x1b[2J"], "U+001B"),
            (["a\u202eb".encode()], "U+202E"),
            ([b"x" * 257], "256"),
            ([b"a", b"b"], "once"),
            ([b"\xff"], "UTF-8"),
        ):
            with self.assertRaises(BadRequest) as caught:
                reason_of_query({b"reason": values})
            self.assertIn(word, str(caught.exception.message))
        self.assertEqual(check_reason("ü" * 256), "ü" * 256)

    def test_blank(self) -> None:
        """Neither are letters that no font shows: a required reason would have no text."""
        for blank in "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe00\uffa0\U000e0100":
            with self.assertRaises(BadRequest) as caught:
                check_reason(f"OPS-1{blank}")
            self.assertIn(f"(U+{ord(blank):04X})", str(caught.exception.message))
        self.assertEqual(check_reason("caf\u0065\u0301 \u26a0\ufe0f"), "cafe\u0301 \u26a0\ufe0f")

    @given(
        st.text(
            st.characters(exclude_categories=["C", "Z"], exclude_characters=BLANK),
            min_size=1,
            max_size=256,
        )
    )
    def test_header(self, reason: str) -> None:
        """The header is ASCII and comes back as the same reason."""
        ((name, value),) = reason_headers(reason)
        self.assertEqual(name, b"X-Twisted-Exec-Reason")
        self.assertTrue(value.isascii())
        self.assertEqual(reason_of_headers([value]), reason)

    def test_no_header(self) -> None:
        """A session without a reason has no header; a malformed or repeated header is refused."""
        self.assertEqual(reason_headers(""), ())
        self.assertEqual(reason_of_headers([]), "")
        for values in ([b"%ff"], [b"\xff"], [b"a", b"b"], [b"a%0Ab"]):
            self.assertRaises(BadRequest, reason_of_headers, values)

    def test_command(self) -> None:
        """kubectl's command for a console may have a reason; other commands have none."""
        for words, reason in (
            (["console", "--reason", "INC-7"], "INC-7"),
            (["console", "--force", "--reason=INC 7"], "INC 7"),
            (["console", "--reason"], ""),
            (["console"], ""),
            (["sh", "--reason", "INC-7"], ""),
            ([], ""),
        ):
            self.assertEqual(reason_of_command(words), reason, words)
        self.assertRaises(BadRequest, reason_of_command, ["console", "--reason", "a\x1b"])
