"""
Tests for :mod:`twisted_exec.console.log`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.console.support import log_reader
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import BadRequest
from twisted_exec.console.log import JournalLogReader
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

    def reader(self, **options: Any) -> JournalLogReader:
        return log_reader(self.journal, LogOptions(**options))

    def log(self, **options: Any) -> bytes:
        """The whole log, read to its end."""
        reader = self.reader(**options)
        text = rest(reader)
        self.assertTrue(reader.over)
        return text


def rest(reader: JournalLogReader) -> bytes:
    """Read everything that is available."""
    text = b""
    while (more := reader.read()) is not None:
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
        """The time of its end before each line, as the kubelet writes it; carriage returns begin none."""
        self.at(1, b"a\r\n\r\nb\rc")
        self.at(61, b"d\r\ne")
        self.assertEqual(
            self.log(timestamps=True),
            b"1970-01-01T00:00:01.000000000Z a\r\n"
            b"1970-01-01T00:00:01.000000000Z \r\n"
            b"1970-01-01T00:01:01.000000000Z b\rcd\r\n"
            b"1970-01-01T00:01:01.000000000Z e",
        )

    def test_time_of_a_prompt(self) -> None:
        """A line has the time at which a user completed it; before that, and if it is long, of its prompt."""
        for typed, seconds in (
            (b"ls", 1),
            (b"ls\r\n", 3),
            (b"x" * 100 + b"\n", 3),
            (b"x" * 9999 + b"\n", 1),
        ):
            for plain in (False, True):
                self.journal = Journal(lambda: self.now)
                self.at(1, b"$ ")
                self.at(2, typed[:1])
                self.at(3, typed[1:] + b"bin\n" * typed.endswith(b"\n"))
                first, *rest = self.log(timestamps=True, plain=plain).splitlines()
                self.assertTrue(first.startswith(b"1970-01-01T00:00:0%d" % seconds), (typed, first))
                self.assertEqual(rest, [b"1970-01-01T00:00:03.000000000Z bin"] * len(rest))

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
        self.assertIsNone(reader.read())


class GapTests(LogCase):
    """A reader that is slower than the line."""

    def fall_behind(self, **options: Any) -> JournalLogReader:
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

    def test_begins_with_a_gap(self) -> None:
        """A log says if all that was printed before is missing; a log that continues there does not."""
        self.journal.missed()
        self.journal.append(b"line\n")
        notice = b"[twisted-exec: output is missing here]\r\n"
        self.assertEqual(self.log(), notice + b"line\n")
        self.assertEqual(self.log(from_offset=0, epoch=self.journal.epoch), b"line\n")
        self.assertEqual(self.log(tail_lines=0), b"")


class RangeTests(LogCase):
    """Parts of a log: boots, offsets, times."""

    def boot(self, seconds: int, *lines: bytes) -> None:
        self.now = seconds * SECOND
        self.journal.booted("Started")
        for line in lines:
            self.journal.append(line)

    def refusal(self, **options: Any) -> str:
        with self.assertRaises(BadRequest) as caught:
            self.reader(**options)
        return caught.exception.message

    def three_boots(self) -> None:
        self.boot(1, b"one\n", b"uno\n")
        self.boot(2, b"two\n", b"dos\n")
        self.boot(3, b"three\n")

    def test_boots(self) -> None:
        """A boot is counted from the newest, or named by its number."""
        self.three_boots()
        self.assertEqual(self.log(), b"one\nuno\ntwo\ndos\nthree\n")
        for options, text in (
            ({"boot": 0}, b"three\n"),
            ({"boot": -1}, b"two\ndos\n"),
            ({"previous": True}, b"two\ndos\n"),
            ({"boot": -2}, b"one\nuno\n"),
            ({"boot": 1}, b"one\nuno\n"),
            ({"boot": 3}, b"three\n"),
        ):
            self.assertEqual(self.log(**options), text, options)

    def test_within_a_boot(self) -> None:
        """The tail and the times select from the boot."""
        self.three_boots()
        self.assertEqual(self.log(boot=-1, tail_lines=1), b"dos\n")
        self.assertEqual(self.log(boot=-1, tail_lines=9), b"two\ndos\n")
        self.assertEqual(self.log(boot=-1, tail_lines=0), b"")
        self.assertEqual(self.log(boot=-1, since_nanoseconds=3 * SECOND), b"")
        self.assertEqual(self.log(boot=-1, since_nanoseconds=SECOND), b"two\ndos\n")
        self.assertEqual(self.log(boot=0, tail_lines=9), b"three\n")

    def test_follow_a_boot(self) -> None:
        """An earlier boot ends also when it is followed; the newest continues across boots."""
        self.three_boots()
        old, new = self.reader(follow=True, boot=-1), self.reader(follow=True, boot=0)
        self.assertEqual((rest(old), old.over), (b"two\ndos\n", True))
        self.boot(4, b"four\n")
        self.assertEqual((rest(new), new.over), (b"three\nfour\n", False))

    def test_no_boot(self) -> None:
        """A boot that does not exist is refused; the refusal names those that do."""
        self.assertEqual(self.log(boot=0), b"")
        none = 'the log of machine "vm" has no previous boot; it has '
        self.assertEqual(self.refusal(previous=True), f"{none}no boots yet")
        self.boot(1, b"one\n")
        self.assertEqual(self.refusal(boot=-1), f"{none}only boot 1")
        self.boot(1, b"two\n")
        self.assertEqual(
            self.refusal(boot=7),
            'the log of machine "vm" has no boot 7; it has boots 1, 2',
        )
        self.assertIn('"vm" has no boot -2; ', self.refusal(boot=-2))
        for number in range(3, 12):
            self.boot(number, b"more\n")
        self.assertTrue(
            self.refusal(boot=12).endswith(
                "it has 11 boots, the newest: 3, 4, 5, 6, 7, 8, 9, 10, 11"
            )
        )

    def test_silent_boot(self) -> None:
        """A boot without output has an empty log."""
        self.boot(1)
        self.boot(2, b"two\n")
        self.assertEqual(self.log(previous=True), b"")

    def test_offsets(self) -> None:
        """A log may begin and end at offsets, within lines, too."""
        self.at(1, b"one\ntwo\nthree\n")
        self.assertEqual(self.log(from_offset=5, to_offset=10), b"wo\nth")
        self.assertEqual(self.log(from_offset=14), b"")
        self.assertEqual(self.log(to_offset=0), b"")
        self.assertEqual(self.log(to_offset=8, tail_lines=1), b"two\n")
        self.assertEqual(self.log(to_offset=6, tail_lines=2), b"one\ntw")
        self.assertEqual(
            self.refusal(from_offset=15),
            'fromOffset=15 is beyond the log of machine "vm", which ends at 14',
        )
        self.assertIn("toOffset=15 is", self.refusal(to_offset=15))

    def test_discarded(self) -> None:
        """A log that begins with bytes that are gone says so."""
        self.at(1, b"x" * 65_532 + b"old\nnew\n")
        self.at(1, b"y" * 65_536)
        self.journal.discard_before(65_540)
        start = self.journal.start
        self.assertTrue(start)
        self.assertTrue(
            self.log(from_offset=1).startswith(
                b"[twisted-exec: %d bytes skipped]\r\ny" % (start - 1)
            )
        )

    def test_epoch(self) -> None:
        """Offsets of another epoch select what there is, behind a notice; a range of it is gone."""
        self.at(1, b"one\n")
        self.assertEqual(self.log(from_offset=2, epoch=self.journal.epoch), b"e\n")
        notice = b"[twisted-exec: the log began anew; what was printed before is missing]\r\n"
        self.assertEqual(self.log(from_offset=200, epoch="0" * 16), notice + b"one\n")
        self.assertEqual(self.log(from_offset=200, to_offset=300, epoch="0" * 16), notice)

    def test_until(self) -> None:
        """Lines that ended before a time."""
        for second in (100, 200, 300):
            self.at(second, b"%d\n" % second)
        self.assertEqual(self.log(until_nanoseconds=200 * SECOND), b"100\n")
        self.assertEqual(
            self.log(since_nanoseconds=150 * SECOND, until_nanoseconds=250 * SECOND), b"200\n"
        )
        self.assertEqual(self.log(until_nanoseconds=250 * SECOND, tail_lines=1), b"200\n")
        self.assertEqual(self.log(until_nanoseconds=1), b"")

    def test_tail_of_returns(self) -> None:
        """A tail counts lines that a device ends with carriage returns alone, also as plain text."""
        self.at(1, b"".join(b"line %d\r" % number for number in range(20_000)))
        for plain in (False, True):
            end = b"\n" if plain else b"\r"
            text = self.log(tail_lines=2, plain=plain)
            self.assertEqual(text.rstrip(end), b"line 19998" + end + b"line 19999")
            text = self.log(tail_lines=15_000, plain=plain)
            self.assertEqual(text.rstrip(end).count(end), 14_999)
            self.assertTrue(text.startswith(b"line 5000" + end))

    def test_tail_of_redrawn_lines(self) -> None:
        """Carriage returns and sequences before the text of a line end no line of their own."""
        self.at(1, b"$ ls\r\n\x1b[?2004l\rone\r\r\n\rtwo\r\x1b[K\n10%\r\r20%\r\n$ ")
        lines = self.log(plain=True).split(b"\n")
        self.assertEqual(lines, [b"$ ls", b"one", b"two", b"10%", b"20%", b"$ "])
        for count in range(1, 7):
            text = self.log(plain=True, tail_lines=count)
            self.assertEqual(text, b"\n".join(lines[-count:]), count)

    @given(
        st.lists(st.sampled_from([b"a", b"\n", b"long" * 9000, b"\n" * 900]), max_size=9),
        st.integers(0, 50_000),
        st.integers(0, 1900),
    )
    def test_tail_of_a_part(self, chunks: list[bytes], end: int, count: int) -> None:
        """The tail of a part is that of a journal that ends there."""
        self.journal, part = Journal(lambda: self.now), Journal(lambda: self.now)
        whole = b"".join(chunks)
        for journal, text in ((self.journal, whole), (part, whole[:end])):
            if text:
                journal.append(text)
        end = min(end, len(whole))
        expected = rest(log_reader(part, LogOptions(tail_lines=count)))
        self.assertEqual(self.log(to_offset=end, tail_lines=count), expected)


class PlainTests(LogCase):
    """Logs without escape sequences."""

    def test_plain(self) -> None:
        """Colours are gone, lines end with a newline alone, a redrawn line is several."""
        self.at(1, b"\x1b[32mok\x1b[m\r\n 2 \r 1 \r\n=> ")
        self.assertEqual(self.log(plain=True), b"ok\n 2 \n 1 \n=> ")

    def test_edited(self) -> None:
        """A line has what is left after backspaces; a prompt that was read follows anew if it is edited."""
        self.at(1, b"$ ls x")
        reader = self.reader(plain=True, follow=True)
        self.assertEqual(rest(reader), b"$ ls x")
        self.at(2, b"\b \b\b \b /\r\n$ ")
        self.assertEqual(rest(reader), b"\n$ ls /\n$ ")
        self.assertEqual(self.log(plain=True), b"$ ls /\n$ ")
        stamp = b"1970-01-01T00:00:02.000000000Z "
        self.assertEqual(self.log(plain=True, timestamps=True), stamp + b"$ ls /\n" + stamp + b"$ ")

    def test_edited_at_any_place(self) -> None:
        """A line is edited wherever it is in a long log."""
        line = b"# echo passwrod\b \b\b \b\b \bord\r\n"
        self.at(1, line * 3000)
        for timestamps in (False, True):
            text = self.log(plain=True, timestamps=timestamps)
            self.assertEqual(text.count(b"# echo password\n"), 3000)
            self.assertEqual(text.count(b"\n"), 3000)

    def test_split(self) -> None:
        """A sequence may be split over output; the prompt before it is not delayed."""
        self.at(1, b"login: \x1b[")
        reader = self.reader(plain=True, follow=True)
        self.assertEqual(rest(reader), b"login: ")
        self.at(2, b"1mroot")
        self.assertEqual(rest(reader), b"root")

    def test_timestamps(self) -> None:
        """Each line has its time, also a line that is redrawn; a line without text has one, too."""
        self.at(1, b"\x1b[m 2 ")
        self.at(3, b"\r\x1b[K 1 ")
        self.at(5, b"\r\n\r\n")
        self.assertEqual(
            self.log(plain=True, timestamps=True),
            b"1970-01-01T00:00:01.000000000Z  2 \n"
            b"1970-01-01T00:00:05.000000000Z  1 \n"
            b"1970-01-01T00:00:05.000000000Z \n",
        )

    def test_nothing_left(self) -> None:
        """Output that is only sequences is an empty piece, not the end."""
        self.at(1, b"\x1b[m" * 9)
        reader = self.reader(plain=True)
        self.assertEqual(reader.read(), b"")
        self.assertTrue(reader.over)

    def test_notice(self) -> None:
        """A notice is a plain line, too."""
        self.at(1, b"one\n")
        text = self.log(plain=True, from_offset=9, epoch="0" * 16)
        self.assertTrue(text.endswith(b"is missing]\none\n"), text)
        self.assertNotIn(b"\r", text)


class ContinueTests(LogCase):
    """Logs that are continued from a frame."""

    @given(
        st.lists(
            st.sampled_from(
                [b"a", b"b c", b"\n", b"\r\n", b"\r", b"\x1b[1", b"m", b"\x1b]0;", b"\x07", b"\xc2"]
            ),
            min_size=1,
        ),
        st.booleans(),
        st.booleans(),
        st.integers(0, 40),
    )
    @example([b"\x1b[1", b"m"], True, False, 1)
    def test_continues(self, chunks: list[bytes], plain: bool, timestamps: bool, cut: int) -> None:
        """A log that is cut behind any frame and continued is the same, to the byte."""
        self.journal = Journal(lambda: self.now)
        reader = self.reader(plain=plain, timestamps=timestamps, follow=True)
        text, frame = b"", reader.frame(b"")
        for number, chunk in enumerate(chunks):
            # A line that is read before it is complete has another time.
            self.at(0, chunk)
            while (piece := reader.read()) is not None:
                frame = reader.frame(piece)
                if number < cut:
                    text += piece
                    last = frame
        if cut == 0:
            last = log_reader(self.journal, LogOptions(follow=True)).frame(b"")
        text += rest(
            self.reader(
                plain=plain,
                timestamps=timestamps,
                from_offset=last.offset,
                state=last.state,
                epoch=reader.framing.epoch,
            )
        )
        self.assertEqual(text, self.log(plain=plain, timestamps=timestamps))

    def test_framing(self) -> None:
        """The framing says where the log begins, and where it ends unless it is followed."""
        self.at(1, b"one\ntwo\n")
        framing = self.reader(tail_lines=1).framing
        self.assertEqual((framing.epoch, framing.start, framing.end), (self.journal.epoch, 4, 8))
        framing = self.reader(tail_lines=0, follow=True).framing
        self.assertEqual((framing.start, framing.end), (8, None))

    def test_frame(self) -> None:
        """A frame has the offset behind it and the time of its last byte."""
        self.at(1, b"one\n")
        reader = self.reader()
        frame = reader.frame(reader.read() or b"")
        self.assertEqual(frame, (b"one\n", 4, SECOND, 0))
