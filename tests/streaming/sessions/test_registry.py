"""
Tests for :mod:`twisted_exec.streaming.sessions.registry`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api.status import Forbidden, ServiceUnavailable, TooManyRequests
from twisted_exec.program.audit import Trail
from twisted_exec.program.metrics import metrics_text, new_registry
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    RESTARTING,
    RESUMED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)
from twisted_exec.streaming.sessions.registry import Session, SessionLife, Sessions
from twisted_exec.streaming.subject import Subject


class Carried:
    """A stream that records its endings and cuts."""

    def __init__(self, session: Session, *, resumable: bool = False) -> None:
        self.endings: list[Ending] = []
        self.cuts = 0
        supersede = self.cut if resumable else None
        session.carry(StreamDouble(self.endings.append, self.cut, supersede=supersede))

    def cut(self) -> None:
        self.cuts += 1


class Watching:
    """A watcher that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, tuple[int, int]]] = []

    def began(self, session: Session) -> None:
        self.calls.append(("began", session.subject.session, session.counts()))

    def ended(self, session: Session) -> None:
        self.calls.append(("ended", session.subject.session, session.counts()))


class WatcherTests(SynchronousTestCase):
    """Tests for the watcher of sessions."""

    def setUp(self) -> None:
        self.sessions = Sessions(Trail(AuditList(), "apiserver", Clock()))
        self.watcher = self.sessions.watcher = Watching()

    def test_calls(self) -> None:
        """The watcher is called when a stream begins and ends, and can read the byte counts."""
        session = self.sessions.open(Subject("s-1"))
        self.assertEqual(self.watcher.calls, [])
        session.carry(StreamDouble(counts=lambda: (3, 4)))
        session.over("client closed")
        session.over("again")
        self.assertEqual(self.watcher.calls, [("began", "s-1", (3, 4)), ("ended", "s-1", (3, 4))])
        self.assertEqual(session.counts(), (0, 0))

    def test_no_stream(self) -> None:
        """The watcher is not called for sessions without a stream."""
        self.sessions.open(Subject("s-1")).over("refused", code=502)
        late = self.sessions.open(Subject("s-2"))
        late.over("client closed")
        late.carry(StreamDouble())
        self.assertEqual(self.watcher.calls, [])


