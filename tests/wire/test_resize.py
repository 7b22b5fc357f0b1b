"""Tests for :mod:`twisted_exec.wire.resize`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.wire.errors import LocalProtocolError
from twisted_exec.wire.resize import (
    MESSAGE_CHARACTERS,
    Break,
    Message,
    Role,
    SizeDecoder,
    TerminalSize,
    encode_message,
    encode_size,
    encode_wish,
    message_line,
)


class SizeTests(SynchronousTestCase):
    """Tests for :class:`SizeDecoder` and :func:`encode_size`."""

    def test_no_such_size(self) -> None:
        """Columns and rows are 1 to 65535."""
        for columns, rows in ((0, 1), (1, 0), (65536, 1), (-1, 1)):
            with self.assertRaises(LocalProtocolError):
                TerminalSize(columns, rows)

    @given(
        st.lists(st.tuples(st.integers(1, 65535), st.integers(1, 65535)), max_size=6),
        st.lists(st.integers(1, 20), max_size=30),
    )
    def test_there_and_back(self, sizes: list[tuple[int, int]], cuts: list[int]) -> None:
        """Sizes survive encoding and decoding, on any split."""
        told = [TerminalSize(*one) for one in sizes]
        data = b"".join(map(encode_size, told))
        decoder, read, start = SizeDecoder(), [], 0
        for length in [*cuts, len(data)]:
            read += decoder.feed(data[start : start + length])
            start += length
        self.assertEqual(read, told)

    def test_forms(self) -> None:
        """Keys may have any case; unknown keys, nested objects and white space are ignored."""
        read = SizeDecoder().feed(
            b' {"width":1,"HEIGHT":2}{"Width":3,"Height":4,"More":{"a":{}}}\n\t'
            b'{ "Height" : 6 , "Width" : 5 }'
        )
        self.assertEqual(read, [TerminalSize(1, 2), TerminalSize(3, 4), TerminalSize(5, 6)])

    def test_zero(self) -> None:
        """A size of zero, as from clients without a terminal, is ignored."""
        read = SizeDecoder().feed(b'{"Width":0,"Height":0}{"Width":80}{}{"Width":1,"Height":2}')
        self.assertEqual(read, [TerminalSize(1, 2)])

    def test_bad(self) -> None:
        """The first invalid object ends resizing silently."""
        for bad in (
            b"x",
            b'"Width"',
            b"[1]",
            b'{"Width":-1,"Height":1}',
            b'{"Width":65536,"Height":1}',
            b'{"Width":1.5,"Height":1}',
            b'{"Width":true,"Height":1}',
            b'{"Width":"80","Height":1}',
            b'{"Width":null,"Height":1}',
            b'{"a":' + b"[" * 1000 + b"}",
            b"{" + b" " * 1024,
            b"{" + b"}" * 1024,
            b'{"a":"' + b"x" * 1024 + b'","Width":1,"Height":2}',
            b"\xff",
        ):
            decoder = SizeDecoder()
            self.assertEqual(decoder.feed(b'{"Width":1,"Height":2}'), [TerminalSize(1, 2)])
            self.assertEqual(decoder.feed(bad), [], bad)
            decoder.feed(b"}" * 2000)
            self.assertEqual(decoder.feed(b'{"Width":1,"Height":2}'), [], bad)

    def test_many(self) -> None:
        """A message of 100 sizes decodes completely."""
        data = encode_size(TerminalSize(80, 24)) * 100
        self.assertEqual(len(SizeDecoder().feed(data)), 100)

    def test_too_many(self) -> None:
        """A message of thousands of sizes ends resizing, as decoding it would block the reactor."""
        size, decoder = encode_size(TerminalSize(80, 24)), SizeDecoder()
        self.assertEqual(decoder.feed(size * 20000), [])
        self.assertEqual(decoder.feed(size), [])

    def test_blanks(self) -> None:
        """Any amount of white space may separate sizes, on any split."""
        data = b" " * 1500 + b'{"Width":80,"Height":24}' + b"\n" * 2000 + b'{"Width":1,"Height":2}'
        for step in (1, 100, 1500, len(data)):
            decoder, read = SizeDecoder(), []
            for start in range(0, len(data), step):
                read += decoder.feed(data[start : start + step])
            self.assertEqual(read, [TerminalSize(80, 24), TerminalSize(1, 2)], step)

    def test_braces(self) -> None:
        """An object in pieces takes linear time, also one with many braces in a text or as values."""
        for before, after in ((b'{"a":"', b'"}'), (b'{"a":[{', b"{}]}")):

            def feed(size: int, before: bytes = before, after: bytes = after) -> None:
                decoder = SizeDecoder()
                for byte in before + b"}" * size + after:
                    decoder.feed(bytes((byte,)))

            assert_linear(feed, 240, before)

    @given(st.lists(st.binary(max_size=60), max_size=10))
    def test_anything(self, chunks: list[bytes]) -> None:
        """No input raises."""
        decoder = SizeDecoder()
        for chunk in chunks:
            decoder.feed(chunk)


class WishTests(SynchronousTestCase):
    """Tests for :func:`encode_wish`, and for BREAK and roles in :class:`SizeDecoder`."""

    def test_no_such_break(self) -> None:
        """A BREAK lasts 1 ms to 5 s."""
        for milliseconds in (0, -1, 5001):
            with self.assertRaises(LocalProtocolError):
                Break(milliseconds)

    @given(
        st.one_of(st.builds(Break, st.integers(1, 5000)), st.sampled_from(Role)),
        st.none() | st.builds(TerminalSize, st.integers(1, 65535), st.integers(1, 65535)),
    )
    def test_there_and_back(self, wish: Break | Role, size: TerminalSize | None) -> None:
        """
        BREAK and roles survive encoding and decoding; the unchanged size beside them is dropped.
        """
        self.assertEqual(SizeDecoder().feed(encode_wish(wish, size)), [wish])

    def test_foreign_end(self) -> None:
        """A decoder without BREAK or roles reads the last size again."""
        document = json.loads(encode_wish(Break(300), TerminalSize(80, 24)))
        self.assertEqual(document, {"Width": 80, "Height": 24, "Break": 300})
        document = json.loads(encode_wish(Role.WRITER, None))
        self.assertEqual(document, {"Width": 0, "Height": 0, "Role": "drive"})

    def test_in_order(self) -> None:
        """Sizes, BREAK and roles keep their order."""
        size = TerminalSize(80, 24)
        data = encode_size(size) + encode_wish(Break(), size) + encode_wish(Role.OBSERVER, size)
        self.assertEqual(SizeDecoder().feed(data), [size, Break(250), Role.OBSERVER])

    def test_none(self) -> None:
        """An invalid BREAK or role is ignored; the size beside it counts, and resizing goes on."""
        for more in (
            b'"Break":0',
            b'"Break":5001',
            b'"Break":true',
            b'"Break":250.0',
            b'"Break":"250"',
            b'"Break":null',
            b'"Break":[250]',
            b'"Break":1e2',
            b'"Role":"Drive"',
            b'"Role":""',
            b'"Role":[]',
            b'"Role":null',
            b'"Role":{"drive":1}',
        ):
            decoder, size = SizeDecoder(), TerminalSize(80, 24)
            self.assertEqual(decoder.feed(b'{"Width":80,"Height":24,%s}' % more), [size], more)
            self.assertEqual(decoder.feed(encode_wish(Break(1), size)), [Break(1)])

    def test_beside_no_size(self) -> None:
        """A BREAK beside an invalid size makes the whole object invalid."""
        decoder = SizeDecoder()
        self.assertEqual(decoder.feed(b'{"Width":-1,"Height":24,"Break":250}'), [])
        self.assertEqual(decoder.feed(encode_wish(Break(), None)), [])


class MessageTests(SynchronousTestCase):
    """Messages of users to others, in the stream of sizes."""

    @given(st.text(min_size=1, max_size=300), st.lists(st.integers(1, 300), max_size=5))
    def test_there_and_back(self, text: str, cuts: list[int]) -> None:
        """A message survives encoding and decoding, on any split, and is printable."""
        line = message_line(text)
        self.assertTrue(line.isprintable())
        if not line:
            return
        data = encode_message(Message(line), TerminalSize(80, 24))
        decoder, read, start = SizeDecoder(), [], 0
        for length in [*cuts, len(data)]:
            read += decoder.feed(data[start : start + length])
            start += length
        self.assertEqual(read, [Message(line)])

    def test_longest(self) -> None:
        """The longest message fits, whatever its characters: the size that follows is read, too."""
        for character in ("\U0001f600", '"', "\\", "\u00e9"):
            message = Message(character * MESSAGE_CHARACTERS)
            size = TerminalSize(65535, 65535)
            data = encode_message(message, size) + encode_size(size)
            self.assertEqual(SizeDecoder().feed(data), [message, size])

    def test_safe(self) -> None:
        """Sequences, line breaks, and characters that reorder or hide text do not survive."""
        for text, line in (
            ("a\tb\r\n  c", "a b c"),
            ("\x1b]0;title\x07", "?]0;title?"),
            ("\x9b31m", "?31m"),
            ("\u202eevil\u2066", "?evil?"),
            ("a\u200bb\ufeff", "a?b?"),
            ("\xa0\u3000", ""),
            ("x" * 300, "x" * 200),
            ("x" * 199 + " y", "x" * 199),
        ):
            self.assertEqual(message_line(text), line)

    def test_no_message(self) -> None:
        """Only a printable line is a message."""
        for text in ("", " ", "a ", "a  b", "a\n", "\x1b", "x" * 201):
            with self.assertRaises(LocalProtocolError):
                Message(text)

    def test_unreadable(self) -> None:
        """What is no message in UTF-8 is left out, and what follows is read."""
        for text in (b'"\xff"', b'"\\u0151"', b'"  "', b"7", b"null", b'{"a":"b"}'):
            data = b'{"Width":0,"Height":0,"Message":%s}{"Message":"hi"}' % text
            self.assertEqual(SizeDecoder().feed(data), [Message("hi")], text)

    def test_earlier_release(self) -> None:
        """A message is a size for a server that knows no messages, and none without a terminal."""
        for size, numbers in ((TerminalSize(80, 24), (80, 24)), (None, (0, 0))):
            document = json.loads(encode_message(Message("hi"), size))
            self.assertEqual((document["Width"], document["Height"]), numbers)
