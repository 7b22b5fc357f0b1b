"""Tests for :mod:`twisted_exec.apiserver.serving.watches.shared_events`."""

from __future__ import annotations

import weakref

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import machine
from twisted_exec.api.encoded import Encoded
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.serving.watches.shared_events import SharedEvents
from twisted_exec.storage.interfaces import MODIFIED, Event


def stored(name: str, **spec: object) -> Object:
    """A machine as a store keeps it."""
    obj = machine(name, **spec)
    return Encoded({**obj, "metadata": {"name": name, "namespace": "ä", "resourceVersion": "7"}})


class SharedEventsTests(SynchronousTestCase):
    """Tests for :class:`SharedEvents`."""

    def test_once(self) -> None:
        """What watches share of a change is made once for each key."""
        events, made = SharedEvents(), []
        for version in range(2):
            event = Event(MODIFIED, stored("a", turn=version), None, version)

            def make(version: int = version) -> int:
                made.append(version)
                return version

            for key in ("whole", "Table") * 1000:
                self.assertEqual(events.of(event).once(key, make), version)
        self.assertEqual(made, [0, 0, 1, 1])

    def test_kept_while_it_waits(self) -> None:
        """A change that a watch has not sent is the same one for others, however many follow."""
        events = SharedEvents()
        first = Event(MODIFIED, stored("a"), None, 1)
        waiting = events.of(first)
        later = [Event(MODIFIED, stored("a"), None, 2 + turn) for turn in range(100)]
        others = [weakref.ref(events.of(event)) for event in later]
        self.assertIs(events.of(first), waiting)
        self.assertIsNone(others[0](), "nobody sends it any more")

    def test_counted_once(self) -> None:
        """The first watch that waits counts the memory of a change."""
        shared = SharedEvents().of(Event(MODIFIED, stored("a", turn=1), None, 1))
        self.assertGreater(shared.uncounted_bytes(), 100)
        self.assertEqual(shared.uncounted_bytes(), 0)
