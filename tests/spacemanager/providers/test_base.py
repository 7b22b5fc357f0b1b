"""Tests for :mod:`twisted_exec.spacemanager.providers.base` and its users."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.base import Hints, ProviderWatches, Watchers, bare
from twisted_exec.spacemanager.providers.kcp.hints import WorkspaceHints
from twisted_exec.spacemanager.providers.kind.names import NamePoller

RED, GREEN = Physical("red"), Physical("green")


class Slow:
    """A client whose requests take a while to end when they are cancelled."""

    def __init__(self) -> None:
        self.ended: list[Deferred[None]] = []

    def list(self, *about: Any, **chosen: Any) -> Deferred[Any]:
        """As of :class:`IKubeClient`."""
        return Deferred.fromCoroutine(self._asked())

    async def _asked(self) -> None:
        try:
            await Deferred()
        except CancelledError:
            ended: Deferred[None] = Deferred()
            self.ended.append(ended)
            await ended
            raise

    def end(self) -> None:
        """Finish the cancelled requests."""
        for each in self.ended:
            each.callback(None)


def follow(hints: Hints) -> None:
    """Follow Namespaces only."""
    hints.follow(NAMESPACES.resource, lambda before, after: [], bare)


class EndTests(SynchronousTestCase):
    """close() waits for all requests, including those of listeners that left before."""

    def setUp(self) -> None:
        self.client: Any = Slow()

    def check_closed(self, closing: Deferred[Any], parts: int = 1) -> None:
        self.assertNoResult(closing)
        self.assertEqual(len(self.client.ended), parts)
        self.client.end()
        self.successResultOf(closing)

    def test_watches(self) -> None:
        """:class:`ProviderWatches` with two listeners, one of which left before."""
        watches = ProviderWatches(self.client, Clock(), follow)
        leave = watches.add(lambda _: None)
        watches.add(lambda _: None)
        leave()
        leave()
        self.check_closed(watches.close(), 2)

    def test_workspaces(self) -> None:
        """:class:`WorkspaceHints` without listeners and with a forgotten parent."""
        clock = Clock()
        hints = WorkspaceHints(self.client, clock, list)
        hints.follow("root", "")
        hints.follow("root:team", "root:team")
        leave = hints.add(lambda _: None)
        hints.forget("root:team")
        leave()
        self.check_closed(hints.close(), 2)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_poll(self) -> None:
        """:class:`NamePoller` during a list request."""
        poll = NamePoller(Clock(), self.client.list, list)
        poll.add(lambda _: None)
        self.check_closed(poll.close())


class WatchersTests(SynchronousTestCase):
    """Tests for :class:`Watchers`."""

    def test_as_long_as_anybody(self) -> None:
        """The last listener ends the source; equal listeners count separately."""
        told: list[Physical | None] = []
        acts: list[str] = []

        def end() -> Deferred[None]:
            acts.append("end")
            return Deferred()

        watchers = Watchers("x", lambda: acts.append("begin"), end)
        first, second = watchers.add(told.append), watchers.add(told.append)
        watchers.tell(RED)
        first()
        first()
        watchers.tell(None)
        self.assertEqual(told, [RED, RED, None])
        self.assertEqual(acts, ["begin", "begin"])
        second()
        self.assertEqual(acts, ["begin", "begin", "end"])
