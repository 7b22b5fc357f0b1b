"""Tests for :mod:`twisted_exec.spacemanager.spaces.queues`."""

from __future__ import annotations

import random

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import entries
from twisted_exec.control.queue import MAX_WORKERS
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.spaces.queues import RESYNC_SECONDS, Discovered, SpaceQueues, Work

ONE = ("spaceprovider-p", "one")


class SpaceQueuesTests(SynchronousTestCase):
    """Tests for :class:`SpaceQueues`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.there = {"p", "q"}
        self.begun: list[Work] = []
        self.silent = False
        self.queues = SpaceQueues(
            self.work, self.clock, lambda name: name in self.there, random.Random(1)
        )

    async def work(self, work: Work) -> None:
        self.begun.append(work)
        if self.silent:
            await Deferred()

    def fill(self, provider: str, namespace: str) -> None:
        """As many as are worked on at once, and none of them ends."""
        self.silent = True
        for number in range(MAX_WORKERS):
            self.queues.add(provider, (namespace, f"s{number}"))
        self.silent = False
        self.begun.clear()

    def test_provider(self) -> None:
        """What one provider has waits for nothing of another's, nor for what has no provider."""
        self.fill("p", "spaceprovider-p")
        self.fill("", "team")
        self.queues.add("p", ONE)
        self.assertEqual(self.begun, [])
        self.queues.add("q", Discovered("q", Physical("x")))
        self.queues.add("", ("another", "one"))
        self.assertEqual(len(self.begun), 2)

    def test_gone(self) -> None:
        """The queue of a provider that is gone ends with it; its Spaces are looked at all the same."""
        self.fill("p", "spaceprovider-p")
        self.queues.drop("p")
        self.assertEqual(len(self.queues), MAX_WORKERS, "it is there still")
        self.there.discard("p")
        self.queues.drop("p")
        self.queues.add("p", ONE)
        self.assertEqual((self.begun, len(self.queues)), ([ONE], 0))

    def test_later(self) -> None:
        """A Space is looked at when it was said, or now and then; the last word counts."""
        self.queues.look_in("p", ONE, None)
        self.queues.look_in("p", ONE, 5.0)
        self.clock.advance(4.9)
        self.assertEqual(self.begun, [])
        self.clock.advance(0.1)
        self.assertEqual(self.begun, [ONE])
        self.queues.look_in("p", ONE, None)
        self.clock.advance(RESYNC_SECONDS * 1.2)
        self.assertEqual(self.begun, [ONE, ONE])
        self.queues.look_in("p", ONE, 1.0)
        self.queues.forget(ONE)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopped(self) -> None:
        """Stopped, nothing is under way, and nothing begins any more."""
        self.fill("p", "spaceprovider-p")
        self.queues.look_in("p", ONE, 1.0)
        self.successResultOf(self.queues.stop())
        self.queues.look_in("p", ONE, 1.0)
        self.queues.add("p", ONE)
        self.assertEqual((self.begun, self.clock.getDelayedCalls()), ([], []))

    def test_namespaces_come_and_go(self) -> None:
        """Nothing is kept of a namespace in which nothing is to be done."""
        sizes = []
        for number in range(5):
            self.queues.add("", (f"team-{number}", "one"))
            sizes.append(entries(self.queues))
        self.assertEqual(len(self.begun), 5)
        self.assertEqual(len(set(sizes)), 1)
