"""
Tests for :mod:`twisted_exec.streaming.sessions.guard`; how the programs use it is
``contracts.session_guard``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api.status import Forbidden, NotFound, ServiceUnavailable, Unauthorized
from twisted_exec.auth.delegated import MAX_CACHE_SECONDS
from twisted_exec.program.audit import Trail
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.program.turns import REST_SECONDS, URGENT_TURN_SECONDS
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF, REVOKED, Ending
from twisted_exec.streaming.sessions.endings import MachineKey
from twisted_exec.streaming.sessions.guard import (
    AT_ONCE,
    FIRST_HINT_SECONDS,
    HINT_SECONDS,
    LATER_HOP_SECONDS,
    LONGEST_HINT_SECONDS,
    LOOK_SECONDS,
    REVIEW_SECONDS,
    SessionGuard,
)
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.files import Reloading
from twisted_exec.wire.session_terms import FULL, Right, Terms

AWAY = ServiceUnavailable("away")


def write(path: str, content: bytes) -> str:
    Path(path).write_bytes(content)
    return path


@dataclass(frozen=True)
class Given(SessionEvidence):
    """The evidence of one session."""

    session: str


class Reviewer:
    """
    Decides as the test says.

    :ivar problems: by session.
    :ivar reviewed: sessions, in order.
    :ivar terms: of all sessions.
    :ivar pending: while a list, reviews wait in it.
    """

    def __init__(self) -> None:
        self.problems: dict[str, Exception] = {}
        self.reviewed: list[str] = []
        self.terms = FULL
        self.pending: list[Deferred[Terms]] | None = None

    def review(self, subject: Subject, evidence: Given) -> Deferred[Terms]:
        assert evidence.session == subject.session
        self.reviewed.append(subject.session)
        if self.pending is not None:
            self.pending.append(Deferred())
            return self.pending[-1]
        problem = self.problems.get(subject.session)
        return succeed(self.terms) if problem is None else fail(problem)


class GuardCase(SynchronousTestCase):
    """A guard whose reviews the test answers."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sessions = Sessions(Trail(AuditList(), "poollet", self.clock))
        self.reviewer: Any = Reviewer()
        self.endings: dict[str, Ending] = {}
        self.now = 0.0
        self.guard = SessionGuard(
            self.sessions, self.reviewer, self.clock, now=lambda: self.now + self.clock.seconds()
        )
        self.guard.startService()
        self.addCleanup(self.guard.stopService)

    def open(self, *names: str) -> None:
        for name in names:
            self.open_with(name, Given(name))

    def open_with(self, name: str, evidence: SessionEvidence | None) -> Session:
        def end(ending: Ending) -> None:
            self.endings[name] = ending

        session = self.sessions.open(Subject(name), evidence)
        session.carry(StreamDouble(end))
        return session

    def next_round(self) -> list[str]:
        """The sessions of the next round of reviews."""
        self.reviewer.reviewed.clear()
        self.clock.advance(REVIEW_SECONDS)
        return list(self.reviewer.reviewed)


class TermsTests(GuardCase):
    """A review returns the present terms of a session."""

    def test_changed(self) -> None:
        """The session is held to them."""
        held: list[Terms] = []
        session = self.sessions.open(Subject("a"), Given("a"))
        session.carry(StreamDouble(hold_to=held.append))
        for right in (Right.TAKEOVER, Right.OBSERVE, Right.OBSERVE, Right.TAKEOVER):
            self.reviewer.terms = Terms(right=right)
            self.next_round()
        self.assertEqual(held, [Terms(right=Right.OBSERVE), FULL])


