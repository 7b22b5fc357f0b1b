"""
Tests for :mod:`twisted_exec.console.log`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.logs import LogOptions
from twisted_exec.console.log import LogReader
from twisted_exec.journal.journal import Journal

SECOND = 10**9


class LogCase(SynchronousTestCase):
    """A journal that is written at the times that the test says."""

    def setUp(self) -> None:
        self.now = 0
        self.journal = Journal(lambda: self.now)

    def at(self, seconds: int, data: bytes) -> None:
        self.now = seconds * SECOND
        self.journal.append(data)

    def reader(self, **options: Any) -> LogReader:
        return LogReader(self.journal, LogOptions(**options))

    def log(self, **options: Any) -> bytes:
        """The whole log, read to its end."""
        reader = self.reader(**options)
        text = rest(reader)
        self.assertTrue(reader.over)
        return text


def rest(reader: LogReader) -> bytes:
    """Read everything that is available."""
    text = b""
    while more := reader.read():
        text += more
    return text


class WholeTests(LogCase):
    """A log that is read once."""

    def test_faithful(self) -> None:
        """Every byte is given as it was printed, carriage returns and all."""
        printed = b"\x1b[2J\r 3 \r 2 \r 1 \r\nboot\x00\xff\r\n\n=> "
        self.at(1, printed)
        self.assertEqual(self.log(), printed)

    def test_empty(self) -> None:
        """A console that has printed nothing has an empty log."""
        self.assertEqual(self.log(timestamps=True, tail_lines=3), b"")

    def test_snapshot(self) -> None:
        """A log without follow excludes output after the request."""
        self.at(1, b"one\n")
        reader = self.reader()
        self.at(2, b"two\n")
        self.assertEqual(rest(reader), b"one\n")
        self.assertTrue(reader.over)

    def test_tail(self) -> None:
        """The last lines; one that is not ended counts."""
        self.at(1, b"one\r\ntwo\r\nthree")
        self.assertEqual(self.log(tail_lines=2), b"two\r\nthree")
        self.assertEqual(self.log(tail_lines=0), b"")
        self.assertEqual(self.log(tail_lines=9), b"one\r\ntwo\r\nthree")

    def test_since(self) -> None:
        """Lines that were printed lately, by seconds or by the time."""
        self.at(100, b"old\n")
        self.at(200, b"new\n")
        self.now = 210 * SECOND
        self.assertEqual(self.log(since_seconds=20), b"new\n")
        self.assertEqual(self.log(since_nanoseconds=200 * SECOND), b"new\n")
        self.assertEqual(self.log(since_nanoseconds=200 * SECOND + 1), b"")
        self.assertEqual(self.log(since_seconds=500), b"old\nnew\n")

    def test_tail_of_since(self) -> None:
        """Both together: of the last lines those that are new enough."""
        for second in (100, 200, 300):
            self.at(second, b"%d\n" % second)
        self.assertEqual(self.log(tail_lines=2, since_nanoseconds=250 * SECOND), b"300\n")
        self.assertEqual(self.log(tail_lines=1, since_nanoseconds=150 * SECOND), b"300\n")

    def test_timestamps(self) -> None:
        """A time before each line, as the kubelet writes it; carriage returns begin none."""
        self.at(1, b"a\r\n\r\nb\rc")
        self.at(61, b"d\r\ne")
        self.assertEqual(
            self.log(timestamps=True),
            b"1970-01-01T00:00:01.000000000Z a\r\n"
            b"1970-01-01T00:00:01.000000000Z \r\n"
            b"1970-01-01T00:00:01.000000000Z b\rcd\r\n"
            b"1970-01-01T00:01:01.000000000Z e",
        )

    def test_limit(self) -> None:
        """So many bytes and not one more, the times counted as well."""
        self.at(1, b"one\ntwo\n")
        self.assertEqual(self.log(limit_bytes=5), b"one\nt")
        self.assertEqual(self.log(limit_bytes=33, timestamps=True)[-3:], b" on")
        self.assertEqual(self.log(limit_bytes=99), b"one\ntwo\n")

    @given(
        st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"long" * 3000, b"\n" * 9000]), max_size=9)
    )
    def test_any(self, chunks: list[bytes]) -> None:
        """Without its times a log with times is the log without, in pieces of bounded size."""
        self.journal = Journal(lambda: self.now)
        for number, chunk in enumerate(chunks):
            self.at(number, chunk)
        whole = b"".join(chunks)
        self.assertEqual(self.log(), whole)
        reader, stamped = self.reader(timestamps=True), b""
        while text := reader.read():
            self.assertLessEqual(len(text), 128 << 10)
            stamped += text
        lines = stamped.split(b"\n")
        self.assertEqual(b"\n".join(line[31:] for line in lines), whole)
        self.assertTrue(all(line[:5] == b"1970-" for line in lines[:-1]))


class FollowTests(LogCase):
    """A log that goes on."""

    def test_goes_on(self) -> None:
        """First what there is, then what comes; in the middle of a line no new one begins."""
        self.at(1, b"one\ntw")
        reader = self.reader(follow=True, timestamps=True, tail_lines=1)
        self.assertEqual(rest(reader), b"1970-01-01T00:00:01.000000000Z tw")
        self.assertFalse(reader.over)
        self.at(2, b"o\nthree\n")
        self.assertEqual(rest(reader), b"o\n1970-01-01T00:00:02.000000000Z three\n")

    def test_from_now(self) -> None:
        """A log from now on starts with a new line, without past output."""
        self.at(1, b"login: ")
        reader = self.reader(follow=True, timestamps=True, tail_lines=0)
        self.assertEqual(rest(reader), b"")
        self.at(5, b"root\n")
        self.assertEqual(rest(reader), b"1970-01-01T00:00:05.000000000Z root\n")

    def test_end(self) -> None:
        """A machine that is gone ends the log, after what it printed last."""
        reader = self.reader(follow=True)
        self.at(1, b"last words\n")
        self.journal.close()
        self.assertFalse(reader.over)
        self.assertEqual(rest(reader), b"last words\n")
        self.assertTrue(reader.over)

    def test_limit(self) -> None:
        """A limit ends it in the middle of what comes."""
        reader = self.reader(follow=True, limit_bytes=5)
        self.at(1, b"one\n")
        self.assertEqual((rest(reader), reader.over), (b"one\n", False))
        self.at(2, b"two\n")
        self.assertEqual((rest(reader), reader.over), (b"t", True))
        self.assertEqual(reader.read(), b"")


class GapTests(LogCase):
    """A reader that is slower than the line."""

    def fall_behind(self, **options: Any) -> LogReader:
        """A reader at ``two``, whose next 65 529 bytes are gone."""
        self.at(1, b"one\ntwo")
        reader = self.reader(**options)
        rest(reader)
        self.at(2, b"x" * 65_529)
        self.at(3, b"new\n")
        self.journal.discard_before(65_536)
        return reader

    def test_follower(self) -> None:
        """It reads how many bytes are missing, on a line of its own, and goes on."""
        reader = self.fall_behind(follow=True)
        self.assertEqual(rest(reader), b"\r\n[twisted-exec: 65529 bytes skipped]\r\nnew\n")

    def test_timestamps(self) -> None:
        """The mark has a time, too, and so has what comes behind it."""
        time = b"1970-01-01T00:00:03.000000000Z "
        self.assertEqual(
            rest(self.fall_behind(follow=True, timestamps=True)),
            b"\r\n" + time + b"[twisted-exec: 65529 bytes skipped]\r\n" + time + b"new\n",
        )

    def test_snapshot(self) -> None:
        """A log that is read once ends where it would have, without what is gone."""
        self.at(1, b"x" * 64_000)
        reader = self.reader()
        self.at(2, b"y" * 64_000)
        self.at(2, b"z" * 64_000)
        self.journal.discard_before(128_000)
        self.assertEqual(rest(reader), b"[twisted-exec: 64000 bytes skipped]\r\n")
        self.assertTrue(reader.over)
