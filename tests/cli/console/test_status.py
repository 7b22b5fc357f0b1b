"""
Tests for :mod:`twisted_exec.cli.console.status`, in a session.
"""

from __future__ import annotations

import re
import socket
from typing import Any

from twisted.internet.address import IPv4Address

from tests.cli.console.test_outage import OutageCase, ResumableStream
from tests.cli.console.test_session import FakeStream
from twisted_exec.console.notices import RESTARTED
from twisted_exec.streaming.remotecommand.client import LOST
from twisted_exec.wire.control_messages import TerminalSize
from twisted_exec.wire.resume import (
    Attendance,
    Notice,
    NoticeKind,
    NoticeRole,
    OpenRecording,
    RoundTrip,
)


class Connected:
    """The transport of a connection."""

    def __init__(self, plug: socket.socket) -> None:
        self.socket = plug

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", *self.socket.getpeername())


class StatusTests(OutageCase):
    """``~s``."""

    def status(self) -> list[str]:
        self.said.clear()
        self.session.typed(b"~s")
        return self.said[0].split("\n")

    def test_resumable(self) -> None:
        """The status has the time, the role, the round trip, the offset, and how often it resumed."""
        self.begin()
        stream = self.attach()
        self.clock.advance(3725)
        expected = [
            "connected for 1 h 2 min",
            "  session     3f2a",
            "  role        writer",
            "  round trip  12.3 ms",
            "  output      at offset 4711",
            "  resumable   yes",
        ]
        self.assertEqual(self.status(), expected)
        stream.resumes, stream.round_trip_seconds = 2, None
        status = self.status()
        self.assertIn("  resumable   yes; resumed 2 times", status)
        self.assertIn("  round trip  unknown", status)
        self.assertEqual((stream.sent, stream.told), (b"", []))

    def test_latency(self) -> None:
        """The status has the echo time, and the round trips of the connections that have one."""
        self.begin()
        stream: Any = self.attach()
        stream.echo_seconds = 0.00314
        stream.round_trips = (RoundTrip("apiserver", 412), RoundTrip("poollet", 96))
        status = self.status()
        hops = "apiserver 0.4 ms, poollet 0.1 ms (TCP to the next hop, at the start)"
        self.assertIn("  echo        3.1 ms from the machine", status)
        self.assertIn(f"  hops        {hops}", status)
        self.assertFalse([each for each in status if "TCP  " in each])
        with socket.create_server(("127.0.0.1", 0)) as server:
            stream.transport = Connected(socket.create_connection(server.getsockname()))
            with stream.transport.socket:
                line = next(each for each in self.status() if "  TCP  " in each)
            self.assertRegex(line, r"  TCP         \d+\.\d ms to 127\.0\.0\.1\Z")
            self.assertFalse([each for each in self.status() if "  TCP  " in each])

    def test_no_answer(self) -> None:
        """A round trip from before is not shown while a ping waits for its answer."""
        self.begin()
        stream: Any = self.attach()
        stream.overdue_seconds = 7.04
        self.assertIn("  round trip  unknown; no answer for 7.0 s", self.status())

    def test_recorded(self) -> None:
        """The user reads once that the console is recorded, and the status says it again."""
        self.begin()
        stream = FakeStream()
        stream.recorded_input = "masked"
        self.session.attached(stream)
        self.assertEqual(self.said, ["This console is recorded (input: masked)."])
        self.assertIn("  recorded    yes; input: masked", self.status())

    def test_recordings(self) -> None:
        """The user reads for whom the console is recorded, when a recording begins and when the last one ends."""
        self.begin()
        stream = self.attach()
        bob, eve = OpenRecording("all", "bob"), OpenRecording("none")
        lines: list[str] = []
        for recordings, line in (
            ((), "no"),
            ((bob,), "yes, for bob (input: all)"),
            ((bob, eve), "yes, for bob (input: all), somebody (input: none)"),
            ((), "no"),
            ((eve,), "yes, for somebody (input: none)"),
        ):
            stream.attendance = Attendance(1, recordings=recordings)
            said = len(self.said)
            self.session.attendance_changed(stream.attendance)
            self.session.attendance_changed(stream.attendance)
            heard = self.said[said:]
            shown = [each for each in self.status() if "recorded" in each]
            self.assertEqual(shown, [f"  recorded    {line}"])
            lines += heard
        self.assertEqual(
            lines,
            [
                "This console is recorded for bob (input: all).",
                "This console is recorded for bob (input: all), somebody (input: none).",
                "This console is not recorded any more.",
                "This console is recorded for somebody (input: none).",
            ],
        )

    def test_own_recording(self) -> None:
        """The recording of the session itself is not announced again, but others are."""
        self.begin()
        stream: Any = ResumableStream()
        stream.recorded_input = "masked"
        self.session.attached(stream)
        own, other = OpenRecording("masked", "ann"), OpenRecording("all", "bob")
        for recordings in ((), (own,), (own, other)):
            self.session.attendance_changed(Attendance(1, recordings=recordings))
        self.assertEqual(
            self.said,
            [
                "This console is recorded (input: masked).",
                "This console is recorded for ann (input: masked), bob (input: all).",
            ],
        )

    def test_attendance(self) -> None:
        """The status says who has had the floor for how long, and how many sessions are open."""
        self.begin()
        stream = self.attach()
        for attendance, lines in (
            (
                Attendance(3, "bob\x1b", 125),
                ["  writer      bob?, for 2 min 5 s", "  viewers     3"],
            ),
            (Attendance(1), ["  writer      nobody", "  viewers     1"]),
            (Attendance(4, lost=3), ["  writer      nobody", "  viewers     1, 3 lost"]),
            (
                Attendance(1, withheld="2 people are needed"),
                ["  writer      nobody", "  withheld    2 people are needed"],
            ),
        ):
            stream.attendance = attendance
            self.session.attendance_changed(attendance)
            self.assertEqual(self.status()[3:5], lines)

    def test_take_over(self) -> None:
        """The writer is that of the last message: a notice is earlier than the attendance, or there is none."""
        self.begin()
        stream = self.attach()
        stream.attendance = Attendance(3, "bob", 125)
        self.session.attendance_changed(stream.attendance)
        notice = Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, "al")
        self.session.notice(notice)
        self.assertEqual(self.status()[2:4], ["  role        observer", "  writer      al"])
        stream.attendance = Attendance(3, "eve", 0)
        self.session.attendance_changed(stream.attendance)
        self.assertIn("  writer      eve, for 0 s", self.status())
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.WRITER))
        self.assertFalse([each for each in self.status() if "  writer  " in each])

    def test_new_writer(self) -> None:
        """An observer reads who the new writer is, unless a notice has said it."""
        self.begin(shows_more=True)
        self.attach()
        notices = {
            name: Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, name)
            for name in ("ada", "eve", "")
        }
        for message, lines in (
            (notices["ada"], []),
            (Attendance(3, "ada"), []),
            (
                Attendance(3, "bob\x1b"),
                ["[twisted-exec: bob? is the writer of this console now (before: ada)]"],
            ),
            (Attendance(4, "bob\x1b"), []),
            (notices["eve"], []),
            (Attendance(4, "eve"), []),
            (notices[""], []),
            (Attendance(4), []),
            (Attendance(4, "ada"), ["[twisted-exec: ada is the writer of this console now]"]),
            (Notice("x", NoticeKind.ROLE, NoticeRole.WRITER), []),
            (Attendance(4, "ann"), []),
            (notices["ada"], []),
            (Attendance(4, "ada"), []),
        ):
            self.said.clear()
            if isinstance(message, Notice):
                self.session.notice(message)
            else:
                self.session.attendance_changed(message)
            self.assertEqual(self.said, lines, message)

    def test_new_writer_read_only(self) -> None:
        """An observer by choice reads it, too; with ``--quiet``, in a pipe or a script nobody does."""
        line = "[twisted-exec: bob is the writer of this console now (before: ada)]"
        for settings, said in (
            ({"shows_more": True}, [line]),
            ({"shows_more": True, "quiet": True}, []),
            ({"shows_more": True, "interactive": False}, []),
            ({"shows_more": False}, []),
        ):
            self.begin(read_only=True, **settings)
            self.attach()
            for writer in ("ada", "bob"):
                self.session.attendance_changed(Attendance(3, writer))
            self.assertEqual(self.said, said, settings)

    def begin_observing(self, **settings: Any) -> Any:
        """Begin a session of an observer, whose window and screen the test changes."""
        self.size, self.is_full, self.redrawn = TerminalSize(200, 24), False, 0
        self.refreshed: list[float] = []

        def redraw() -> None:
            self.redrawn += 1
            self.sink.written = b""

        shown = {
            "size": lambda: self.size,
            "full_screen": lambda: self.is_full,
            "redraw": redraw,
            "refresh": lambda: self.refreshed.append(self.clock.seconds()),
            "shows_more": True,
        }
        self.begin(**{**shown, **settings})
        stream = self.attach()
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, "bob"))
        return stream

    def attended(self, stream: Any, columns: int, rows: int) -> None:
        stream.attendance = Attendance(2, "bob", size=TerminalSize(columns, rows))
        self.session.attendance_changed(stream.attendance)

    def covering(self) -> list[str]:
        """Return the messages over the last rows of the screen."""
        drawn = self.sink.written.rpartition(b"\x1b7")[2].decode()
        return re.findall(r"\x1b\[\d+;1H(\[.*?\])\x1b", drawn)

    def resized(self, columns: int, rows: int) -> None:
        self.size = TerminalSize(columns, rows)
        self.session.window_changed()

    def test_smaller_window(self) -> None:
        """
        An observer whose window is smaller than the writer's reads it once a program draws the whole
        screen, and again for other sizes.
        """
        stream = self.begin_observing()
        self.attended(stream, 240, 24)
        self.session.data_received(b"lines")
        self.assertEqual(self.covering(), [])
        self.is_full = True
        line = "[twisted-exec: bob's window is {} and yours {}: this picture is incomplete; enlarge your window]"
        lines = [line.format("240x24", "200x24")]
        for _ in range(2):
            self.session.data_received(b"a screen")
            self.assertEqual(self.covering(), lines)
        self.attended(stream, 200, 40)
        lines.append(line.format("200x40", "200x24"))
        self.assertEqual(self.covering(), lines)
        for is_full in (False, True):
            self.is_full = is_full
            self.session.data_received(b"another program")
        self.assertEqual((self.covering(), self.redrawn), (lines, 0))

    def test_size_in_status(self) -> None:
        """The status has the difference of the windows while a program draws for the writer's."""
        stream = self.begin_observing(act=self.fail, draw=lambda _: None)
        self.is_full = True
        self.attended(stream, 240, 24)
        line = "bob's window is 240x24 and yours 200x24: this picture is incomplete; enlarge your window"
        for is_full, columns, lines in (
            (True, 240, 1),
            (False, 240, 0),
            (True, 240, 1),
            (True, 200, 0),
        ):
            self.is_full = is_full
            self.attended(stream, columns, 24)
            self.session.data_received(b"x\r\n")
            self.session.typed(b"x")
            self.sink.written = b""
            self.said.clear()
            self.session.typed(b"~s")
            shown = self.sink.written.decode() + "".join(self.said)
            self.assertEqual(shown.count(f"  size        {line}"), lines, (is_full, columns))

    def test_off(self) -> None:
        """The status says that the machine is off, until it has started again."""
        self.begin()
        self.attach()
        line = "  machine     the machine was powered off; not started again yet"
        notice = Notice("off", NoticeKind.INTERRUPTED, why="the machine was powered off")
        for each, lines in ((notice, 1), (RESTARTED, 0)):
            self.session.notice(each)
            self.assertEqual(self.status().count(line), lines)

    def test_smaller_window_of_lines(self) -> None:
        """
        The same holds for a program that draws on the usual screen, such as ``top``, also with more
        rows than the observer's window has; not for a larger window, nor for lines.
        """
        stream = self.begin_observing(act=self.fail, draw=lambda _: None)
        picture = b"\x1b[?25l\x1b[H" + b"a row\r\n" * 38 + b"last"
        line = "[twisted-exec: bob's window is {} and yours 200x24: this picture is incomplete; enlarge your window]"
        lines = []
        for output, size, is_told in (
            (b"$ ls\r\n" * 30, (240, 40), False),
            (picture, (240, 40), True),
            (picture, (240, 40), False),
            (b"\x1b[?25l\x1b[Hlast", (100, 24), False),
            (picture, (200, 40), True),
        ):
            self.attended(stream, *size)
            self.session.data_received(output)
            self.clock.advance(1)
            lines += [line.format("x".join(map(str, size)))] * is_told
            self.assertEqual(self.covering(), lines)
        self.assertEqual(self.refreshed, [])
        self.resized(200, 40)
        self.clock.advance(1)
        self.assertEqual((self.covering(), self.redrawn), ([], 1))

    def test_larger_window(self) -> None:
        """The picture may be wrong in a larger window, too; without a difference nobody reads anything."""
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 24)
        self.assertEqual(self.covering(), [])
        self.attended(stream, 200, 20)
        line = "[twisted-exec: bob's window is {0} and yours 200x24: this picture may be wrong at times; make your window {0}]"
        lines = [line.format("200x20")]
        self.assertEqual(self.covering(), lines)
        self.attended(stream, 100, 20)
        self.assertEqual(self.covering(), [*lines, line.format("100x20")])

    def test_refreshed(self) -> None:
        """
        The server draws the picture again after a program's output, in a window of another size, at
        most each two seconds.
        """
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 24)
        self.session.data_received(b"a screen")
        self.clock.advance(1)
        self.assertEqual(self.refreshed, [])
        self.attended(stream, 100, 24)
        self.session.data_received(b"a screen")
        self.clock.advance(0.5)
        self.assertEqual(self.refreshed, [1.5])
        self.session.show(b"the picture")
        self.clock.advance(10)
        self.assertEqual(self.refreshed, [1.5])
        for _ in range(12):
            self.session.data_received(b"more of it")
            self.clock.advance(0.25)
        self.assertEqual(self.refreshed, [1.5, 12, 14])
        for seconds in (1.5, 8):
            self.clock.advance(seconds)
        self.assertEqual(self.refreshed, [1.5, 12, 14, 16])
        for is_full, columns in ((False, 100), (True, 200)):
            self.is_full = is_full
            self.attended(stream, columns, 24)
            self.session.data_received(b"more of it")
            self.clock.advance(3)
        self.assertEqual(len(self.refreshed), 4)

    def test_resized_window(self) -> None:
        """
        An observer's window that is resized is drawn again by the server, because the machine's
        program does not know its size; messages about earlier sizes go.
        """
        stream = self.begin_observing()
        self.is_full = True
        self.attended(stream, 200, 40)
        line = "[twisted-exec: bob's window is 200x40 and yours {}: this picture is incomplete; enlarge your window]"
        for rows, lines, redrawn in (
            (24, [line.format("200x24")], 0),
            (30, [line.format("200x30")], 1),
            (40, [], 2),
            (24, [line.format("200x24")], 3),
        ):
            if redrawn:
                for each in (rows - 1, rows):
                    self.resized(200, each)
                    self.session.data_received(b"more of it")
                self.clock.advance(0.3)
            self.assertEqual((self.covering(), self.redrawn), (lines, redrawn))
        self.is_full = False
        self.resized(200, 30)
        self.clock.advance(0.3)
        self.assertEqual(self.redrawn, 3)

    def test_smaller_window_untold(self) -> None:
        """Neither a writer nor a user of ``--quiet`` or of a terminal that cannot show it reads it."""
        for settings in ({}, {"quiet": True}, {"shows_more": False}):
            stream = self.begin_observing(**settings)
            if not settings:
                self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.WRITER))
            self.is_full = True
            self.attended(stream, 240, 40)
            self.assertEqual(self.covering(), [], settings)

    def test_place(self) -> None:
        """The status and the help begin with the machine, its namespace and its server."""
        self.begin(place=lambda: "vm (default) at https://server")
        self.attach()
        self.assertEqual(self.status()[0], "vm (default) at https://server")
        self.session.typed(b"~?")
        self.assertTrue(self.said[-1].startswith("vm (default) at https://server\nAt the start"))

    def test_outage(self) -> None:
        """During an outage the status says since when, and why, and why it goes on."""
        self.begin()
        stream = self.attach()
        self.clock.advance(60)
        self.session.outage("the server has not answered for 20 seconds")
        self.clock.advance(12)
        first = self.status()[0]
        reason = "the server has not answered for 20 seconds"
        self.assertEqual(first, f"connection lost 12.0 s ago ({reason}); reconnecting")
        self.session.resumed(12, 0, 0)
        self.session.outage(LOST)
        self.assertEqual(self.status()[0], "connection lost 0.0 s ago; reconnecting")
        stream.hindrance = "cannot reach https://server: Connection refused"
        self.assertEqual(
            self.status()[0], f"connection lost 0.0 s ago; reconnecting: {stream.hindrance}"
        )

    def test_roles(self) -> None:
        """The status names the writer, if a notice did."""
        self.begin()
        self.attach()
        for notice, writer in (
            (Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, "bob"), "bob"),
            (Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER), "nobody"),
        ):
            self.session.notice(notice)
            lines = ["  role        observer", f"  writer      {writer}"]
            self.assertEqual(self.status()[2:4], lines)
        self.session.notice(Notice("x", NoticeKind.ROLE, NoticeRole.WRITER))
        self.assertIn("  role        writer", self.status())
        self.begin(read_only=True)
        self.attach()
        self.assertIn("  role        observer", self.status())

    def test_ordinary(self) -> None:
        """An ordinary session says that a loss ends it."""
        self.begin()
        self.session.attached(FakeStream())
        status = self.status()
        self.assertEqual(status[0], "connected for 0.0 s")
        self.assertIn("  resumable   no: the session ends if its connection is lost", status)

    def test_not_connected(self) -> None:
        """Before the session is connected the status is only why it is not."""
        self.begin()
        self.assertEqual(self.status(), ["not connected yet"])
        self.session.problem = "https://server: connection refused"
        self.assertEqual(self.status(), ["not connected yet: https://server: connection refused"])

    def test_stopped(self) -> None:
        """While the server of an earlier session is stopped, the status has the time since then."""
        self.begin()
        self.session.discard_input(interrupts=True)
        self.session.problem = "no kubeconfig"
        self.clock.advance(125)
        self.assertEqual(self.status(), ["not connected for 2 min 5 s: no kubeconfig"])