class OpeningTests(GuardCase):
    """Changes while a session is being opened."""

    def begin(self, name: str) -> Given:
        """Return the evidence of a session whose gate begins now."""
        return Given(name, began=time.monotonic())

    def test_hint_meanwhile(self) -> None:
        """
        A session that was being opened during a hint is reviewed at once, however long that took:
        its permission may have been checked before the change, and the round that followed did not
        have the session yet.
        """
        evidence = {name: self.begin(name) for name in ("a", "b")}
        self.guard.review_soon()
        self.clock.pump([REVIEW_SECONDS] * 10)
        self.reviewer.problems["a"] = Forbidden("withdrawn")
        for name, each in evidence.items():
            self.open_with(name, each)
        self.assertEqual(self.reviewer.reviewed, ["a", "b"])
        self.assertEqual(self.endings, {"a": Ending(REVOKED, "withdrawn")})

    def test_hint_before(self) -> None:
        """A session whose gate began after the last hint is not reviewed when it opens."""
        self.guard.review_soon()
        self.open_with("a", self.begin("a"))
        self.assertEqual(self.reviewer.reviewed, [])
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])  # by the round

    def test_unknown_beginning(self) -> None:
        """After a hint, a session whose evidence does not say when it began is reviewed."""
        self.open("a")
        self.assertEqual(self.reviewer.reviewed, [])
        self.guard.review_soon()
        self.open("b")
        self.assertEqual(self.reviewer.reviewed, ["b"])


class TurnTests(GuardCase):
    """A round of reviews lets others have their turn."""

    def test_many(self) -> None:
        """Reviews take only some milliseconds of each reactor turn, however many sessions exist."""
        taken = 0.0005
        review = self.reviewer.review

        def slow(subject: Subject, evidence: Given) -> Deferred[Terms]:
            self.clock.rightNow += taken
            return cast("Deferred[Terms]", review(subject, evidence))

        self.reviewer.review = slow
        names = [f"s-{number}" for number in range(100)]
        self.open(*names)
        longest, before = 0, 0
        self.clock.advance(REVIEW_SECONDS)
        while len(self.reviewer.reviewed) > before:
            longest = max(longest, len(self.reviewer.reviewed) - before)
            before = len(self.reviewer.reviewed)
            self.clock.advance(REST_SECONDS)
        self.assertEqual(self.reviewer.reviewed, names)
        self.assertLessEqual(longest * taken, 0.004)

    def test_many_after_a_hint(self) -> None:
        """After a hint a thousand sessions are reviewed in a second, in short turns."""
        review, taken = self.reviewer.review, 0.0005

        def slow(subject: Subject, evidence: Given) -> Deferred[None]:
            self.clock.rightNow += taken
            return cast("Deferred[None]", review(subject, evidence))

        self.reviewer.review = slow
        self.open(*(f"s-{number}" for number in range(1000)))
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        longest = before = 0
        while self.clock.seconds() < HINT_SECONDS + 0.7:
            longest = max(longest, len(self.reviewer.reviewed) - before)
            before = len(self.reviewer.reviewed)
            self.clock.advance(0.0005)
        self.assertEqual(len(self.reviewer.reviewed), 1000)
        self.assertLessEqual(longest * taken, URGENT_TURN_SECONDS + taken)

    def test_over_before_its_turn(self) -> None:
        """A session that ends while others are reviewed is not reviewed any more."""
        sessions = [self.open_with(name, Given(name)) for name in ("a", "b")]
        review = self.reviewer.review

        def slow(subject: Subject, evidence: Given) -> Deferred[Terms]:
            self.clock.rightNow += 1
            return cast("Deferred[Terms]", review(subject, evidence))

        self.reviewer.review = slow
        self.clock.advance(REVIEW_SECONDS)
        sessions[1].over("client closed")
        self.clock.advance(REST_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_stopped_between_turns(self) -> None:
        """A guard that stops between two turns cancels the reviews that wait for an answer."""
        self.reviewer.pending = []
        review = self.reviewer.review

        def slow(subject: Subject, evidence: Given) -> Deferred[Terms]:
            self.clock.rightNow += 1
            return cast("Deferred[Terms]", review(subject, evidence))

        self.reviewer.review = slow
        self.open("a", "b")
        self.clock.advance(REVIEW_SECONDS)
        self.successResultOf(self.guard.stopService())
        (pending,) = self.reviewer.pending
        self.assertTrue(pending.called)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class DecisionTests(GuardCase):
    """The consequence of each outcome of a review."""

    def test_within_half_a_minute(self) -> None:
        """A revoked permission ends the session in less than 30 seconds, cached answers included."""
        self.open("a", "b")
        self.assertLess(REVIEW_SECONDS + MAX_CACHE_SECONDS, 30)
        self.reviewer.problems["a"] = Forbidden("not any more")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"a": Ending(REVOKED, "not any more")})

    def test_unknown_user(self) -> None:
        """A credential that is no longer valid ends the session too."""
        self.open("a", "b")
        self.reviewer.problems["b"] = Unauthorized("the token has expired")
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.endings, {"b": Ending(REVOKED, "the token has expired")})

    def test_no_answer(self) -> None:
        """Any other error ends nothing; the log has one line for as long as it lasts."""
        self.open("a", "b")
        for problem in (AWAY, NotFound("reviews", "x", message="no such API")):
            self.reviewer.problems["a"] = problem
            with capturedLogs() as events:
                self.assertEqual([self.next_round() for _ in range(3)], [["a", "b"]] * 3)
            logged = [formatEvent(event) for event in events]
            self.assertEqual(logged, [f"sessions cannot be reviewed: {problem.message}"])
            self.reviewer.problems.clear()
            self.next_round()
        self.assertEqual(self.endings, {})

    def test_bug_in_one_review(self) -> None:
        """A bug in one review is logged, and keeps no other session from its review."""
        self.open("a", "b")
        self.reviewer.problems = {"a": LookupError("ours"), "b": Forbidden("not any more")}
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.assertEqual(list(self.endings), ["b"])

    def test_cancelled_review(self) -> None:
        """A review that fails with CancelledError ends neither the session nor the guard."""
        self.open("a")
        self.reviewer.problems["a"] = CancelledError()
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(CancelledError)), 1)
        self.reviewer.problems.clear()
        self.assertEqual((self.next_round(), self.endings), (["a"], {}))

    def test_bug_in_the_guard(self) -> None:
        """A bug that concerns a whole round is logged, and the next round happens."""
        self.open("a")
        live = self.sessions.live
        self.sessions.live = lambda: [][0]  # type: ignore[method-assign]
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)
        self.sessions.live = live  # type: ignore[method-assign]
        self.assertEqual(self.next_round(), ["a"])

    def test_no_evidence(self) -> None:
        """A session without evidence, such as one of a one-time token, is not reviewed."""
        self.open_with("a", None)
        self.assertEqual(self.next_round(), [])

    def test_ending_already(self) -> None:
        """A session that is already ending is not reviewed again."""
        self.open("a", "b")
        self.sessions.end(lambda subject: subject.session == "a", Ending("Completed"))
        self.assertEqual(self.next_round(), ["b"])

    def test_before_the_stream(self) -> None:
        """A session is reviewed before it has a stream, and ends as soon as it has."""
        session = self.sessions.open(Subject("a"), Given("a"))
        self.reviewer.problems["a"] = Forbidden("not any more")
        self.clock.advance(REVIEW_SECONDS)
        endings: list[Ending] = []
        session.carry(StreamDouble(endings.append))
        self.assertEqual(endings, [Ending(REVOKED, "not any more")])


