"""Tests of :mod:`twisted_exec.wire.marks`."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import (
    LONGEST_MARK_BYTES,
    Ack,
    Answer,
    At,
    Attendance,
    EchoTime,
    Mark,
    MarkDecoder,
    Notice,
    NoticeKind,
    NoticeRole,
    OpenRecording,
    Question,
    Taken,
    encode_mark,
    encode_session,
    not_sent,
    parse_report,
)
from twisted_exec.wire.resize import TerminalSize
from twisted_exec.wire.resume import Position, Resumable

KEY = "k" * 43
EPOCH = "0123456789abcdef"


class MarkTests(SynchronousTestCase):
    """Marks and their decoder."""

    def test_encoded(self) -> None:
        self.assertEqual(
            encode_mark(At(Position(EPOCH, 7))), b'{"At":7,"Epoch":"0123456789abcdef"}\n'
        )
        self.assertEqual(
            encode_mark(At(Position(EPOCH, 7), exact=False)),
            b'{"At":7,"Epoch":"0123456789abcdef","Exact":false}\n',
        )
        self.assertEqual(
            encode_mark(At(Position(EPOCH, 7), end=9)),
            b'{"At":7,"Epoch":"0123456789abcdef","End":9}\n',
        )
        self.assertEqual(encode_mark(Ack(3)), b'{"Ack":3}\n')
        self.assertEqual(encode_mark(Ack(None)), b'{"Ack":null}\n')
        self.assertEqual(encode_mark(Attendance(2)), b'{"Viewers":2}\n')
        self.assertEqual(
            encode_mark(Attendance(2, "ada", 7)), b'{"Viewers":2,"Writer":"ada","Seconds":7}\n'
        )
        self.assertEqual(
            encode_mark(Attendance(2, lost=1, message_characters=200)),
            b'{"Viewers":2,"Lost":1,"Message":200}\n',
        )
        self.assertEqual(
            encode_mark(Attendance(1, size=TerminalSize(120, 40))),
            b'{"Viewers":1,"Width":120,"Height":40}\n',
        )
        self.assertEqual(
            encode_mark(Attendance(1, recordings=())), b'{"Viewers":1,"Recordings":[]}\n'
        )
        self.assertEqual(
            encode_mark(Attendance(1, has_break=False)), b'{"Viewers":1,"Break":false}\n'
        )
        self.assertEqual(
            encode_mark(Attendance(1, withheld="2 people\nare needed")),
            b'{"Viewers":1,"Withheld":"2 people are needed"}\n',
        )
        self.assertEqual(
            encode_mark(Attendance(1, recordings=(OpenRecording("masked", "ada"),))),
            b'{"Viewers":1,"Recordings":[{"Input":"masked","User":"ada"}]}\n',
        )
        by_policy = Attendance(1, recordings=(OpenRecording("all", "ada", ("lab/a", "lab/b")),))
        self.assertEqual(
            encode_mark(by_policy),
            b'{"Viewers":1,"Recordings":[{"Input":"all","User":"ada","Policies":["lab/a","lab/b"]}]}\n',
        )
        self.assertEqual(MarkDecoder().feed(encode_mark(by_policy)), [by_policy])

    def test_counted(self) -> None:
        """Sessions whose connections are lost are counted apart; a runtime may count them a moment later."""
        for viewers, lost, text in ((1, 0, "1"), (4, 3, "1, 3 lost"), (1, 2, "0, 2 lost")):
            self.assertEqual(Attendance(viewers, lost=lost).counted, text)

    def test_unusable_numbers(self) -> None:
        """A longest message, or a count of keys, that is no number counts as none; a number of losses must be one."""
        for text in (b"-1", b"true", b'"200"', b"null", b"1.5"):
            marks = MarkDecoder().feed(b'{"Viewers":1,"Message":' + text + b"}\n")
            self.assertEqual(marks, [Attendance(1)])
            self.assertEqual(
                MarkDecoder().feed(b'{"Notice":"x","Keys":' + text + b"}\n"), [Notice("x")]
            )
            with self.assertRaises(RemoteProtocolError):
                MarkDecoder().feed(b'{"Viewers":1,"Lost":' + text + b"}\n")

    def test_unusable_size(self) -> None:
        """A size that no terminal has counts as unknown."""
        for text in (b"0", b"-1", b"65536", b"true", b"null", b'"80"', b"1.5"):
            marks = MarkDecoder().feed(b'{"Viewers":1,"Width":80,"Height":' + text + b"}\n")
            self.assertEqual(marks, [Attendance(1)])
        self.assertEqual(MarkDecoder().feed(b'{"Viewers":1,"Width":80}\n'), [Attendance(1)])

    def test_many_recordings(self) -> None:
        """A mark stays short, however many recordings there are and however long the names."""
        recordings = tuple(
            OpenRecording("masked", f"{n}" + "\U0001f600" * 200, ("lab/a",) * 64) for n in range(50)
        )
        (mark,) = MarkDecoder().feed(
            encode_mark(
                Attendance(
                    1, "\U0001f600" * 64, recordings=recordings, withheld="\U0001f600" * 5000
                )
            )
        )
        assert isinstance(mark, Attendance)
        assert mark.recordings is not None
        self.assertEqual(len(mark.recordings), 8)
        self.assertTrue(recordings[0].user.startswith(mark.recordings[0].user))
        self.assertEqual(mark.withheld, "a ConsolePolicy")

    def test_unusable_recordings(self) -> None:
        """Recordings that cannot be read are unknown, or left out: they only inform."""
        for text, recordings in (
            (b"7", None),
            (b"{}", None),
            (b'[7,{"Input":"some","User":"x"},{"Input":[],"User":"x"},{"Input":"all"}]', ()),
            (
                b'[{"Input":"all","User":"x","Policies":7},{"Input":"all","User":"y","Policies":[7,"","a/b"]}]',
                (OpenRecording("all", "x"), OpenRecording("all", "y", ("a/b",))),
            ),
        ):
            mark = MarkDecoder().feed(b'{"Viewers":1,"Recordings":' + text + b"}\n")
            self.assertEqual(mark, [Attendance(1, recordings=recordings)])

    @given(
        st.lists(
            st.one_of(
                st.builds(
                    At,
                    st.builds(Position, st.just(EPOCH), st.integers(0, (1 << 63) - 1)),
                    st.booleans(),
                ),
                st.builds(Ack, st.none() | st.integers(0, (1 << 63) - 1)),
                st.builds(
                    Notice,
                    st.text(max_size=200),
                    st.sampled_from(NoticeKind),
                    st.none() | st.sampled_from(NoticeRole),
                    st.text(max_size=64),
                    st.text(max_size=200),
                    st.sampled_from(["", "(~f or --force takes over)"]),
                ),
                st.builds(Attendance, st.integers(0, 9999), has_break=st.booleans()),
                st.builds(Attendance, st.integers(0, 9999), lost=st.integers(0, 9999)),
                st.builds(Attendance, st.just(1), message_characters=st.integers(0, 9999)),
                st.builds(
                    Attendance,
                    st.just(1),
                    size=st.builds(TerminalSize, st.integers(1, 0xFFFF), st.integers(1, 0xFFFF)),
                ),
                st.builds(Attendance, st.integers(0, 9999), withheld=st.just("2 are needed")),
                st.builds(
                    Attendance,
                    st.integers(0, 9999),
                    recordings=st.lists(
                        st.builds(
                            OpenRecording,
                            st.sampled_from(["none", "masked", "all"]),
                            st.text(max_size=64),
                        ),
                        max_size=8,
                    ).map(tuple),
                ),
                st.builds(EchoTime, st.integers(0, 2_000_000)),
                st.builds(
                    Attendance,
                    st.integers(0, 9999),
                    st.text(min_size=1, max_size=64),
                    st.integers(0, 1 << 40),
                ),
            )
        ),
        st.integers(1, 50),
    )
    def test_any_split(self, marks: list[Mark], size: int) -> None:
        data = b"".join(map(encode_mark, marks))
        decoder, found = MarkDecoder(), []
        for start in range(0, len(data), size):
            found += decoder.feed(data[start : start + size])
        self.assertEqual(found, marks)

    def test_long_notice(self) -> None:
        for text in ("x" * 100_000, "\N{SNOWMAN}" * 100_000, "\N{GRINNING FACE}" * 100_000):
            for more in ({}, {"why": text, "writer": text}):
                data = encode_mark(Notice(text, **more))
                self.assertLessEqual(len(data), LONGEST_MARK_BYTES)
                (mark,) = MarkDecoder().feed(data)
                assert isinstance(mark, Notice)
                self.assertTrue(text.startswith(mark.text))

    def test_kinds(self) -> None:
        """A notice has its kind and what that needs; the text comes first, as in earlier releases."""
        notice = Notice(
            "what you type is not sent: the writer of this console is ada (~f)",
            NoticeKind.DISCARDED,
            NoticeRole.OBSERVER,
            writer="ada",
            why="the writer of this console is ada",
            hint="(~f)",
        )
        data = (
            b'{"Notice":"what you type is not sent: the writer of this console is ada (~f)",'
            b'"Kind":"discarded","Role":"observer","Writer":"ada",'
            b'"Why":"the writer of this console is ada","Hint":"(~f)"}\n'
        )
        self.assertEqual(encode_mark(notice), data)
        self.assertEqual(MarkDecoder().feed(data), [notice])
        self.assertEqual(encode_mark(Notice("x")), b'{"Notice":"x","Kind":"message"}\n')
        data = b'{"Notice":"x","Kind":"discarded","Keys":3}\n'
        self.assertEqual(encode_mark(Notice("x", NoticeKind.DISCARDED, keys=3)), data)
        self.assertEqual(MarkDecoder().feed(data), [Notice("x", NoticeKind.DISCARDED, keys=3)])

    def test_other_releases(self) -> None:
        """A notice without a kind, or of a kind of a later release, is a message."""
        for data in (
            b'{"Notice":"x"}',
            b'{"Notice":"x","Kind":null}',
            b'{"Notice":"x","Kind":"later","Role":"later","Why":7}',
        ):
            notice = Notice("x")
            self.assertEqual(MarkDecoder().feed(data + b"\n"), [notice])
        self.assertEqual(MarkDecoder().feed(b'{"Notice":7,"Kind":"role"}\n'), [])

    def test_printable(self) -> None:
        """Names and reasons of the other side do nothing in a terminal."""
        data = b'{"Notice":"\\u001b[2J","Kind":"role","Writer":"\\u009bx","Why":"a\\nb","Hint":"\\u0007"}\n'
        (mark,) = MarkDecoder().feed(data)
        self.assertEqual(mark, Notice("?[2J", NoticeKind.ROLE, None, "?x", "a b", "?"))

    def test_output(self) -> None:
        """A session without marks reads the text alone, in its output."""
        notice = not_sent("the line is lost", NoticeRole.OBSERVER)
        self.assertEqual(notice.kind, NoticeKind.DISCARDED)
        self.assertEqual(
            notice.output, b"\r\n[twisted-exec: what you type is not sent: the line is lost]\r\n"
        )

    def test_unknown(self) -> None:
        self.assertEqual(MarkDecoder().feed(b'{"Later":1}\n\n{"Ack":1}\n'), [Ack(1)])

    def test_invalid(self) -> None:
        for data in (
            b"x\n",
            b"[]\n",
            b'{"At":1}\n',
            b'{"Viewers":-1}\n',
            b'{"Viewers":true}\n',
            b'{"Viewers":1,"Writer":1}\n',
            b'{"Viewers":1,"Withheld":1}\n',
            b'{"Viewers":1,"Writer":"ada","Seconds":1.5}\n',
            b'{"At":-1,"Epoch":"0123456789abcdef"}\n',
            b'{"At":1,"Epoch":"x"}\n',
            b'{"At":true,"Epoch":"0123456789abcdef"}\n',
            b'{"Ack":-1}\n',
            b'{"Ack":"1"}\n',
            b'{"Ack":9223372036854775808}\n',
            b'{"Echo":-1}\n',
            b'{"Echo":"1"}\n',
            b"[" * 5000 + b"\n",
            b"x" * (LONGEST_MARK_BYTES + 1),
        ):
            with self.assertRaises(RemoteProtocolError, msg=repr(data[:40])):
                MarkDecoder().feed(data)


class PageTests(SynchronousTestCase):
    """Marks and reports that only pages in browsers get and send."""

    def test_session(self) -> None:
        """The first mark has what pages cannot read in the headers of the 101."""
        mark = encode_session(Resumable(KEY, 60), "s-1")
        self.assertEqual(mark, b'{"Session":"s-1","Key":"%s","Seconds":60}\n' % KEY.encode())
        resumable = Resumable(KEY, 60).passed_on("poollet", 0.0001)
        mark = encode_session(resumable, "s-1")
        self.assertTrue(mark.endswith(b',"Seconds":60,"Hops":"poollet/100"}\n'), mark)
        self.assertEqual(MarkDecoder().feed(mark), [])

    def test_pings(self) -> None:
        """Other clients ignore the marks that only pages get."""
        for mark, line in ((Question(7), b'{"Ping":7}\n'), (Answer(8), b'{"Pong":8}\n')):
            self.assertEqual(encode_mark(mark), line)
            self.assertEqual(MarkDecoder().feed(line), [])

    def test_reports(self) -> None:
        """A report is alone in its message."""
        for message, report in (
            (b'{"Taken":4096}\n', Taken(4096)),
            (b'{"Ping": 1}', Question(1)),
            (b'{"Pong":2}\n', Answer(2)),
            (b'{"Width":80,"Height":24}\n', None),
            (b'{"Width":80}\n', None),
            (b'{"Taken":1,"Height":24}', None),
            (b'{"Taken":1}\n{"Taken":2}\n', None),
            (b'{"Taken":1}' + b" " * 64, None),
            (b"[1]", None),
            (b"\xff", None),
        ):
            self.assertEqual(parse_report(message), report, message)

    def test_invalid_reports(self) -> None:
        """The number of a report counts something."""
        for number in (b"-1", b"null", b"1.5", b'"1"', b"true", b"9223372036854775808"):
            with self.assertRaisesRegex(RemoteProtocolError, "Taken has no valid number"):
                parse_report(b'{"Taken":%s}' % number)


class HintTests(SynchronousTestCase):
    """The text of a notice for a terminal and for a script, with the keys and options that each of them has."""

    def test_hint(self) -> None:
        """
        A script reads the option, and a terminal the key if there is no writer, whatever words the runtime has for it.

        Only the hint at the end changes: a name that reads like one, and a text that was cut, stay.
        """
        to_observer = partial(Notice, kind=NoticeKind.ROLE, role=NoticeRole.OBSERVER)
        keys, option, key = "(~f or --force takes over)", "(--force takes over)", "(~f to type)"
        other = "(press F7)"
        for notice, terminal, script in (
            (
                to_observer(f"ann types {keys}", writer="ann", hint=keys),
                f"ann types {keys}",
                f"ann types {option}",
            ),
            (
                to_observer(f"ann types {other}", writer="ann", hint=other),
                f"ann types {other}",
                f"ann types {option}",
            ),
            (
                to_observer(f"nobody types {other}", hint=other),
                f"nobody types {key}",
                f"nobody types {option}",
            ),
            (
                to_observer(f"{keys} left {keys}", hint=keys),
                f"{keys} left {key}",
                f"{keys} left {option}",
            ),
            (to_observer("~f or ann types", writer="~f or ann"), *["~f or ann types"] * 2),
            (to_observer("a long text that was cut", hint=keys), *["a long text that was cut"] * 2),
            (Notice(f"hello {keys}"), *[f"hello {keys}"] * 2),
        ):
            self.assertEqual((notice.for_terminal, notice.for_script), (terminal, script))
