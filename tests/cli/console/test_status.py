"""
Tests for :mod:`twisted_exec.cli.console.status`, in a session.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.address import IPv4Address

from tests.cli.console.test_outage import OutageCase, ResumableStream
from tests.cli.console.test_session import FakeStream
from twisted_exec.console.notices import RESTARTED
from twisted_exec.streaming.remotecommand.client import LOST
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole, OpenRecording
from twisted_exec.wire.resume import RoundTrip


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
        self.assertIn("  round trip  unknown; no answer for 7 s", self.status())

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
        by_one = OpenRecording("all", "bob", ("lab/a",))
        by_two = OpenRecording("all", "bob", ("lab/a", "lab/b"))
        lines: list[str] = []
        for recordings, line in (
            ((), "no"),
            ((bob,), "yes, for bob (input: all)"),
            ((bob, eve), "yes, for bob (input: all), somebody (input: none)"),
            ((), "no"),
            ((eve,), "yes, for somebody (input: none)"),
            ((by_one,), "yes, for ConsolePolicy lab/a (input: all)"),
            ((by_two,), "yes, for ConsolePolicies lab/a, lab/b (input: all)"),
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
                "This console is recorded for ConsolePolicy lab/a (input: all).",
                "This console is recorded for ConsolePolicies lab/a, lab/b (input: all).",
            ],
        )

    def test_own_recording(self) -> None:
        """The recording of the session itself is not announced again, but others are."""
        self.begin()
        stream: Any = ResumableStream()
        stream.recorded_input = "masked"
        self.session.attached(stream)
        own, other = OpenRecording("masked", "ann"), OpenRecording("all", "bob")
        named = OpenRecording("masked", "ann", ("lab/a",))  # the server reads of the policy later
        for recordings in ((), (own,), (named,), (own, other)):
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

    def test_off(self) -> None:
        """The status says that the machine is off, until it has started again."""
        self.begin()
        self.attach()
        line = "  state       the machine was powered off; not started again yet"
        notice = Notice("off", NoticeKind.INTERRUPTED, why="the machine was powered off")
        for each, lines in ((notice, 1), (RESTARTED, 0)):
            self.session.notice(each)
            self.assertEqual(self.status().count(line), lines)

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
        self.assertEqual(first, f"connection lost 12 s ago ({reason}); reconnecting")
        self.session.resumed(12, 0, 0)
        self.session.outage(LOST)
        self.assertEqual(self.status()[0], "connection lost 0 s ago; reconnecting")
        stream.hindrance = "cannot reach https://server: Connection refused"
        self.assertEqual(
            self.status()[0], f"connection lost 0 s ago; reconnecting: {stream.hindrance}"
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
        self.assertEqual(status[0], "connected for 0 s")
        self.assertIn("  resumable   no: the session ends if its connection is lost", status)

    def test_not_connected(self) -> None:
        """Before the session is connected the status is only why it is not."""
        self.begin()
        self.assertEqual(self.status(), ["not connected yet"])