class ExpiryTests(GuardCase):
    """The end of credentials."""

    def open_until(self, name: str, expires: float) -> Session:
        return self.open_with(name, Given(name, expires=expires))

    def test_moment(self) -> None:
        """A session ends in the moment in which its credential does, without a review."""
        self.open_until("a", 7.5)
        self.open("b")
        self.clock.advance(7.4)
        self.assertEqual(self.endings, {})
        self.clock.advance(0.1)
        message = "the certificate or token of this session expired at 1970-01-01T00:00:07Z"
        self.assertEqual(list(self.endings), ["a"])
        self.assertEqual(self.endings["a"].reason, REVOKED)
        self.assertIn(message, self.endings["a"].message)
        self.assertEqual(self.reviewer.reviewed, [])

    def test_earlier(self) -> None:
        """Credentials end in any order, whatever the order of their sessions."""
        for name, moment in (("a", 300.0), ("b", 5.0), ("c", 200.0), ("d", 5.0)):
            self.open_until(name, moment)
        ends = {}
        for second in range(301):
            ends |= dict.fromkeys(self.endings.keys() - ends, second)
            self.clock.advance(1)
        self.assertEqual(ends, {"b": 5, "d": 5, "c": 200, "a": 300})

    def test_over(self) -> None:
        """A session that was over before is no reason to end another."""
        self.open_until("a", 5).over("client closed")
        self.open_until("b", 10)
        self.clock.advance(5)
        self.assertEqual(self.endings, {})
        self.clock.advance(5)
        self.assertEqual(list(self.endings), ["b"])

    def test_far(self) -> None:
        """A certificate for years needs no timer for years: no reactor could wait so long."""
        self.open_until("a", 4e9)
        self.assertLess(max(call.getTime() for call in self.clock.getDelayedCalls()), 100)

    def test_time_of_day(self) -> None:
        """A clock that is set forward ends sessions with the next look."""
        self.open_until("a", 1000)
        self.now = 2000.0
        self.clock.pump([1] * 60)
        self.assertEqual(list(self.endings), ["a"])

    def test_before_the_start(self) -> None:
        """Sessions from before the guard started count as well; a stopped one has no timer."""
        self.successResultOf(self.guard.stopService())
        self.open_until("a", 5)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.guard.startService()
        self.clock.advance(5)
        self.assertEqual(list(self.endings), ["a"])
        self.successResultOf(self.guard.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])


