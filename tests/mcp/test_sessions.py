"""Tests for :mod:`twisted_exec.mcp.sessions`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cli.mcp.test_protocol import SmallTools
from twisted_exec.api.status import NotFound, ServiceUnavailable, TooManyRequests
from twisted_exec.cli.mcp.protocol import ServerSession
from twisted_exec.mcp.sessions import IDLE_SECONDS, LONGEST_SECONDS, Limits, Sessions
from twisted_exec.mcp.users import Caller

ADA, BOB = Caller("ada", ("dev",)), Caller("bob")


class SessionsTests(SynchronousTestCase):
    """Sessions of users."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.tools: list[SmallTools] = []
        self.sessions = Sessions(Limits(3, 2), self.make, self.clock)

    def make(self, caller: Caller) -> ServerSession:
        self.tools.append(SmallTools())
        return ServerSession(self.tools[-1])

    def test_bound(self) -> None:
        """A session is found by its user alone, with the groups that it began with."""
        bound = self.sessions.begin(ADA)
        self.assertIs(self.sessions.find(bound.id, ADA), bound)
        for caller in (BOB, Caller("ada"), Caller("ada", ("dev", "ops"))):
            self.assertRaises(NotFound, self.sessions.find, bound.id, caller)
        for id in ("", "x", bound.id + "x", "x" * 10_000):
            self.assertRaises(NotFound, self.sessions.find, id, ADA)
        self.sessions.end(bound)
        self.assertRaises(NotFound, self.sessions.find, bound.id, ADA)
        self.assertTrue(self.tools[0].is_closed)
        self.sessions.end(bound)

    def test_ids(self) -> None:
        """Ids cannot be guessed."""
        ids = set()
        for _ in range(50):
            bound = self.sessions.begin(ADA)
            ids.add(bound.id)
            self.sessions.end(bound)
        self.assertEqual(len(ids), 50)
        self.assertGreaterEqual(min(map(len, ids)), 32)

    def test_limit_of_user(self) -> None:
        """A further session of a user ends the one that was idle longest; a user with none idle is refused."""
        first, second = self.sessions.begin(ADA), self.sessions.begin(ADA)
        self.clock.advance(1)
        self.sessions.find(first.id, ADA)
        third = self.sessions.begin(ADA)
        self.assertRaises(NotFound, self.sessions.find, second.id, ADA)
        with self.sessions.used(first), self.sessions.used(third):
            self.assertRaises(TooManyRequests, self.sessions.begin, ADA)
            self.assertEqual(self.sessions.requests_of(ADA), 2)
            self.sessions.begin(BOB)
        self.sessions.begin(ADA)

    def test_limit_of_all(self) -> None:
        """At the limit of all sessions others are refused, and nobody loses the only one."""
        kept = [self.sessions.begin(Caller(each)) for each in "abc"]
        self.assertRaises(ServiceUnavailable, self.sessions.begin, Caller("eve"))
        for bound in kept:
            self.sessions.find(bound.id, bound.caller)

    def test_crowd(self) -> None:
        """At the limit of all sessions the person who has the most, with all agents, loses the one that was idle longest."""
        agents = [Caller(f"agent:ada:{each}") for each in "xy"]
        crowd = [self.sessions.begin(each) for each in agents]
        bob = self.sessions.begin(BOB)
        self.clock.advance(1)
        self.sessions.find(crowd[0].id, agents[0])
        eve = self.sessions.begin(Caller("eve"))
        self.assertRaises(NotFound, self.sessions.find, crowd[1].id, agents[1])
        for bound in (crowd[0], bob, eve):
            self.sessions.find(bound.id, bound.caller)

    def test_own_room(self) -> None:
        """At the limit of all sessions a person, with all agents, still replaces an idle one of their own."""
        old = self.sessions.begin(Caller("agent:ada:x"))
        for each in "ab":
            self.sessions.begin(Caller(each))
        new = self.sessions.begin(Caller("agent:ada:y"))
        self.assertRaises(NotFound, self.sessions.find, old.id, old.caller)
        self.sessions.find(new.id, new.caller)

    def test_busy_crowd(self) -> None:
        """A session with a request does not end for that of another."""
        crowd = [self.sessions.begin(Caller(f"agent:ada:{each}")) for each in "xyz"]
        with self.sessions.used(crowd[0]), self.sessions.used(crowd[1]):
            self.sessions.begin(BOB)
            self.assertRaises(ServiceUnavailable, self.sessions.begin, Caller("eve"))
            self.assertEqual(len(self.sessions), 3)

    def test_idle(self) -> None:
        """A session without a request ends after a while, and one that is used after some hours."""
        idle, used = self.sessions.begin(ADA), self.sessions.begin(BOB)
        with self.sessions.used(used):
            self.clock.advance(IDLE_SECONDS)
            self.sessions.sweep()
            self.assertRaises(NotFound, self.sessions.find, idle.id, ADA)
            self.clock.advance(LONGEST_SECONDS)
            self.sessions.sweep()
            self.assertEqual(len(self.sessions), 1)
        self.sessions.sweep()
        self.assertEqual(len(self.sessions), 0)

    def test_close(self) -> None:
        """All sessions leave their consoles when the program stops."""
        for each in (ADA, BOB):
            self.sessions.begin(each)
        self.sessions.close()
        self.assertEqual([each.is_closed for each in self.tools], [True, True])
