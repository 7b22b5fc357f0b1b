"""
Tests for :mod:`twisted_exec.cli.escape`.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.escape import DEFAULT, EscapeKey, parse_escape


class ParseEscapeTests(SynchronousTestCase):
    """Tests for :func:`parse_escape`."""

    def test_forms(self) -> None:
        """The three usual spellings and the character itself mean the same key."""
        for text in ("^]", "ctrl-]", "Ctrl-]", "C-]", "c-]", "ctrl+]", "\x1d", DEFAULT):
            key = parse_escape(text)
            assert key is not None
            self.assertEqual(key.code, 0x1D, text)

    def test_letters_in_either_case(self) -> None:
        """``^a`` and ``^A`` are one key, and it is shown as people write it."""
        for text in ("^a", "^A", "ctrl-a", "C-A"):
            key = parse_escape(text)
            assert key is not None
            self.assertEqual(key.code, 1, text)
            self.assertEqual(str(key), "Ctrl-A")

    def test_none(self) -> None:
        """``none`` means that no key leaves."""
        self.assertIsNone(parse_escape("none"))

    def test_refused(self) -> None:
        """A key that one must be able to type is refused, with a word on what to give."""
        for text in ("", "x", "~", "^", "^]]", "^1", "ctrl", "ctrl-", "^é", "F1"):
            with self.assertRaises(ValueError, msg=text) as caught:
                parse_escape(text)
            self.assertIn("such as ^]", str(caught.exception))


class EscapeKeyTests(SynchronousTestCase):
    """Tests for :class:`EscapeKey`."""

    def test_other_keys_pass(self) -> None:
        """Everything but the key goes to the machine untouched."""
        key = EscapeKey(0x1D)
        for data in (b"ls -l\r", b"\x1b[A", b"\x03", "größe".encode(), b"\x1b", b"\x1b[93;6u"):
            self.assertEqual(key.feed(data), (data, False))

    def test_key_in_the_middle(self) -> None:
        """What was typed before the key is still sent, what follows is not."""
        self.assertEqual(EscapeKey(0x1D).feed(b"exit\r\x1dmore"), (b"exit\r", True))

    def test_keyboard_protocols(self) -> None:
        """A terminal switched to another keyboard protocol by its guest still leaves."""
        for pressed in (b"\x1b[93;5u", b"\x1b[93;133u", b"\x1b[93;5:1u", b"\x1b[27;5;93~"):
            self.assertEqual(EscapeKey(0x1D).feed(b"a" + pressed + b"b"), (b"a", True))
        self.assertEqual(EscapeKey(1).feed(b"\x1b[97;5u"), (b"", True))

    def test_other_modifiers_are_other_keys(self) -> None:
        """Ctrl-Alt-], or the key's release, does not leave."""
        for other in (b"\x1b[93;7u", b"\x1b[93;1u", b"\x1b[27;3;93~", b"\x1b[93;5:3u"):
            self.assertEqual(EscapeKey(0x1D).feed(other), (other, False))

    def test_lone_escape_is_sent_at_once(self) -> None:
        """An Escape that may begin a sequence is not held back."""
        key = EscapeKey(0x1D)
        self.assertEqual(key.feed(b"\x1b"), (b"\x1b", False))
        self.assertEqual(key.feed(b"[93;5"), (b"[93;5", False))
        self.assertEqual(key.feed(b"ux"), (b"", True))

    @given(
        before=st.binary(max_size=60).map(lambda data: data.replace(b"\x1d", b"")),
        form=st.sampled_from([b"\x1d", b"\x1b[93;5u", b"\x1b[27;5;93~"]),
        cuts=st.lists(st.integers(0, 80), max_size=8),
    )
    def test_any_split(self, before: bytes, form: bytes, cuts: list[int]) -> None:
        """However the bytes arrive, the key is seen and all before it is sent."""
        whole = before + form
        key = EscapeKey(0x1D)
        sent, pressed = b"", False
        edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
        for start, stop in pairwise(edges):
            some, pressed = key.feed(whole[start:stop])
            sent += some
            if pressed:
                break
        self.assertTrue(pressed)
        self.assertTrue(sent.startswith(before))
        self.assertTrue(whole.startswith(sent))
