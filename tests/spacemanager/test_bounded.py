"""Tests for :mod:`twisted_exec.spacemanager.bounded`: calls of adaptors end in time."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.spacemanager.support import one
from twisted_exec.api.status import BadGateway, GatewayTimeout, InternalError
from twisted_exec.spacemanager.bounded import GET, SECONDS, bounded
from twisted_exec.spacemanager.interfaces import IRotatesCredentials, ISpaceProvider, SpaceRequest
from twisted_exec.testing.space_provider import MemoryProvider, MemorySpaces


class Counted:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float, int]] = []

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        self.calls.append((provider, call, seconds, code))


class BoundedTests(SynchronousTestCase):
    """Tests for :class:`Bounded`."""

    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.world, self.counted = MemorySpaces(), Counted()
        self.adaptor = bounded(self.world.provider(), "p", self.clock, self.counted)

    def test_doors(self) -> None:
        """The wrapper provides IRotatesCredentials only if its adaptor does."""
        self.assertTrue(verifyObject(ISpaceProvider, self.adaptor))
        self.assertTrue(verifyObject(IRotatesCredentials, self.adaptor))

        class Plain:
            default_parent = "root"

        other: Any = Plain()
        plain = bounded(other, "p", self.clock)
        self.assertFalse(IRotatesCredentials.providedBy(plain))
        self.assertEqual(plain.default_parent, "root")

    def test_in_time(self) -> None:
        """A call without an answer is cancelled after its time limit and fails with 504."""
        self.world.stalled = True
        asked = self.adaptor.get(one("a"))
        self.clock.advance(SECONDS[GET])
        why = str(self.failureResultOf(asked, GatewayTimeout).value)
        self.assertIn('provider "p" gave no answer (get) within 30 seconds; see whether', why)
        self.assertEqual(self.counted.calls, [("p", "get", 30.0, 504)])

    def test_errors(self) -> None:
        """API errors are passed on; other exceptions are logged and hidden behind a 500."""
        self.world.problem = BadGateway("away")
        self.failureResultOf(self.adaptor.list_names(), BadGateway)

        def broken(*_: object) -> Deferred[Any]:
            raise KeyError("secret-token")

        self.patch(MemoryProvider, "delete", broken)
        why = str(self.failureResultOf(self.adaptor.delete(one("a"), "u"), InternalError).value)
        self.assertNotIn("secret-token", why)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual([code for _, _, _, code in self.counted.calls], [502, 500])

    def test_cancelled(self) -> None:
        """A cancelled call is counted as 499."""
        self.world.stalled = True
        asked = self.adaptor.list_spaces()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual([code for _, _, _, code in self.counted.calls], [499])

    def test_went_well(self) -> None:
        """Successful calls are passed on and counted."""
        self.successResultOf(self.adaptor.create(one("a"), SpaceRequest("u")))
        self.successResultOf(self.adaptor.rotate(one("a")))
        self.assertEqual(self.successResultOf(self.adaptor.list_names()), [one("a")])
        self.successResultOf(self.adaptor.close())
        self.assertEqual([code for _, _, _, code in self.counted.calls], [0] * 4)

    def test_watch_that_fails(self) -> None:
        """A failing ``watch`` is logged, not raised."""

        def broken(*_: object) -> Any:
            raise OSError("no")

        self.patch(MemoryProvider, "watch", broken)
        self.adaptor.watch(lambda _: None)()
        self.flushLoggedErrors(OSError)