class FileTests(GuardCase):
    """Files of credentials, which may be replaced."""

    def setUp(self) -> None:
        super().setUp()
        self.successResultOf(self.guard.stopService())
        self.path = write(self.mktemp(), b"one")
        self.looks = 0
        self.guard = SessionGuard(
            self.sessions, self.reviewer, self.clock, files=lambda: [self.file]
        )
        self.file = Reloading([self.path], lambda content: content, self.clock)
        self.file.load()
        self.guard.startService()
        self.addCleanup(self.guard.stopService)

    def test_replaced(self) -> None:
        """Sessions are reviewed a third of a second after the file was replaced, with the new one."""
        self.open("a")
        self.clock.pump([0.1] * 20)
        self.assertEqual(self.reviewer.reviewed, [])
        write(self.path, b"another")
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.file.get(), b"another")
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.clock.pump([0.1] * 20)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_no_sessions(self) -> None:
        """Without sessions there is nothing to look at."""
        looks = []
        self.patch(self.file, "look", lambda: looks.append(1))
        self.clock.pump([0.1] * 20)
        self.assertEqual(looks, [])

    def test_stopped(self) -> None:
        """A guard that was stopped looks no more."""
        self.successResultOf(self.guard.stopService())
        self.assertEqual([each for each in self.clock.getDelayedCalls() if each.active()], [])


class MetricTests(GuardCase):
    """The time from the change, or from the decision, to the end of the session."""

    def setUp(self) -> None:
        super().setUp()
        self.registry = new_registry(process=False)
        self.sessions.metrics = SessionMetrics(self.registry)

    def figures(self, cause: str) -> list[float | None]:
        """Count and sum of the seconds, and the number of withdrawals that nobody reported."""
        name, labels = "twisted_exec_revocation_seconds", {"cause": cause}
        figures = [
            self.registry.get_sample_value(f"{name}{which}", labels) for which in ("_count", "_sum")
        ]
        unobserved = "twisted_exec_revocations_unobserved_total"
        return [*figures, self.registry.get_sample_value(unobserved, labels)]

    def test_hint(self) -> None:
        """A withdrawal counts from the first hint to the end of the session."""
        session = self.open_with("a", Given("a"))
        self.reviewer.problems["a"] = Forbidden("not any more")
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS / 2)
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS / 2)
        self.assertEqual(self.figures("permission"), [0, 0, 0])
        self.clock.advance(0.25)
        session.over("cut")
        self.assertEqual(self.figures("permission"), [1, HINT_SECONDS + 0.25, 0])

    def test_periodic(self) -> None:
        """A withdrawal that only a periodic review has found counts from the decision."""
        session = self.open_with("a", Given("a"))
        self.reviewer.problems["a"] = Unauthorized("not any more")
        self.clock.advance(REVIEW_SECONDS)
        self.clock.advance(0.5)
        session.over("cut")
        self.assertEqual(self.figures("credential"), [1, 0.5, 1])

    def test_others(self) -> None:
        """Credentials that end and objects that go have causes of their own; users who leave none."""
        sessions = [self.open_with(name, Given(name, expires=1)) for name in ("a", "b", "c")]
        sessions[2].over("client closed")
        self.guard.end(MachineKey("u"), Ending(MACHINE_DELETED))
        sessions.append(self.sessions.open(Subject("d", uid="u"), None))
        sessions[3].carry(StreamDouble(lambda ending: sessions[3].over("x")))
        self.guard.end(MachineKey("u"), Ending(MACHINE_DELETED))
        self.clock.advance(1)
        for session in sessions:
            session.over("cut")
        self.assertEqual(self.figures("object"), [1, 0, 0])
        self.assertEqual(self.figures("expired"), [2, 0, 0])
        self.assertEqual(self.figures("credential"), [0, 0, 0])


