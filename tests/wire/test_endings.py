"""Tests for :mod:`twisted_exec.wire.endings`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.wire.channel import UNNAMED, V1, V1_BASE64, V4, V4_BASE64, V5
from twisted_exec.wire.endings import (
    COMPLETED,
    CONSOLE_IN_USE,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    MESSAGE_CHARACTERS,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    STATUS_LIMIT_BYTES,
    Break,
    Ending,
    Message,
    Role,
    SizeDecoder,
    TerminalSize,
    decode_ending,
    decode_notice,
    decode_status,
    dropped_keys,
    encode_ending,
    encode_gap,
    encode_message,
    encode_notice,
    encode_size,
    encode_status,
    encode_wish,
    is_gap,
    keys_in,
    message_line,
    wrapped,
    wrapped_notice,
)
from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

FAILURES = (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    LINE_LOST,
    SHUTTING_DOWN,
    REVOKED,
    SESSION_DELETED,
    CONSOLE_IN_USE,
    INTERNAL,
)


class EndingTests(SynchronousTestCase):
    """Tests for :class:`Ending`."""

    def test_ok(self) -> None:
        """``ok`` needs the reason Completed, and exit code 0 or none."""
        self.assertTrue(Ending(COMPLETED).ok)
        self.assertTrue(Ending(COMPLETED, exit_code=0).ok)
        self.assertFalse(Ending(COMPLETED, exit_code=1).ok)
        self.assertFalse(Ending(LINE_LOST).ok)

    def test_no_such_code(self) -> None:
        """Exit codes are 0 to 255."""
        for code in (-1, 256):
            with self.assertRaises(LocalProtocolError):
                Ending(COMPLETED, exit_code=code)


class StatusTests(SynchronousTestCase):
    """Tests for :func:`encode_status` and :func:`decode_status`."""

    def test_success(self) -> None:
        """Success is encoded as Kubernetes does, without optional fields."""
        expected = b'{"metadata":{},"status":"Success"}'
        self.assertEqual(encode_status(Ending(COMPLETED)), expected)
        self.assertEqual(encode_status(Ending(COMPLETED, exit_code=0)), expected)
        self.assertEqual(decode_status(expected), Ending(COMPLETED))

    def test_empty(self) -> None:
        """An empty status is success, as client-go reads it."""
        self.assertEqual(decode_status(b""), Ending(COMPLETED))

    def test_exit_codes(self) -> None:
        """Every non-zero exit code survives encoding and decoding."""
        for code in range(1, 256):
            ending = decode_status(encode_status(Ending(COMPLETED, exit_code=code)))
            self.assertEqual((ending.reason, ending.exit_code), (COMPLETED, code))
        status = json.loads(encode_status(Ending(COMPLETED, exit_code=7)))
        self.assertEqual(
            status,
            {
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": "command terminated with non-zero exit code: "
                "command terminated with exit code 7",
                "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
            },
        )

    @given(st.sampled_from(FAILURES), st.text(min_size=1, max_size=50))
    def test_failures(self, reason: str, message: str) -> None:
        """Every reason and message survives encoding and decoding."""
        ending = Ending(reason, message)
        self.assertEqual(decode_status(encode_status(ending)), ending)

    def test_causes(self) -> None:
        """A failure carries further reasons for programs; only the first eight are read."""
        ending = Ending(INTERNAL, "no route", causes=("PoolletFailed", "NoRoute"))
        self.assertEqual(decode_status(encode_status(ending)), ending)
        many = Ending(INTERNAL, "no route", causes=tuple(f"Cause{number}" for number in range(20)))
        self.assertEqual(decode_status(encode_status(many)).causes, many.causes[:8])

    def test_failure_without_message(self) -> None:
        """Every failure has a message, because kubectl shows only that."""
        for reason in FAILURES:
            status = json.loads(encode_status(Ending(reason)))
            self.assertEqual(status["status"], "Failure")
            self.assertTrue(status["message"])

    def test_foreign_failure(self) -> None:
        """A failure of Kubernetes itself becomes an internal error with its message."""
        document = {
            "metadata": {},
            "status": "Failure",
            "message": "Internal error occurred: error executing command in container: x",
            "reason": "InternalError",
            "details": {"causes": [{"message": "x"}]},
            "code": 500,
        }
        ending = decode_status(json.dumps(document).encode())
        self.assertEqual((ending.reason, ending.message), (INTERNAL, document["message"]))

    def test_odd_failures(self) -> None:
        """A failure decodes whatever its details look like."""
        for more in (
            {},
            {"message": None, "details": None},
            {"details": {"causes": None}},
            {"details": {"causes": [None, 3, {"reason": "Unknown"}]}},
            {"details": []},
        ):
            document = json.dumps({"status": "Failure", **more}).encode()
            self.assertEqual(decode_status(document).reason, INTERNAL)

    def refused(self, document: bytes) -> str:
        with self.assertRaises(RemoteProtocolError) as caught:
            decode_status(document)
        return str(caught.exception)

    def test_no_status(self) -> None:
        """Anything but a Status raises RemoteProtocolError."""
        self.assertEqual(self.refused(b"command failed"), "status is not JSON")
        self.assertEqual(self.refused(b"[" * 50000), "status is not JSON")
        self.assertEqual(self.refused(b"\xff"), "status is not JSON")
        self.assertEqual(self.refused(b"[]"), "status is not an object")
        self.assertEqual(self.refused(b"{}"), "status is neither Success nor Failure")
        self.assertIn("larger", self.refused(b" " * (STATUS_LIMIT_BYTES + 1)))

    def test_exit_code_among_others(self) -> None:
        """The exit code may follow other causes."""
        causes = [{"reason": "Other", "message": "1"}, {"reason": "ExitCode", "message": "2"}]
        status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        self.assertEqual(decode_status(json.dumps(status).encode()).exit_code, 2)

    def test_bad_exit_codes(self) -> None:
        """An exit code must be a plain decimal from 0 to 255."""
        for code in ("256", "-1", "x", "", "7 ", "\u0667", "0x7", "00000000000000007"):
            document = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code}]},
            }
            self.assertIn("0 to 255", self.refused(json.dumps(document).encode()))
        self.assertIn(
            "without a code", self.refused(b'{"status":"Failure","reason":"NonZeroExitCode"}')
        )

    @given(st.binary(max_size=200))
    def test_anything(self, document: bytes) -> None:
        """Any bytes decode or raise RemoteProtocolError."""
        try:
            decode_status(document)
        except RemoteProtocolError:
            pass


class EndingTextTests(SynchronousTestCase):
    """Tests for :func:`encode_ending` and :func:`decode_ending`."""

    def test_with_status(self) -> None:
        """Since version 4 the ending is a Status."""
        ending = Ending(LINE_LOST, "gone")
        for protocol in (V5, V4, V4_BASE64):
            document = encode_ending(ending, protocol)
            self.assertEqual(document, encode_status(ending))
            self.assertEqual(decode_ending(document, protocol), ending)

    def test_text(self) -> None:
        """Before version 4 the ending is the failure's message, or empty for success."""
        for protocol in (V1, V1_BASE64, UNNAMED):
            self.assertEqual(encode_ending(Ending(COMPLETED), protocol), b"")
            self.assertEqual(decode_ending(b"", protocol), Ending(COMPLETED))
            text = encode_ending(Ending(LINE_LOST, "g\u00f6ne"), protocol)
            self.assertEqual(text, "g\u00f6ne".encode())
            self.assertEqual(decode_ending(text + b"\n", protocol), Ending(INTERNAL, "g\u00f6ne"))
            code = encode_ending(Ending(COMPLETED, exit_code=7), protocol)
            self.assertTrue(code.endswith(b"command terminated with exit code 7"))

    def test_bad_text(self) -> None:
        """Any bytes decode as text; too many are refused."""
        self.assertEqual(decode_ending(b"\xff", V1).message, "\ufffd")
        with self.assertRaises(RemoteProtocolError):
            decode_ending(b" " * (STATUS_LIMIT_BYTES + 1), V1)


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


