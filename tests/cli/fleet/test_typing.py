"""Tests for :mod:`twisted_exec.cli.fleet.typing`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import Conflict, Forbidden
from twisted_exec.cli.fleet.typing import CONCURRENT_OPENINGS, SETTLE_SECONDS, TypedSessions
from twisted_exec.console.notices import HINT
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.stream import ConsoleStream
from twisted_exec.wire.marks import Attendance, Notice, NoticeKind, NoticeRole, OpenRecording


class Stream(ConsoleStream):
    """A console that accepts everything."""

    is_resumable = True

    def __init__(self) -> None:
        self.typed = b""
        self.has_left = False
        self.producer: Any = None

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def write(self, data: bytes) -> None:
        self.typed += data

    def leave(self) -> None:
        self.has_left = True


class SessionsTests(SynchronousTestCase):
    """Typing to several machines."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.users: dict[int, Any] = {}
        self.opening: dict[int, Deferred[Any]] = {}
        self.printed: list[int] = []
        self.noticed: list[str] = []
        self.changes = 0
        self.sessions = TypedSessions(
            self.open,  # type: ignore[arg-type]
            [f"web-{number}" for number in range(40)],
            self.clock,
            self.printed.append,
            self.change,
            self.noticed.append,
        )

    def open(self, index: int, user: Any) -> Deferred[Any]:
        self.users[index] = user
        self.opening[index] = Deferred()
        return self.opening[index]

    def change(self) -> None:
        self.changes += 1

    def attach(self, *indices: int) -> list[Stream]:
        """Attach machines, and wait until they have said who the writer is."""
        streams = []
        for index in indices:
            streams.append(Stream())
            self.users[index].attached(streams[-1])
            self.opening[index].callback(streams[-1])
        self.clock.advance(SETTLE_SECONDS)
        return streams

    def test_type(self) -> None:
        """Keys go to all open machines, and to no others."""
        self.sessions.open({1, 2})
        self.sessions.type(b"early")
        self.assertTrue(self.sessions.is_opening)
        streams = self.attach(1, 2)
        self.assertEqual((self.sessions.is_opening, self.sessions.usable), (False, 2))
        self.sessions.type(b"ls\r")
        self.assertEqual([each.typed for each in streams], [b"ls\r", b"ls\r"])
        self.users[1].data_received(b"ls")
        self.assertEqual(self.printed, [1])
        self.sessions.close()
        self.sessions.type(b"late")
        self.assertEqual([each.typed for each in streams], [b"ls\r", b"ls\r"])
        self.assertTrue(all(each.has_left for each in streams))

    def test_clusters(self) -> None:
        """Consoles of a cluster that is silent hold up none of another one."""
        sessions = TypedSessions(
            self.open,  # type: ignore[arg-type]
            [f"web-{number}" for number in range(40)],
            self.clock,
            self.printed.append,
            self.change,
            self.noticed.append,
            lambda index: "ab"[index == 39],
        )
        sessions.open(set(range(40)))
        self.assertEqual(list(self.opening), [*range(CONCURRENT_OPENINGS), 39])

    def test_refused(self) -> None:
        """A machine that refuses, one with another writer, and one that ends get no keys."""
        self.sessions.open({1, 2, 3})
        self.opening[1].errback(Forbidden("not you"))
        streams = self.attach(2, 3)
        self.assertEqual(self.sessions.problem, "web-1: forbidden: not you")
        self.users[3].notice(Notice(f"you have taken over this console from {HINT}"))
        self.assertEqual(self.sessions.problem, "web-1: forbidden: not you")
        self.users[2].notice(Notice("x", NoticeKind.ROLE, NoticeRole.OBSERVER, "ada"))
        self.users[3].ended(Ending("Revoked"))
        self.sessions.type(b"x")
        self.assertEqual([each.typed for each in streams], [b"", b""])
        self.assertEqual(self.sessions.usable, 0)
        self.assertEqual(
            self.sessions.problem,
            "web-1: forbidden: not you; web-2: the writer is ada; web-3: session ended: Revoked",
        )

    def test_powered_off(self) -> None:
        """Machines that are powered off are named together, without the command for each."""
        self.sessions.open({1, 2, 3})
        for index in (1, 3):
            off = Conflict(f'machine "web-{index}" is powered off; power it on: kubectl patch ...')
            self.opening[index].errback(because(Obstacle.POWERED_OFF, off))
        self.assertEqual(self.sessions.problem, "web-1, web-3: powered off")

    def test_stuck(self) -> None:
        """A machine that takes no input is left out, and does not delay the others."""
        self.sessions.open({1, 2})
        stuck, other = self.attach(1, 2)
        stuck.producer.pauseProducing()
        for _ in range(70):
            self.sessions.type(b"k" * 1024)
        self.assertEqual(len(other.typed), 70 * 1024)
        self.assertEqual(self.sessions.problem, "web-1: the machine takes no more input")

    def test_uncertain(self) -> None:
        """After a loss the user reads how many keys may be lost."""
        self.sessions.open({1})
        self.attach(1)
        self.users[1].resumed(3.0, 2, 0)
        self.assertEqual(self.noticed, ["web-1: 2 keys may not have reached the machine"])

    def test_recorded(self) -> None:
        """For whom consoles are recorded, and which input, is known as long as they are."""
        self.sessions.open({1, 2, 3})
        recorded = Stream()
        recorded.recorded_input = "none"
        self.users[3].attached(recorded)
        self.attach(1, 2)
        changes = self.changes
        ada, bob = OpenRecording("masked", "ada"), OpenRecording("all", "bob")
        for index, recordings in ((1, (ada, bob)), (2, (ada,)), (2, ())):
            self.users[index].attendance_changed(Attendance(1, recordings=recordings))
        self.assertEqual(
            self.sessions.recorded,
            {
                1: "recorded for ada (masked), bob (all)",
                3: "recorded (none)",
            },
        )
        self.assertEqual(self.changes, changes + 3)
        self.users[3].ended(Ending("Revoked"))
        self.assertEqual(list(self.sessions.recorded), [1])
        self.sessions.close()
        self.assertEqual(self.sessions.recorded, {})

    def test_given_up(self) -> None:
        """Consoles that are being opened are closed, and change nothing any more."""
        self.sessions.open(set(range(40)))
        self.assertLess(len(self.opening), 40)
        self.sessions.close()
        changes = self.changes
        self.clock.advance(5)
        self.assertEqual((self.changes, self.clock.getDelayedCalls()), (changes, []))