class SpacingTests(GuardCase):
    """Spacing of rounds, and the number of concurrent reviews."""

    def test_hint(self) -> None:
        """A burst of hints is one round, soon; the next one comes by the timer."""
        self.open("a")
        for _ in range(10):
            self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.clock.advance(REVIEW_SECONDS - HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a", "a"])

    def test_hints_without_end(self) -> None:
        """Hints that keep coming delay no round."""
        self.open("a")
        for _ in range(5):
            self.guard.review_soon()
            self.clock.advance(HINT_SECONDS / 2)
        self.assertEqual(self.reviewer.reviewed, ["a"] * 3)

    def test_hint_after_a_round(self) -> None:
        """A hint leads to a round at once, and one just after a round a little later."""
        self.open("a")
        self.guard.review_soon()
        self.clock.advance(FIRST_HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS - 0.01)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.clock.advance(0.01)
        self.assertEqual(self.reviewer.reviewed, ["a"] * 2)

    def be_later(self) -> None:
        """Let the guard be that of a hop behind another one, with a session and a hint."""
        self.successResultOf(self.guard.stopService())
        self.guard = SessionGuard(
            self.sessions, self.reviewer, self.clock, hint_seconds=LATER_HOP_SECONDS
        )
        self.guard.startService()
        self.addCleanup(self.guard.stopService)
        self.open("a")
        self.guard.review_soon()

    def ask(self) -> None:
        """Ask to end sessions, as the hop before does."""
        (asked,) = self.sessions.on_asked
        asked()

    def test_hop_before_is_busy(self) -> None:
        """A hop behind another one waits while that ends sessions, but not for long."""
        self.be_later()
        step = LATER_HOP_SECONDS / 2
        passed = 0.0
        while passed + step < LONGEST_HINT_SECONDS:
            self.clock.advance(step)
            passed += step
            self.ask()
        self.assertEqual(self.reviewer.reviewed, [])
        self.clock.advance(LONGEST_HINT_SECONDS - passed)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.ask()
        self.clock.advance(LONGEST_HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_hop_before_has_ended_its_work(self) -> None:
        """The review follows soon after the last request of the hop before."""
        self.be_later()
        self.clock.advance(LATER_HOP_SECONDS / 2)
        self.ask()
        self.clock.advance(LATER_HOP_SECONDS - 0.01)
        self.assertEqual(self.reviewer.reviewed, [])
        self.clock.advance(0.01)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_hint_in_a_later_hop(self) -> None:
        """A hop behind another one leaves it time to end the sessions."""
        self.be_later()
        self.clock.advance(LATER_HOP_SECONDS - 0.01)
        self.assertEqual(self.reviewer.reviewed, [])
        self.clock.advance(0.01)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_hint_just_before_the_timer(self) -> None:
        """A hint does not delay the round that is due anyway."""
        self.open("a")
        self.clock.advance(REVIEW_SECONDS - HINT_SECONDS / 2)
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS / 2)
        self.assertEqual(self.reviewer.reviewed, ["a"])

    def test_hint_during_a_round(self) -> None:
        """A hint during a round means another one right after: the first may have missed the change."""
        self.open("a")
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        (review,) = self.reviewer.pending
        self.guard.review_soon()
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        review.callback(FULL)
        self.clock.advance(HINT_SECONDS)
        self.assertEqual(self.reviewer.reviewed, ["a", "a"])

    def test_at_once(self) -> None:
        """No more than so many reviews run concurrently."""
        names = [f"s{number}" for number in range(AT_ONCE + 2)]
        self.open(*names)
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        self.assertEqual(self.reviewer.reviewed, names[:AT_ONCE])
        for review in list(self.reviewer.pending):
            review.callback(FULL)
        self.assertEqual(self.reviewer.reviewed, names)

    def test_one_is_slow(self) -> None:
        """One review that waits long does not delay the others."""
        names = [f"s{number:02}" for number in range(2 * AT_ONCE)]
        self.open(*names)
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        for answered in range(1, AT_ONCE + 1):
            self.reviewer.pending[answered].callback(FULL)
            self.assertEqual(self.reviewer.reviewed, names[: AT_ONCE + answered])

    def test_outage(self) -> None:
        """During an outage no more reviews wait than run concurrently; an answer ends it."""
        names = [f"s{number:02}" for number in range(3 * AT_ONCE)]
        self.open(*names)
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        first = list(self.reviewer.pending)
        for review in first[1:]:
            review.errback(AWAY)
        self.assertEqual(self.reviewer.reviewed, names[:AT_ONCE])
        first[0].callback(FULL)
        self.assertEqual(self.reviewer.reviewed, names[: 2 * AT_ONCE])

    def test_slow_round(self) -> None:
        """Rounds keep their spacing when reviews are slow, and never overlap."""
        self.open("a")
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        self.clock.advance(REVIEW_SECONDS * 1.5)
        self.assertEqual(self.reviewer.reviewed, ["a"])
        self.reviewer.pending.pop().callback(FULL)
        self.clock.advance(REVIEW_SECONDS / 2)
        self.assertEqual(self.reviewer.reviewed, ["a", "a"])

    def test_nobody_answers(self) -> None:
        """A round ends when many in succession get no answer; the next one begins with the others."""
        names = [f"s{number:02}" for number in range(3 * AT_ONCE)]
        self.open(*names)
        self.reviewer.problems = dict.fromkeys(names, AWAY)
        self.assertEqual(self.next_round(), names[:AT_ONCE])
        self.assertEqual(self.next_round(), names[AT_ONCE : 2 * AT_ONCE])
        self.reviewer.problems = {names[-1]: Forbidden("not any more")}
        self.assertEqual(sorted(self.next_round()), names)
        self.assertEqual(list(self.endings), [names[-1]])

    def test_stopped(self) -> None:
        """After the stop nothing is reviewed, whatever the hints, until the next start."""
        self.open("a")
        self.guard.review_soon()
        self.successResultOf(self.guard.stopService())
        self.guard.review_soon()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.next_round(), [])
        self.guard.startService()
        self.assertEqual(self.next_round(), ["a"])

    def test_stopped_during_a_round(self) -> None:
        """Stopping cancels the reviews under way and logs nothing."""
        names = [f"s{number}" for number in range(AT_ONCE + 1)]
        self.open(*names)
        self.reviewer.pending = []
        self.clock.advance(REVIEW_SECONDS)
        self.successResultOf(self.guard.stopService())
        self.assertTrue(all(review.called for review in self.reviewer.pending))
        self.assertEqual(self.reviewer.reviewed, names[:AT_ONCE])
        self.assertEqual((self.endings, self.clock.getDelayedCalls()), ({}, []))

    def test_not_started(self) -> None:
        """A guard that never started can be stopped."""
        guard = SessionGuard(self.sessions, self.reviewer, self.clock)
        guard.review_soon()
        self.successResultOf(guard.stopService())


