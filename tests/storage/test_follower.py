"""
Tests for :mod:`twisted_exec.storage.follower`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import TestCase

from tests.contracts.storage import MACHINES, machine
from twisted_exec.api.resource import Resource
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
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

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
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
        self.follower = Names(self.storage)

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
        """A failed list is logged; changes still arrive."""
        self.storage.listing = fail(OSError("gone"))
        self.follower.startService()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.successResultOf(self.storage.create(MACHINES, machine("b")))
        self.assertEqual(self.follower.changes, [("ADDED", "b")])
