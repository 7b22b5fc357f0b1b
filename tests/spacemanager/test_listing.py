"""
Tests for :mod:`twisted_exec.spacemanager.listing`: what may be concluded from a
provider's lists.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.support import one
from twisted_exec.api.status import BadGateway, ServiceUnavailable
from twisted_exec.spacemanager import listing as provider_copy
from twisted_exec.spacemanager.bounded import bounded
from twisted_exec.spacemanager.interfaces import BUILDING, Physical, SpaceInfo, SpaceRequest
from twisted_exec.spacemanager.listing import ProviderCopy
from twisted_exec.testing.space_provider import MemorySpaces

A, B = one("a"), one("b")


class CopyCase(SynchronousTestCase):
    """A copy of a provider in memory."""

    def setUp(self) -> None:
        self.clock: Any = Clock()
        self.world = MemorySpaces()
        self.told: list[Physical | None] = []
        self.adaptor = bounded(self.world.provider(), "p", self.clock)
        self.copy = ProviderCopy("p", self.adaptor, self.clock, self.told.append)
        self.adaptor.listener = self.copy

    def start(self) -> None:
        self.copy.start()
        self.addCleanup(lambda: self.successResultOf(self.copy.stop()))
        self.told.clear()
        self.world.calls.clear()

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.clock.advance(0.25)

    def lists(self) -> int:
        return [call for call, _ in self.world.calls].count("list_spaces")


class PaceTests(CopyCase):
    """The times of requests to the provider."""

    def test_pace(self) -> None:
        """The provider is listed every 30 s; simultaneous hints cause a single list."""
        self.start()
        self.pass_time(61)
        self.assertEqual(self.lists(), 2)
        for _ in range(100):
            self.world.tell()
        self.pass_time(1)
        self.assertEqual(self.lists(), 3)

    def test_hints(self) -> None:
        """A hint for a space reads only that space, at once."""
        self.start()
        self.world.put(A)
        self.assertEqual((self.told, self.lists()), ([A], 0))
        self.assertIn(A, self.copy.spaces())

    def test_hints_without_end(self) -> None:
        """A space that changes constantly is read and reported a few times a second."""
        made = self.world.put(A)
        self.start()
        for number in range(1000):
            made.message = f"{number}"
            self.world.tell(A)
            self.clock.advance(0.01)
        self.assertLess(len(self.world.calls), 50)
        self.assertLess(len(self.told), 50)
        made.message = "at last"
        self.world.tell(A)
        self.pass_time(1)
        self.assertEqual(self.copy.spaces()[A].message, "at last")

    def test_too_many_hints(self) -> None:
        """Very many hints at once cause a list instead of single reads."""
        self.start()
        self.world.stalled = True
        for number in range(1000):
            self.copy.look_again(one(f"s{number}"))
        gets = [call for call, _ in self.world.calls].count("get")
        self.assertLessEqual(gets, provider_copy.MAX_HINTS)
        self.pass_time(1)
        self.assertEqual(self.lists(), 1)

    def test_backing_off(self) -> None:
        """
        A provider that fails is asked ever less often, whatever it hints at, and at once it works
        as before.
        """
        self.world.problem = BadGateway("away")
        self.start()
        for _ in range(240):
            self.world.tell()
            self.copy.look_again(A)
            self.clock.advance(0.5)
        self.assertLess(self.lists(), 14)
        self.assertEqual([call for call, _ in self.world.calls if call == "get"], [])
        self.world.problem = None
        self.pass_time(31)
        self.assertTrue(self.copy.looks.well)
        before = self.lists()
        self.pass_time(60)
        self.assertEqual(self.lists() - before, 2)

    def test_nonsense(self) -> None:
        """An invalid list from an adaptor counts as a failure."""
        self.adaptor.list_spaces = lambda: succeed([None])  # type: ignore[assignment,list-item,method-assign]
        self.start()
        self.assertEqual(self.copy.looks.reachable.reason, "ListFailed")
        self.flushLoggedErrors(AttributeError)
        del self.adaptor.list_spaces
        self.pass_time(31)
        self.assertTrue(self.copy.looks.well)

    def test_too_many(self) -> None:
        """A list of more than MAX_SPACES spaces is refused."""
        self.patch(provider_copy, "MAX_SPACES", 1)
        self.world.put(A)
        self.world.put(B)
        self.start()
        self.assertEqual(self.copy.looks.reachable.status, "False")
        self.assertFalse(self.copy.listed)


class GoneTests(CopyCase):
    """Spaces that are gone, or only missing from a list."""

    def test_twice(self) -> None:
        """A space counts as gone after two lists without it; until then it is unchanged."""
        self.world.put(A)
        self.start()
        self.world.drop(A)
        self.assertFalse(self.copy.gone(A))
        self.assertIn(A, self.copy.spaces())
        self.pass_time(1)
        self.assertFalse(self.copy.gone(A))
        self.pass_time(2)
        self.assertTrue(self.copy.gone(A))
        self.assertNotIn(A, self.copy.spaces())
        self.assertEqual(self.told, [A])

    def test_for_a_moment(self) -> None:
        """A space missing from a list for a moment is not gone."""
        self.world.put(A)
        self.start()
        kept = self.world.spaces.pop(A)
        self.world.tell()
        self.pass_time(1)
        self.world.spaces[A] = kept
        self.pass_time(5)
        self.assertFalse(self.copy.gone(A))
        self.assertEqual(self.told, [])

    def test_while_away(self) -> None:
        """SF: spaces of an unreachable provider never count as gone."""
        self.world.put(A)
        self.start()
        self.world.drop(A)
        self.world.problem = ServiceUnavailable("down")
        self.pass_time(600)
        self.assertFalse(self.copy.gone(A))
        self.assertIn(A, self.copy.spaces())

    def test_never_seen(self) -> None:
        """An unknown space counts as gone after two lists without it."""
        self.start()
        self.assertFalse(self.copy.gone(A))
        self.pass_time(31)
        self.assertTrue(self.copy.gone(A))

    def test_just_asked_for(self) -> None:
        """A missing unknown space that was requested counts as gone within seconds."""
        self.start()
        self.copy.look_again(A)
        self.assertFalse(self.copy.gone(A))
        self.pass_time(3)
        self.assertTrue(self.copy.gone(A))

    def test_being_made(self) -> None:
        """While one is being made, and at first after that, no answer from before says that it is gone."""
        self.start()
        self.pass_time(61)
        self.assertTrue(self.copy.gone(A))
        self.world.stalled = True
        making: Deferred[None] = self.adaptor.create(A, SpaceRequest("u"))
        self.world.stalled = False
        self.pass_time(61)
        self.assertFalse(self.copy.gone(A), "it may be there any moment")
        making.cancel()
        self.failureResultOf(making)
        self.assertFalse(self.copy.gone(A))
        self.pass_time(3)
        self.assertTrue(self.copy.gone(A))

    def test_asked_before(self) -> None:
        """A list requested before a space was created does not count it as gone."""
        answers: list[Deferred[Any]] = []
        self.start()
        self.pass_time(5)

        def listing() -> Deferred[Any]:
            answers.append(Deferred())
            return answers[-1]

        self.adaptor.list_spaces = listing  # type: ignore[method-assign]
        self.copy.look_again()
        self.clock.advance(1)
        self.successResultOf(self.adaptor.create(A, SpaceRequest("u")))
        self.assertIn(A, self.copy.spaces())
        answers[0].callback([])
        self.assertIn(A, self.copy.spaces())
        self.assertFalse(self.copy.gone(A))

    def test_another_adaptor(self) -> None:
        """Spaces known from the previous adaptor stay until two lists miss them."""
        info = SpaceInfo(A, BUILDING)
        self.copy = ProviderCopy("p", self.adaptor, self.clock, self.told.append, {A: info})
        self.start()
        self.assertEqual(self.copy.spaces(), {A: info})
        self.assertFalse(self.copy.gone(A))
        self.pass_time(3)
        self.assertTrue(self.copy.gone(A))

    def test_bounded(self) -> None:
        """Spaces that are gone leave nothing in memory."""
        self.start()
        for number in range(200):
            self.world.put(one(f"s{number}"))
        self.pass_time(31)
        self.world.spaces.clear()
        self.world.tell()
        self.pass_time(31)
        kept = vars(self.copy)
        self.assertEqual(
            [
                name
                for name, value in kept.items()
                if value == {A: 0} or (isinstance(value, dict | set) and len(value))
            ],
            [],
        )


class AccessTests(CopyCase):
    """Data that lists leave out."""

    def test_left_out(self) -> None:
        """Access that was told of one stays while nothing says that it is another, and is no change."""
        self.world.put(A)
        self.start()
        self.copy.look_again(A)
        whole = self.copy.spaces()[A]
        self.assertEqual(len(whole.access), 2)
        bare = SpaceInfo(A, whole.state, owner="", uid=whole.uid, version=whole.version)
        self.adaptor.list_spaces = lambda: succeed([bare])  # type: ignore[method-assign]
        self.told.clear()
        self.pass_time(31)
        self.assertEqual((self.copy.spaces()[A].access, self.told), (whole.access, []))
        other = SpaceInfo(A, whole.state, owner="", uid=whole.uid, version="2")
        self.adaptor.list_spaces = lambda: succeed([other])  # type: ignore[method-assign]
        self.pass_time(31)
        self.assertEqual((self.copy.spaces()[A].access, self.told), ({}, [A]))
