"""
Tests for :mod:`twisted_exec.streaming.sessions.openings`.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import TooManyRequests
from twisted_exec.streaming.sessions.openings import Openings
from twisted_exec.tls.deadlines import LONGEST_SECONDS, Progress


class OpeningsTestCase(SynchronousTestCase):
    """Base of the tests of one :class:`Openings`."""

    seconds = 3.0

    def setUp(self) -> None:
        self.clock = Clock()
        self.openings = self.make()

    def make(self) -> Openings:
        """Make what is tested."""
        return Openings(at_once=2)

    def begin(
        self, hop: str = "a", user: str = "u", signs: Sequence[Progress] = ()
    ) -> Deferred[None]:
        return Deferred.fromCoroutine(
            self.openings.begin(hop, user, self.clock, self.seconds, signs)
        )

    def end(self, hop: str = "a", user: str = "u") -> None:
        self.openings.end(hop, user)

    def idle(self) -> None:
        """Nothing is under way, and nothing waits."""
        self.assertEqual((len(self.openings), self.openings.waiting), (0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class OpeningsTests(OpeningsTestCase):
    """Streams to one hop, and to several."""

    def test_in_order(self) -> None:
        """A limited number begin at once; the others follow in order of arrival."""
        turns = [self.begin() for _ in range(5)]
        self.assertEqual([turn.called for turn in turns], [True, True, False, False, False])
        self.end()
        self.assertEqual([turn.called for turn in turns], [True, True, True, False, False])
        for _ in range(4):
            self.end()
        self.assertTrue(all(turn.called for turn in turns))
        self.idle()

    def test_hops(self) -> None:
        """Each next hop has its own turns."""
        self.begin(), self.begin()
        self.assertFalse(self.begin().called)
        self.assertTrue(self.begin("b").called)
        self.assertEqual((len(self.openings), self.openings.waiting), (3, 1))

    def test_limit(self) -> None:
        """A wait ends with 429 and the time to come again."""
        self.begin(), self.begin()
        turn = self.begin()
        self.clock.advance(3)
        refused = self.failureResultOf(turn, TooManyRequests).value
        self.assertEqual(refused.retry_after_seconds, 2)
        for _ in range(2):
            self.end()
        self.idle()

    def test_slow(self) -> None:
        """A stream waits while the next hop gives signs of life, and three seconds longer."""
        self.begin(), self.begin()
        life = Progress(self.clock)
        turn = self.begin(signs=[life])
        for _ in range(100):
            self.clock.advance(2)
            life.note()
        self.assertNoResult(turn)
        self.clock.advance(3)
        self.failureResultOf(turn, TooManyRequests)

    def test_longest(self) -> None:
        """After ten minutes a stream waits no longer."""
        self.begin(), self.begin()
        life = Progress(self.clock)
        turn = self.begin(signs=[life])
        for _ in range(int(LONGEST_SECONDS)):
            self.assertNoResult(turn)
            life.note()
            self.clock.advance(1)
        self.failureResultOf(turn, TooManyRequests)

    def test_cancelled(self) -> None:
        """A cancelled wait does not use up a turn."""
        self.begin(), self.begin()
        given_up, next_one = self.begin(), self.begin()
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        self.assertEqual(self.openings.waiting, 1)
        self.end()
        self.assertTrue(next_one.called)
        self.assertEqual(len(self.openings), 2)

    def test_all_cancelled(self) -> None:
        """Waits that are all cancelled leave nothing behind."""
        self.begin(), self.begin()
        for turn in [self.begin() for _ in range(3)]:
            turn.cancel()
            self.failureResultOf(turn, CancelledError)
        self.end(), self.end()
        self.idle()

    def test_refused_at_once(self) -> None:
        """Of a thousand streams that end as soon as they begin, each has its own turn of the reactor."""
        self.begin(), self.begin()
        ended: list[int] = []
        for number in range(1000):
            self.begin().addCallback(lambda _, number=number: (ended.append(number), self.end()))
        self.end()
        self.assertEqual(ended, [0])
        self.assertEqual([call.getTime() for call in self.clock.getDelayedCalls()][:1], [0])
        self.clock.advance(0)
        self.assertEqual(ended, list(range(1000)))
        self.end()
        self.idle()


class UserTests(OpeningsTestCase):
    """The streams of several users."""

    def make(self) -> Openings:
        return Openings(at_once=4, per_user=2, pace_seconds=0)

    def test_others(self) -> None:
        """A user with many streams does not delay another's."""
        busy = [self.begin(user="busy") for _ in range(50)]
        self.assertEqual(sum(turn.called for turn in busy), 2)
        self.assertTrue(self.begin(user="quiet").called)

    def test_turns(self) -> None:
        """Users take turns, however many streams each of them wants."""
        users = ["a"] * 6 + ["b"] * 6 + ["c"] * 2 + ["d"]
        begun: list[str] = []
        for user in users:
            self.begin(user=user).addCallback(lambda _, user=user: begun.append(user))
        self.assertEqual(begun, ["a", "a", "b", "b"])
        for at in range(11):
            self.end(user=begun[at])
        self.assertEqual(begun[4:], list("acbdacbabab"))

    def test_room_for_one(self) -> None:
        """Room that only some of the waiting users may use goes to them."""
        self.begin(user="a"), self.begin(user="a"), self.begin(user="b"), self.begin(user="c")
        third, other = self.begin(user="a"), self.begin(user="b")
        self.end(user="c")
        self.assertEqual((third.called, other.called), (False, True))

    def test_most_of_a_user(self) -> None:
        """So many streams of a user wait, and no more; others still may."""
        self.openings = Openings(1, 1, 0, most_waiting=5, most_waiting_per_user=3)
        self.begin(user="a")
        waiting = [self.begin(user="a") for _ in range(3)]
        refused = self.failureResultOf(self.begin(user="a"), TooManyRequests).value
        self.assertIn("of this user", refused.message)
        self.assertEqual(refused.retry_after_seconds, 2)
        self.assertNoResult(self.begin(user="b"))
        waiting[0].cancel()
        self.failureResultOf(waiting[0], CancelledError)
        self.assertNoResult(self.begin(user="a"))

    def test_most_of_all(self) -> None:
        """So many streams wait in all, and no more."""
        self.openings = Openings(1, 1, 0, most_waiting=2, most_waiting_per_user=3)
        self.begin(user="a"), self.begin(user="a"), self.begin(user="b")
        self.failureResultOf(self.begin(user="c"), TooManyRequests)


class PaceTests(OpeningsTestCase):
    """A user's streams that wait for a distant hop."""

    seconds = 60.0

    def make(self) -> Openings:
        return Openings(at_once=8, per_user=2, pace_seconds=1)

    def test_idle(self) -> None:
        """While this program is on time, another stream begins in each period."""
        turns = [self.begin() for _ in range(5)]
        for count in (3, 4, 5):
            self.clock.advance(1)
            self.assertEqual(sum(turn.called for turn in turns), count)
        for _ in turns:
            self.end()
        self.idle()

    def test_busy(self) -> None:
        """A program that is late begins none beyond the limit of a user."""
        turn = [self.begin() for _ in range(3)][-1]
        for _ in range(5):
            self.clock.advance(1.5)
        self.assertFalse(turn.called)
        self.clock.advance(1)
        self.assertTrue(turn.called)

    def test_at_once(self) -> None:
        """The limit of one next hop holds."""
        self.openings.at_once = 3
        for _ in range(5):
            self.begin()
        for _ in range(10):
            self.clock.advance(0.25)
        self.assertEqual((len(self.openings), self.openings.waiting), (3, 2))
