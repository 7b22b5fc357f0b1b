"""
Tests for :mod:`twisted_exec.storage.follower`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, machine
from twisted_exec.api.resource import Resource
from twisted_exec.control.backoff import LONGEST_PAUSE_SECONDS
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.follower import (
    Followed,
    StoreFollower,
    listed_as_added,
)
from twisted_exec.storage.interfaces import Event, Listing
from twisted_exec.storage.memory import MemoryStorage


class Names(StoreFollower):
    """Notes the changes of machines."""

    namespace = ""
    lists = True

    def followed(self) -> tuple[Followed, ...]:
        """See :meth:`StoreFollower.followed`."""
        listed = listed_as_added(self._changed) if self.lists else None
        return (Followed(MACHINES, self._changed, listed, self.namespace),)

    def __init__(self, storage: MemoryStorage, clock: Clock) -> None:
        super().__init__(storage, clock)
        self.changes: list[tuple[str, str]] = []

    def _changed(self, event: Event) -> None:
        self.changes.append((event.type, event.obj["metadata"]["name"]))


class SlowStorage(MemoryStorage):
    """Lists when the test says so."""

    listing: Deferred[Listing] | None = None

    def list(self, resource: Resource, namespace: str = "", **options: object) -> Deferred[Listing]:
        """Answer later, if there is a Deferred to wait for."""
        return self.listing or super().list(resource, namespace)


class StoreFollowerTests(TestCase):
    """Tests for :class:`StoreFollower`."""

    def setUp(self) -> None:
        """A store with one machine."""
        self.storage = SlowStorage()
        self.storage.startService()
        self.addCleanup(self.storage.stopService)
        self.successResultOf(self.storage.create(MACHINES, machine("a")))
        self.clock = Clock()
        self.follower = Names(self.storage, self.clock)

    def test_list_and_changes(self) -> None:
        """Existing objects come first, then each change."""
        self.follower.startService()
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [("ADDED", "a"), ("ADDED", "b")])

    def test_changes_only(self) -> None:
        """A follower that does not list sees what happens after its start."""
        self.follower.lists = False
        self.follower.startService()
        self.assertEqual(self.follower.changes, [])
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [("ADDED", "b")])

    def test_parts(self) -> None:
        """A queue of the follower works while the follower runs, also after a new start."""
        begun: list[str] = []
        ending: Deferred[None] = Deferred(lambda each: None)

        async def work(name: str) -> None:
            begun.append(name)
            await ending

        queue: WorkQueue[str] = WorkQueue(work, self.clock)
        self.follower.add_part(queue)
        self.follower.startService()
        queue.add("a")
        stopping = self.follower.stopService()
        queue.add("b")
        self.assertEqual(begun, ["a"])
        self.successResultOf(stopping)
        self.follower.startService()
        queue.add("c")
        self.assertEqual(begun, ["a", "c"])

    def test_one_namespace(self) -> None:
        """Lists and changes are those of the namespace."""
        self.follower.namespace = "other"
        self.follower.startService()
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [])

    def test_stop(self) -> None:
        """Nothing arrives after the stop, not even a list that was under way."""
        self.storage.listing = Deferred()
        self.follower.startService()
        self.follower.stopService()
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.storage.listing.callback(Listing([machine("a")], 1))
        self.assertEqual(self.follower.changes, [])

    def test_start_again(self) -> None:
        """A service that starts again sees each change once."""
        self.follower.lists = False
        for _ in range(2):
            self.follower.startService()
            self.follower.stopService()
        self.follower.startService()
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [("ADDED", "b")])

    def test_list_fails(self) -> None:
        """A failed list is logged once and repeated until it succeeds; changes still arrive."""
        self.storage.listing = fail(OSError("gone"))
        self.follower.startService()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [("ADDED", "b")])
        for _ in range(10):
            self.storage.listing = fail(OSError("gone"))
            self.clock.advance(LONGEST_PAUSE_SECONDS + 1)
        self.assertEqual(self.flushLoggedErrors(OSError), [])
        self.storage.listing = None
        self.clock.advance(LONGEST_PAUSE_SECONDS + 1)
        self.assertEqual(self.follower.changes[1:], [("ADDED", "a"), ("ADDED", "b")])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_pauses(self) -> None:
        """The pauses between lists grow."""
        self.storage.listing = fail(OSError("gone"))
        self.follower.startService()
        pauses = []
        for _ in range(10):
            (call,) = self.clock.getDelayedCalls()
            pauses.append(call.getTime() - self.clock.seconds())
            self.storage.listing = fail(OSError("gone"))
            self.clock.advance(pauses[-1])
        self.assertLess(pauses[0], 2)
        self.assertGreaterEqual(min(pauses[-3:]), LONGEST_PAUSE_SECONDS / 2)
        self.assertLessEqual(max(pauses), LONGEST_PAUSE_SECONDS)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.follower.stopService()

    def test_stop_before_a_list(self) -> None:
        """A stop ends the attempts, and nothing is logged about that."""
        self.storage.listing = fail(OSError("gone"))
        self.follower.startService()
        self.follower.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(len(self.flushLoggedErrors()), 1)
        self.assertEqual(self.follower.changes, [])

    def test_other_reasons(self) -> None:
        """A failure for another reason is logged, too; a list that cannot be handled is not repeated."""
        self.storage.listing = fail(OSError("gone"))
        self.follower.startService()
        self.storage.listing = fail(OSError("refused"))
        self.clock.advance(LONGEST_PAUSE_SECONDS + 1)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 2)
        self.storage.listing = succeed(Listing([{}], 1))
        self.clock.advance(LONGEST_PAUSE_SECONDS + 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
