"""
Tests for :mod:`twisted_exec.cli.console.escape`.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.escape import (
    DEFAULT,
    HELP,
    EscapeCommand,
    EscapeKey,
    Menu,
    SysRq,
    Typed,
    parse_escape,
)


class ParseEscapeTests(SynchronousTestCase):
    """Tests for :func:`parse_escape`."""

    def key(self, text: str) -> EscapeKey:
        escapes = parse_escape(text)
        assert escapes is not None and escapes.leave is not None
        return escapes.leave

    def test_forms(self) -> None:
        """The three usual spellings and the character itself mean the same key."""
        for text in ("^]", "ctrl-]", "Ctrl-]", "C-]", "c-]", "ctrl+]", "\x1d", DEFAULT):
            self.assertEqual(self.key(text).code, 0x1D, text)

    def test_letters_in_either_case(self) -> None:
        """``^a`` and ``^A`` are one key, and it is shown as people write it."""
        for text in ("^a", "^A", "ctrl-a", "C-A"):
            self.assertEqual(self.key(text).code, 1, text)
            self.assertEqual(str(self.key(text)), "Ctrl-A")

    def test_none(self) -> None:
        """``none`` means that no key is special."""
        self.assertIsNone(parse_escape("none"))

    def test_what_is_given_is_all(self) -> None:
        """The description names the escape key, the menu mark, or both, as configured."""
        for text, told in (
            (DEFAULT, "Ctrl-] leaves, ~? helps"),
            ("~,^]", "Ctrl-] leaves, ~? helps"),
            ("^A", "Ctrl-A leaves"),
            ("%", "%. leaves, %? helps"),
            ("C-a,!", "Ctrl-A leaves, !? helps"),
        ):
            self.assertEqual(str(parse_escape(text)), told, text)

    def test_refused(self) -> None:
        """An invalid escape option is refused, and the error gives an example."""
        for text in (
            "", "x", "7", " ", "^", "^]]", "^1", "ctrl", "ctrl-", "^\xe9", "F1", "~~", "~,%", "^A,^B",
            ",", "^],", "^],none", "\x7f", "\u2028",
        ):  # fmt: skip
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
        """Bytes typed before the escape key are sent; bytes after it are dropped."""
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


class MenuTests(SynchronousTestCase):
    """Tests for :class:`Menu`, and for it beside a key that leaves."""

    def typed(self, data: bytes, menu: Menu | None = None) -> list[Typed]:
        """Feed the data at once and byte by byte; return the events, with adjacent bytes joined."""
        whole = joined((menu or Menu("~")).feed(data))
        if menu is None:
            menu = Menu("~")
            parts: list[Typed] = []
            for number in range(len(data)):
                parts += menu.feed(data[number : number + 1])
                if EscapeCommand.LEAVE in parts:
                    break
            self.assertEqual(joined(parts), whole)
        return whole

    def test_commands(self) -> None:
        """
        Commands work at the start of a line, after any line end, and directly after each other.
        """
        for key, command in (
            (b".", EscapeCommand.LEAVE),
            (b"?", EscapeCommand.HELP),
            (b"B", EscapeCommand.BREAK),
        ):
            for before in (b"", b"ls\r", b"ls\n", b"\r\r"):
                expected: list[Typed] = [before] if before else []
                self.assertEqual(self.typed(before + b"~" + key), [*expected, command])
        self.assertEqual(
            self.typed(b"~B~f~r~\x1a"),
            [
                EscapeCommand.BREAK,
                EscapeCommand.TAKE_OVER,
                EscapeCommand.RELEASE,
                EscapeCommand.SUSPEND,
            ],
        )

    def test_every_command_is_in_the_help(self) -> None:
        """The help lists every command."""
        keys = {key for key, _ in HELP}
        for command in EscapeCommand:
            shown = command.value.decode().replace("\x1a", "^Z")
            self.assertIn(shown, keys)
        escapes = parse_escape("^],%")
        assert escapes is not None
        lines = escapes.help()
        self.assertIn("  %.   leave (Ctrl-] does so anywhere)", lines)
        self.assertEqual(lines[-1], "  %%   a %")
        escapes = parse_escape("^]")
        assert escapes is not None
        self.assertEqual(escapes.help(), [])

    def test_inside_a_line(self) -> None:
        """Within a line, the mark is an ordinary character."""
        for data in (b"cd ~\r", b"a~.", b"x~~", b"\r ~."):
            self.assertEqual(self.typed(data), [data])

    def test_answers_of_the_terminal(self) -> None:
        """
        What a terminal sends of its own accord begins no line of the user, such as when an editor starts.
        """
        answers = b"\x1b[>0;95;0c\x1b[?1;2c\x1b[3;1R\x1b]11;rgb:0/0/0\x1b\\\x1bP1$r0m\x1b\\\x1b[I\x1b[?2026;0$y"
        for typed in (
            (b"\r", answers, b"~B"),
            (b"\r", answers + b"~B"),
            (b"~B",),
            (answers, answers, b"~B"),
        ):
            menu = Menu("~")
            found = [each for data in typed for each in menu.feed(data)]
            self.assertEqual(found[-1], EscapeCommand.BREAK, typed)
            sent = b"".join(each for each in found if isinstance(each, bytes))
            self.assertEqual(sent, b"".join(typed).removesuffix(b"~B"))
        for key in (b"\x1b[A", b"\x1bOP", b"\x1b[15~", b"\x1b"):
            menu = Menu("~")
            self.assertEqual([*menu.feed(key), *menu.feed(b"~B")], [key, b"~B"])

    def test_text_that_is_not_sent(self) -> None:
        """Where nothing is sent, each key is at the start of a line; the next key that is sent is not."""
        menu = Menu("~")
        menu.feed(b"ls")
        self.assertEqual(menu.feed(b"~f", is_sent=False), [EscapeCommand.TAKE_OVER])
        menu.feed(b"ls", is_sent=False)
        self.assertEqual(menu.feed(b"~?", is_sent=False), [EscapeCommand.HELP])
        for text, keys in ((b"ls", [b"ls"]), (b"~x", [b"~x"]), (b"\x1b[A", [b"\x1b[A"])):
            typed = menu.feed(text + b"~s~.", is_sent=False)
            self.assertEqual(typed, [*keys, EscapeCommand.STATUS, EscapeCommand.LEAVE], text)
        self.assertEqual(joined([*menu.feed(b"l"), *menu.feed(b"~?")]), [b"l~?"])

    def test_doubled(self) -> None:
        """A doubled mark at the start of a line is sent as one, and the line continues."""
        self.assertEqual(self.typed(b"~~.~."), [b"~.~."])

    def test_unknown(self) -> None:
        """A mark before any other key is sent with that key, so that ~/bin/x can be typed."""
        self.assertEqual(self.typed(b"~/bin/x\r"), [b"~/bin/x\r"])
        self.assertEqual(self.typed(b"~b\r~\r~."), [b"~b\r~\r", EscapeCommand.LEAVE])

    def test_sysrq(self) -> None:
        """The SysRq command waits for the next key; any key but a letter or digit cancels it."""
        waits = SysRq(b"")
        self.assertEqual(self.typed(b"~Sh"), [waits, SysRq(b"h")])
        self.assertEqual(self.typed(b"~S9~S\x1bls"), [waits, SysRq(b"9"), waits, b"ls"])

    def test_nothing_is_held_back_but_the_mark(self) -> None:
        """Every key is sent at once, except the mark, which waits for the next key."""
        menu = Menu("~")
        self.assertEqual(menu.feed(b"\x1b"), [b"\x1b"])
        self.assertEqual(menu.feed(b"\r"), [b"\r"])
        self.assertEqual(menu.feed(b"~"), [])
        self.assertEqual(joined(menu.feed(b"x")), [b"~x"])

    def test_leaves(self) -> None:
        """Input after leaving is dropped, by whichever key the user leaves."""
        for data in (b"a\r~.b\x1dc", b"a\r\x1d~.b"):
            escapes = parse_escape(DEFAULT)
            assert escapes is not None
            self.assertEqual(escapes.feed(data), [b"a\r", EscapeCommand.LEAVE])

    def test_key_behind_the_mark(self) -> None:
        """The escape key also leaves after the mark."""
        escapes = parse_escape(DEFAULT)
        assert escapes is not None
        self.assertEqual(escapes.feed(b"~"), [])
        self.assertEqual(escapes.feed(b"\x1d"), [EscapeCommand.LEAVE])

    def test_alone(self) -> None:
        """With only the menu or only the key configured, the other's bytes go to the machine."""
        only_menu, only_key = parse_escape("~"), parse_escape("^]")
        assert only_menu is not None and only_key is not None
        self.assertEqual(only_menu.feed(b"\x1d~."), [b"\x1d~."])
        self.assertEqual(only_key.feed(b"~.\r~."), [b"~.\r~."])

    @given(st.lists(st.sampled_from([b"~", b"\r", b"a", b"S", b"B", b"?", b"\x1b"]), max_size=12))
    def test_any_keys(self, keys: list[bytes]) -> None:
        """Splitting the input does not change the events; without the mark, all bytes are sent."""
        data = b"".join(keys)
        found = self.typed(data)
        if b"~" not in data:
            self.assertEqual(b"".join(one for one in found if isinstance(one, bytes)), data)


def joined(typed: list[Typed]) -> list[Typed]:
    """Join adjacent bytes."""
    found: list[Typed] = []
    for one in typed:
        if found and isinstance(one, bytes) and isinstance(found[-1], bytes):
            found[-1] += one
        else:
            found.append(one)
    return found
