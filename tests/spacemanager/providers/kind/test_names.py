"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.names`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import BadGateway, Invalid, ServiceUnavailable
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.kind.names import (
    POLL_SECONDS,
    NamePoller,
    check_name,
    listed_names,
)


class NameTests(SynchronousTestCase):
    """Tests for :func:`check_name` and :func:`listed_names`."""

    def test_names(self) -> None:
        """Names that look like a path or an option are refused, though kind allows some."""
        for good in ("a", "a.b-c", "1", "a" * 50):
            check_name(Physical(good), new=True)
        for bad in ("", ".", "..", "-v", "a-", "A", "a_b", "a/b", "a\n", "a" * 51):
            with self.assertRaises(Invalid):
                check_name(Physical(bad), new=True)
        check_name(Physical("a" * 51))
        with self.assertRaises(Invalid):
            check_name(Physical("a", "elsewhere"))

    def test_listed(self) -> None:
        """Output is one name per line, invalid names are skipped, other text fails with 502."""
        self.assertEqual(listed_names(b""), [])
        self.assertEqual(listed_names(b"b\na\n"), ["a", "b"])
        self.assertEqual(listed_names(b"a\n-v\n..\n"), ["a"])
        for nonsense in (b"No kind clusters found.\n", b"a b\n", b"\xff\n", b"\n", b"a\n\nb\n"):
            with self.assertRaises(BadGateway):
                listed_names(nonsense)


RED, GREEN = Physical("red"), Physical("green")


class PollTests(SynchronousTestCase):
    """Tests for :class:`NamePoller`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.names: list[str] = ["red"]
        self.down = False
        self.told: list[Physical | None] = []
        self.unsettled: list[Physical] = []
        self.poll = NamePoller(self.clock, self.listed, lambda: self.unsettled)

    async def listed(self) -> list[str]:
        if self.down:
            raise ServiceUnavailable("docker does not answer")
        return self.names

    def turn(self) -> list[Physical | None]:
        """Return the hints of the next poll."""
        self.told.clear()
        self.clock.advance(POLL_SECONDS)
        return list(self.told)

    def test_told(self) -> None:
        """
        The first hint is None; later hints name spaces that appear, disappear or are unsettled.
        """
        leave = self.poll.add(self.told.append)
        self.assertEqual(self.told, [None])
        self.assertEqual(self.turn(), [])
        self.names = ["green"]
        self.assertEqual(self.turn(), [GREEN, RED])
        self.unsettled = [GREEN, RED]
        self.assertEqual(self.turn(), [GREEN])
        leave()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_down(self) -> None:
        """A failed list gives no hints; the next poll tries again."""
        self.poll.add(self.told.append)
        self.down = True
        self.assertEqual(self.turn(), [])
        self.down, self.names = False, ["red", "green"]
        self.assertEqual(self.turn(), [GREEN])
        self.successResultOf(self.poll.close())

    def test_again(self) -> None:
        """A listener added after all others left gets the hint None again."""
        self.poll.add(self.told.append)()
        self.told.clear()
        self.poll.add(self.told.append)
        self.assertEqual(self.told, [None])
        self.successResultOf(self.poll.close())