class NoticeTests(SynchronousTestCase):
    """Tests for :func:`encode_notice` and :func:`encode_gap`."""

    def test_is_gap(self) -> None:
        """A notice in place of missing output is told from others."""
        for text, expected in (
            ("7 bytes skipped", True),
            ("output is missing here", True),
            ("the line is lost", False),
        ):
            self.assertEqual(is_gap(text), expected, text)

    def test_text(self) -> None:
        """A notice is a line of its own; a gap is one with the number of bytes, if it is known."""
        for notice, text in (
            (encode_notice("ada has left"), b"ada has left"),
            (encode_notice("Zo\u00eb  \U0001f600 [x]"), "Zo\u00eb  \U0001f600 [x]".encode()),
            (encode_gap(7), b"7 bytes skipped"),
            (encode_gap(None), b"output is missing here"),
        ):
            self.assertEqual(notice, b"\r\n[twisted-exec: " + text + b"]\r\n")
            self.assertEqual(decode_notice(notice), text.decode())

    def test_wrapped(self) -> None:
        """For a terminal, a long message is broken at blanks; it reads back as it was."""
        short = encode_notice("ada has left")
        self.assertEqual(wrapped_notice(short), short)
        self.assertEqual(wrapped("  short", 78), ["  short"])
        text = "the writer of this console is ada; you are an observer (~f or --force takes over)"
        notice = wrapped_notice(encode_notice(text))
        rows = notice.decode().split("\r\n")
        self.assertEqual(len(rows), 4)
        self.assertLessEqual(max(map(len, rows)), 78)
        self.assertEqual(decode_notice(notice), text)

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """A terminal shows all of a notice, whatever name or reason is in it, and does nothing else."""
        shown = decode_notice(encode_notice(text))
        self.assertTrue(shown.isprintable())
        if text.isprintable():
            self.assertEqual(shown, text)

    def test_escapes(self) -> None:
        """Line breaks become spaces, and other control characters question marks."""
        for text, shown in (
            ("x\x1b]0;title\x07y", "x?]0;title?y"),
            ("a\r\nb\tc", "a b c"),
            ("\x9b2J\x7f\x00", "?2J??"),
            ("\u202eevil\u2066", "?evil?"),
            ("\ud800", "?"),
        ):
            self.assertEqual(decode_notice(encode_notice(text)), shown)

    def test_unwrapped(self) -> None:
        """A text that nobody has wrapped is the notice itself."""
        self.assertEqual(decode_notice(b"ada has left"), "ada has left")

    def test_dropped_keys(self) -> None:
        """Keys that were sent, and keys that never were, have a number each."""
        for dropped, unsent, text in (
            (1, 0, "1 key may not have reached the machine"),
            (2, 2, "2 keys typed meanwhile were discarded"),
            (3, 1, "2 keys may not have reached the machine; 1 key typed after that was discarded"),
            (
                5,
                4,
                "1 key may not have reached the machine; 4 keys typed after that were discarded",
            ),
        ):
            self.assertEqual(dropped_keys(dropped, unsent), text)

    def test_keys_in(self) -> None:
        """The bytes of an arrow or of a character in UTF-8 are one key."""
        for data, count in (
            (b"", 0),
            (b"ls\r", 3),
            (b"\x1b[A\x1bOB\x1b[1;5C", 3),
            ("\u5b57\u00fc".encode(), 2),
            (b"\x80\x81", 1),
        ):
            self.assertEqual(keys_in(data), count)


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

    def test_another_process(self) -> None:
        """Another process goes on within an object, and also reads nothing behind an invalid one."""
        data = encode_size(TerminalSize(80, 24))
        for cut in range(len(data) + 1):
            first, second = SizeDecoder(), SizeDecoder()
            read = first.feed(data[:cut])
            second.restore(json.loads(json.dumps(first.export())))
            self.assertEqual(read + second.feed(data[cut:]), [TerminalSize(80, 24)], cut)
        first.feed(b"x")
        second.restore(first.export())
        self.assertEqual(second.feed(data), [])
