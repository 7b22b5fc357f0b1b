"""Tests for :mod:`twisted_exec.streaming.remotecommand.pings`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.remotecommand.pings import SILENCE_SECONDS, Pings


class Carrier:
    """A carrier that counts pings."""

    blocked = False
    pings = 0

    def ping(self) -> None:
        self.pings += 1


class PingsTestCase(SynchronousTestCase):
    """Pings over a carrier without a server."""

    silence_seconds: float | None = None

    def setUp(self) -> None:
        self.clock, self.reasons = Clock(), list[str]()
        self.carrier: Any = Carrier()
        self.pings = Pings(self.clock, self.silence_seconds, self.silent)
        self.pings.start(self.carrier)

    def silent(self, reason: str) -> None:
        self.reasons.append(reason)
        self.pings.stop()


class OrdinaryTests(PingsTestCase):
    """The pings of an ordinary session."""

    def test_pings(self) -> None:
        """A ping every 5 seconds, the first after 5."""
        self.assertEqual(self.carrier.pings, 0)
        for count in range(1, 10):
            self.clock.advance(5)
            self.assertEqual(self.carrier.pings, count)
            self.pings.answered()

    def test_dead(self) -> None:
        """A server that answers no ping for 61 seconds is dead."""
        self.clock.pump([5] * 13)
        self.assertEqual(self.reasons, [])
        self.clock.pump([5, 5])
        self.assertEqual(self.reasons, ["the server has not answered for 61 seconds"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_living(self) -> None:
        """Output is a sign of life as well."""
        for _ in range(100):
            self.clock.advance(5)
            self.pings.heard()
        self.assertEqual(self.reasons, [])

    def test_paused(self) -> None:
        """While this side reads nothing it does not expect answers."""
        self.clock.advance(5)
        self.pings.pause()
        self.clock.pump([5] * 100)
        self.pings.resume()
        self.clock.pump([5] * 12)
        self.assertEqual(self.reasons, [])

    def test_stuck(self) -> None:
        """Pings do not pile up before a server that reads nothing."""
        self.carrier.blocked = True
        self.clock.pump([5] * 100)
        self.assertEqual((self.carrier.pings, self.reasons), (0, []))


class ResumableTests(PingsTestCase):
    """The pings of a session that can be resumed."""

    silence_seconds = SILENCE_SECONDS

    def test_silence(self) -> None:
        """Silence is counted from the last sign of life, also while output is blocked."""
        self.carrier.blocked = True
        self.clock.advance(3)
        self.pings.heard()
        self.clock.pump([2, 5, 5, 5, 2.9])
        self.assertEqual(self.reasons, [])
        self.clock.advance(0.2)
        self.assertEqual(self.reasons, ["the server has not answered for 20 seconds"])

    def test_short_limit(self) -> None:
        """A short limit needs more frequent pings."""
        self.pings.stop()
        self.pings = Pings(self.clock, 2, self.silent)
        self.pings.start(self.carrier)
        self.clock.pump([0.5] * 3)
        self.assertEqual(self.carrier.pings, 4 + 1)

    def test_round_trip(self) -> None:
        """Each answered ping measures the way to the server and back; a pause measures nothing."""
        self.assertIsNone(self.pings.round_trip_seconds)
        self.clock.advance(0.25)
        self.pings.answered()
        self.assertEqual(self.pings.round_trip_seconds, 0.25)
        self.clock.advance(4.75)
        self.pings.pause()
        self.clock.advance(4)
        self.pings.resume()
        self.pings.answered()
        self.assertEqual(self.pings.round_trip_seconds, 0.25)

    def test_overdue(self) -> None:
        """The oldest ping without an answer is reported, unless this side does not read."""
        self.clock.advance(0.25)
        self.pings.answered()
        self.clock.advance(4.75)
        self.assertEqual(self.pings.overdue_seconds, 0)
        self.clock.advance(1)
        self.assertEqual(self.pings.overdue_seconds, 0)
        self.clock.advance(0.5)
        self.assertEqual(self.pings.overdue_seconds, 1.5)
        self.pings.heard()  # output that was on its way
        self.assertEqual(self.pings.overdue_seconds, 1.5)
        self.pings.pause()
        self.clock.advance(5)
        self.assertIsNone(self.pings.overdue_seconds)
        self.pings.resume()
        self.assertEqual(self.pings.overdue_seconds, 6.5)
        self.pings.answered()
        self.assertEqual((self.pings.overdue_seconds, self.pings.round_trip_seconds), (0, 0.25))

    def test_unread(self) -> None:
        """A ping during a pause counts as well, until anything is read behind the pause."""
        self.pings.answered()
        self.pings.pause()
        self.clock.pump([5, 5])
        self.pings.resume()
        self.assertEqual(self.pings.overdue_seconds, 5)
        self.pings.heard()
        self.assertEqual(self.pings.overdue_seconds, 0)

    def test_silence_around_a_pause(self) -> None:
        """A pause delays the loss only for as long as answers that came meanwhile need to be read."""
        for paused_seconds, rest_seconds in ((4, 16), (18, 5)):
            self.setUp()
            self.pings.answered()
            self.pings.pause()
            self.clock.pump([0.5] * paused_seconds * 2)
            self.pings.resume()
            self.clock.pump([0.5] * (rest_seconds * 2 - 1))
            self.assertEqual(self.reasons, [])
            self.clock.pump([0.5] * 10)
            self.assertEqual(self.reasons, ["the server has not answered for 20 seconds"])

    def test_usually_slow(self) -> None:
        """Over a slow line an answer may take twice as long as the one before."""
        self.clock.advance(4)
        self.pings.answered()
        self.clock.advance(1)
        self.clock.pump([4, 4])
        self.assertEqual(self.pings.overdue_seconds, 0)
        self.clock.advance(0.5)
        self.assertEqual(self.pings.overdue_seconds, 8.5)

    def test_stopped(self) -> None:
        """After the end there are no pings."""
        self.pings.stop()
        self.clock.advance(60)
        self.assertEqual((self.carrier.pings, self.reasons), (1, []))