class ObjectTests(GuardCase):
    """Objects that end sessions."""

    def test_powered_off_while_opening(self) -> None:
        """A machine that is off ends no session that the user resumes, before the runtime answers."""
        for name in ("s1", "s2"):
            session = self.sessions.open(Subject(name, uid="u1"))
            session.when_called_off(partial(self.endings.__setitem__, name))
        session.is_continuation = True
        off = Ending(POWERED_OFF, "off")
        self.guard.end(MachineKey("u1"), off)
        self.assertEqual(self.endings, {"s1": off})
        session.carry(StreamDouble(partial(self.endings.__setitem__, "s2")))
        self.guard.end(MachineKey("u1"), off)
        self.assertEqual(self.endings, {"s1": off, "s2": off})

    def test_powered_off(self) -> None:
        """A machine that is off ends its sessions, unless the machine's end lets them wait."""
        for name in ("s1", "s2"):
            session = self.sessions.open(Subject(name, uid="u1"))
            session.carry(StreamDouble(partial(self.endings.__setitem__, name)))
        session.waits_for_machine = True
        off, deleted = Ending(POWERED_OFF, "off"), Ending(MACHINE_DELETED, "deleted")
        self.assertEqual(self.guard.end(MachineKey("u1"), off), 1)
        self.assertEqual(self.endings, {"s1": off})
        self.guard.end(MachineKey("u1"), deleted)
        self.assertEqual(self.endings, {"s1": off, "s2": deleted})