class SessionsTests(SynchronousTestCase):
    """Tests for :class:`Sessions`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.records = AuditList()
        self.registry = new_registry(process=False)
        self.sessions = Sessions(
            Trail(self.records, "poollet", self.clock),
            SessionMetrics(self.registry),
            SessionLimits(3, 2),
        )

    def metric(self, name: str) -> float:
        for line in metrics_text(self.registry).decode().splitlines():
            if line.startswith(f"twisted_exec_{name} "):
                return float(line.split()[1])
        return 0.0

    def test_life(self) -> None:
        """A session has one audit start and one audit end, and counts once."""
        session = self.sessions.open(Subject("s1", user="ann", machine="vm"))
        self.assertEqual(len(self.sessions), 1)
        self.assertEqual([each.session for each in self.sessions.subjects()], ["s1"])
        Carried(session)
        self.assertEqual(self.metric("sessions_active"), 1)
        session.over("client closed", bytes_to_machine=3, bytes_to_user=5)
        session.over("again")
        self.assertEqual(len(self.sessions), 0)
        start, end = self.records
        self.assertEqual((start["event"], start["user"], start["machine"]), ("start", "ann", "vm"))
        self.assertEqual(
            (end["event"], end["reason"], end["bytes_to_machine"], end["bytes_to_user"]),
            ("end", "client closed", 3, 5),
        )
        self.assertEqual(self.metric("sessions_active"), 0)
        self.assertEqual(self.metric('bytes_total{direction="to_user"}'), 5)

    def test_never_carried(self) -> None:
        """A session that never got a stream counts as a refusal."""
        self.sessions.open(Subject("s1")).over("connection refused", code=502)
        self.assertEqual(self.records.ends(), [("connection refused", 502)])
        self.assertEqual(self.metric('sessions_refused_total{code="502"}'), 1)
        self.assertEqual(self.metric("sessions_opened_total"), 0)

    def test_refused(self) -> None:
        """A refused request that opened no session is counted and recorded too."""
        self.sessions.refused(Subject("s1", user="ann"), 403, "forbidden")
        self.assertEqual(self.records.ends(), [("forbidden", 403)])
        self.assertEqual(len(self.records), 2)
        self.assertEqual(self.metric('sessions_refused_total{code="403"}'), 1)

    def test_34_limits(self) -> None:
        """Sessions are limited per user and in total; a session that ends frees its place."""
        first = self.sessions.open(Subject("1", user="ann"))
        self.sessions.open(Subject("2", user="ann"))
        with self.assertRaises(TooManyRequests) as caught:
            self.sessions.open(Subject("3", user="ann"))
        self.assertEqual(caught.exception.retry_after_seconds, 10)
        self.assertIn("'ann' has 2 sessions", caught.exception.message)
        self.sessions.open(Subject("4", user="bob"))
        with self.assertRaises(TooManyRequests):
            self.sessions.open(Subject("5", user="cyd"))
        first.over("client closed")
        self.sessions.open(Subject("6", user="cyd"))
        self.assertEqual(len(self.sessions), 3)
        self.assertEqual([code for _, code in self.records.ends()], [429, 429, None])

    def test_resumed(self) -> None:
        """
        A session that resumes another one does not count beside it, and replaces it when the next hop
        has resumed it.
        """
        old, other = (Subject(name, user="ann", uid="u-1") for name in ("1", "2"))
        first = self.sessions.open(old)
        Carried(first, resumable=True)
        self.sessions.open(other)
        with self.assertRaises(TooManyRequests):  # of a session that is not here
            self.sessions.open(replace(old, session="3"), resumes="x")
        second = self.sessions.open(replace(old, session="4"), resumes="1")
        with self.assertRaises(TooManyRequests):  # one at a time
            self.sessions.open(replace(old, session="5"), resumes="1")
        self.assertTrue(self.sessions.is_being_resumed(Subject("1", user="ann")))
        self.assertIs(first.life, SessionLife.CARRIED)
        Carried(second)
        self.assertFalse(self.sessions.is_being_resumed(Subject("1", user="ann")))
        self.assertIs(first.life, SessionLife.SUPERSEDED)
        self.assertEqual(self.metric("sessions_resumed_total"), 1)
        first.over("client lost")
        self.assertEqual(self.records.ends()[-1], (RESUMED, None))
        starts = [each for each in self.records if each["event"] == "start"]
        self.assertEqual([each.get("resumes") for each in starts], [None, None, "x", "1", "1"])
        with self.assertRaises(TooManyRequests):
            self.sessions.open(Subject("6", user="ann"))

    def test_resumed_by_another(self) -> None:
        """Nobody replaces another user's session, or one at another machine, by naming it."""
        first = self.sessions.open(Subject("1", user="ann", uid="u-1"))
        Carried(first, resumable=True)
        self.sessions.limits = SessionLimits(9, 9)
        for number, (user, uid) in enumerate((("bob", "u-1"), ("ann", "u-2"))):
            Carried(self.sessions.open(Subject(f"x-{number}", user=user, uid=uid), resumes="1"))
        self.assertIs(first.life, SessionLife.CARRIED)

    def test_refuse_resume(self) -> None:
        """A session that was deleted while its user was absent cannot be resumed."""
        self.sessions.refuse_resume("1", "ada deleted the console session vm-1")
        with self.assertRaises(Forbidden):
            self.sessions.open(Subject("2", user="ann"), resumes="1")
        self.assertEqual(
            self.records.ends(), [("ada deleted the console session vm-1", Forbidden.code)]
        )
        for number in range(1000):
            self.sessions.refuse_resume(f"x-{number}", "deleted")
        self.sessions.open(Subject("3", user="ann"), resumes="1")  # its key is void by then

    def test_not_resumed(self) -> None:
        """A refusal leaves the session that was to be resumed as it is."""
        first = self.sessions.open(Subject("1", user="ann"))
        Carried(first, resumable=True)
        self.sessions.open(Subject("2", user="ann"), resumes="1").over("not found", code=404)
        self.assertFalse(self.sessions.is_being_resumed(Subject("1", user="ann")))
        self.assertIs(first.life, SessionLife.CARRIED)
        self.assertEqual(self.metric("sessions_resumed_total"), 0)
        self.assertNotIn("resumes", self.records[-1])

    def test_without_a_name(self) -> None:
        """Sessions whose user is not known are limited in total only."""
        for number in range(3):
            self.sessions.open(Subject(str(number)))
        with self.assertRaises(TooManyRequests) as caught:
            self.sessions.open(Subject("4"))
        self.assertIn("3 sessions are open here", caught.exception.message)

    def test_connections_beside(self) -> None:
        """Live sessions leave fewer descriptors for other connections."""
        self.sessions.limits = SessionLimits(300, 300, descriptors=1024)
        alone = self.sessions.connections_beside()
        for number in range(300):
            self.sessions.open(Subject(str(number)))
        self.assertLess(self.sessions.connections_beside(), alone)

    def test_closed(self) -> None:
        """A hop that is about to stop refuses new sessions, on record; open ones continue."""
        open_before = self.sessions.open(Subject("1", user="ann"))
        self.sessions.close("it is shutting down")
        with self.assertRaises(ServiceUnavailable) as caught:
            self.sessions.open(Subject("2", user="ann"))
        self.assertEqual(caught.exception.retry_after_seconds, 1)
        self.assertEqual(self.records.ends(), [("it is shutting down", 503)])
        self.assertEqual(self.metric('sessions_refused_total{code="503"}'), 1)
        self.assertEqual(len(self.sessions), 1)
        open_before.over("client closed")

    def test_by_id(self) -> None:
        """Sessions are found by id without looking at the others; an id may occur twice."""
        first, second, other = (self.sessions.open(Subject(name)) for name in ("s", "s", "t"))
        self.assertEqual(self.sessions.with_id("s"), [first, second])
        first.over("client closed")
        self.assertEqual(self.sessions.with_id("s"), [second])
        self.assertTrue(self.sessions.has("s"))
        second.over("client closed")
        self.assertEqual(self.sessions.with_id("s"), [])
        self.assertFalse(self.sessions.has("s"))
        self.assertEqual(self.sessions.with_id("t"), [other])

    def test_end(self) -> None:
        """The selected sessions end; only the first ending counts."""
        carried = {}
        for name, user in (("1", "ann"), ("2", "ann"), ("3", "bob")):
            carried[name] = Carried(self.sessions.open(Subject(name, user=user)))
        ending = Ending(REVOKED, "role removed")
        self.assertEqual(self.sessions.end(lambda subject: subject.user == "ann", ending), 2)
        self.sessions.end(lambda subject: True, Ending(SHUTTING_DOWN))
        self.assertEqual(carried["1"].endings, [ending])
        self.assertEqual(carried["3"].endings, [Ending(SHUTTING_DOWN)])

    def test_end_is_the_reason(self) -> None:
        """The reason from this side is the reason on record."""
        session = self.sessions.open(Subject("1"))
        Carried(session)
        session.end(Ending(MACHINE_DELETED))
        session.over("client closed")
        session.end(Ending(SHUTTING_DOWN))
        session.cut()
        self.assertEqual(self.records.ends(), [(MACHINE_DELETED, None)])

    def test_end_before_it_is_carried(self) -> None:
        """A session without a stream yet ends as soon as it has one."""
        session = self.sessions.open(Subject("1"))
        session.end(Ending(MACHINE_DELETED))
        session.cut()
        self.assertEqual(Carried(session).endings, [Ending(MACHINE_DELETED)])

    def test_over_before_it_is_carried(self) -> None:
        """A stream that is lost during its set-up does not count."""
        session = self.sessions.open(Subject("1"))
        session.over("backend lost")
        carried = Carried(session)
        session.end(Ending(MACHINE_DELETED))
        self.assertEqual(carried.endings, [])
        self.assertEqual(self.metric("sessions_active"), 0)

    def test_drain(self) -> None:
        """Draining waits until the last session is over."""
        sessions = [self.sessions.open(Subject(name, user=name)) for name in "12"]
        carried = [Carried(session) for session in sessions]
        drained = self.sessions.drain(self.clock, 5, "exec-poollet")
        ((ending,), _) = (each.endings for each in carried)
        self.assertEqual(ending.reason, SHUTTING_DOWN)
        self.assertIn("exec-poollet", ending.message)
        sessions[0].over("x")
        self.assertNoResult(drained)
        sessions[1].over("x")
        self.successResultOf(drained)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(carried[0].cuts, 0)

    def test_drain_resumable(self) -> None:
        """
        Users who can resume a session read that the program restarts, and all others that it is over.  A session
        that is being ended for another reason reads that.
        """
        self.sessions.limits = SessionLimits(9, 9)
        sessions = [self.sessions.open(Subject(name)) for name in "123"]
        carried = [Carried(session) for session in sessions]
        for session in sessions[:2]:
            session.resumable_seconds = 60
        sessions[1].end(Ending(REVOKED))
        self.sessions.drain(self.clock, 5, "exec-poollet")
        self.assertEqual([each.cuts for each in carried], [0, 0, 0])
        reasons = [[ending.reason for ending in each.endings] for each in carried]
        self.assertEqual(reasons, [[RESTARTING], [REVOKED], [SHUTTING_DOWN]])
        self.assertIn("exec-poollet", carried[0].endings[0].message)
        sessions[0].over("client closed", is_lost=True)
        self.assertEqual(self.records.ends(), [(RESTARTING, None)])
        self.assertIs(sessions[0].life, SessionLife.LOST)

    def test_drain_rejoined(self) -> None:
        """A stream that the previous hop rejoins is cut, unless it ends for another reason."""
        self.sessions.limits = SessionLimits(9, 9)
        sessions = [self.sessions.open(Subject(name)) for name in "12"]
        carried = [Carried(session) for session in sessions]
        for session in sessions:
            session.is_rejoined_by_hop = True
        sessions[1].end(Ending(REVOKED))
        self.sessions.drain(self.clock, 5, "exec-poollet")
        self.assertEqual([each.cuts for each in carried], [1, 0])
        sessions[0].over("cut")
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])

    def test_drain_nothing(self) -> None:
        """Without sessions there is nothing to wait for."""
        self.successResultOf(self.sessions.drain(self.clock, 5, "exec-poollet"))

    def test_drain_in_vain(self) -> None:
        """Sessions that do not end in time are cut."""
        carried = Carried(self.sessions.open(Subject("1")))
        drained = self.sessions.drain(self.clock, 5, "exec-poollet")
        self.clock.advance(5)
        self.successResultOf(drained)
        self.assertEqual(carried.cuts, 1)
        self.assertEqual(self.records.ends(), [(SHUTTING_DOWN, None)])

    def test_drain_by_cutting(self) -> None:
        """A cut may end the session in the same call."""
        session = self.sessions.open(Subject("1"))
        session.carry(StreamDouble(lambda _: None, lambda: session.over("cut")))
        drained = self.sessions.drain(self.clock, 5, "exec-poollet")
        self.clock.advance(5)
        self.successResultOf(drained)
        self.assertEqual(len(self.sessions), 0)
