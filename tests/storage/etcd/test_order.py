"""
Tests for :mod:`twisted_exec.storage.etcd.order`.
"""

from __future__ import annotations

import json

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.storage import MACHINES, machine
from tests.retained import entries
from twisted_exec.api.encoded import json_of
from twisted_exec.storage.etcd.keys import Keys, place_of, value_of, with_version
from twisted_exec.storage.etcd.marker import MarkerValue
from twisted_exec.storage.etcd.order import ChangeOrder, OrderedWrite
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import ADDED, MODIFIED, Event

KEYS = Keys("/p")


class OrderTests(SynchronousTestCase):
    """The order in which changes are shown."""

    def setUp(self) -> None:
        self.clock, self.history = Clock(), History()
        self.reasons: list[str] = []
        self.order = ChangeOrder(self.history, KEYS, self.clock, self.reasons.append)
        self.history.restore([], 10, 10)
        self.order.begin(10, "theirs-1")
        self.events: list[Event] = []
        self.history.watch(MACHINES, None, self.events.append, "")
        self.dealt_with = 0

    def mine(self, name: str) -> OrderedWrite:
        """Return a write of this server that has been sent."""
        obj = machine(name)
        write = OrderedWrite(f"mine-{name}", place_of(MACHINES, obj), ADDED, obj, value_of(obj))
        self.order.expect(write)
        return write

    def revision(self, number: int, name: str, write: str | None) -> list[pb.Event]:
        """Return the watch events of one transaction."""
        key = KEYS.key(MACHINES, "default", name)
        value = value_of(machine(name)).encode()
        events = [pb.Event(kv=pb.KeyValue(key=key, value=value, mod_revision=number))]
        if write is not None:
            marker = pb.KeyValue(
                key=KEYS.marker, value=MarkerValue(write).encode(), mod_revision=number
            )
            events.append(pb.Event(kv=marker))
        return events

    def tell(self, *revisions: list[pb.Event]) -> None:
        """Deliver watch events."""
        events = [event for revision in revisions for event in revision]
        self.order.events(events, self._dealt_with)

    def _dealt_with(self) -> None:
        self.dealt_with += 1

    def names(self) -> list[tuple[str, int]]:
        return [(event.obj["metadata"]["name"], event.version) for event in self.events]

    def test_at_once(self) -> None:
        """A write that directly follows the last shown revision is shown at once, and only once."""
        write = self.mine("a")
        self.order.confirmed(write, 11, 10)
        made = self.successResultOf(write.done)
        self.assertEqual(self.names(), [("a", 11)])
        self.assertIs(self.events[0].obj, made)
        self.tell(self.revision(11, "a", "mine-a"))
        self.assertEqual((self.names(), self.dealt_with), ([("a", 11)], 1))

    def test_update(self) -> None:
        """An update is shown with the bytes that were written, as on every other server."""
        old = machine("a")
        obj = {**old, "metadata": {**old["metadata"], "resourceVersion": "10"}}
        text = value_of(obj)
        write = OrderedWrite("mine-a", place_of(MACHINES, obj), MODIFIED, obj, text)
        self.order.expect(write)
        self.order.confirmed(write, 11, 10)
        made = self.successResultOf(write.done)
        self.assertEqual(made["metadata"]["resourceVersion"], "11")
        self.assertEqual(json_of(made), with_version(json.loads(text), text, 11).json)

    def test_by_the_watch(self) -> None:
        """If the watch precedes the response, the written object itself is shown."""
        write = self.mine("a")
        self.tell(self.revision(11, "a", "mine-a"))
        made = self.successResultOf(write.done)
        self.assertIs(self.events[0].obj, made)
        self.order.confirmed(write, 11, 10)
        self.assertEqual(self.names(), [("a", 11)])

    def test_after_others(self) -> None:
        """Earlier writes of other servers are shown first."""
        write = self.mine("b")
        self.order.confirmed(write, 12, 11)
        self.assertNoResult(write.done)
        self.tell(self.revision(11, "a", "theirs-2"))
        self.assertEqual(self.names(), [("a", 11), ("b", 12)])
        self.successResultOf(write.done)

    def test_confirmed_out_of_order(self) -> None:
        """Writes of ours may be confirmed in any order."""
        writes = {name: self.mine(name) for name in "abc"}
        self.order.confirmed(writes["c"], 13, 12)
        self.order.confirmed(writes["b"], 12, 11)
        self.assertEqual(self.names(), [])
        self.order.confirmed(writes["a"], 11, 10)
        self.assertEqual(self.names(), [("a", 11), ("b", 12), ("c", 13)])

    def test_reached(self) -> None:
        """reached() fires when its revision has been shown."""
        later, now = self.order.reached(12), self.order.reached(10)
        self.successResultOf(now)
        self.tell(self.revision(11, "a", "theirs-2"))
        self.assertNoResult(later)
        self.tell(self.revision(12, "b", "theirs-3"))
        self.successResultOf(later)

    def test_waited_no_longer(self) -> None:
        """Cancelled waits do not accumulate."""
        before = entries(self.order)
        for _ in range(100):
            self.order.reached(12).addErrback(lambda _: None).cancel()
        self.assertLess(entries(self.order), before + 10)

    def test_listed_meanwhile(self) -> None:
        """A write that the new list contains is confirmed to its writer and not shown again."""
        early, late = self.mine("a"), self.mine("b")
        self.order.confirmed(late, 13, 12)
        self.order.begin(13, "mine-b")
        self.assertEqual(self.successResultOf(late.done)["metadata"]["resourceVersion"], "13")
        self.order.confirmed(early, 12, 11)
        self.successResultOf(early.done)
        self.assertEqual(self.events, [])

    def test_by_other_means(self) -> None:
        """
        Writes without the marker are shown too; if their order is in doubt, a new list follows.
        """
        self.tell(self.revision(11, "a", None))
        self.assertEqual((self.names(), self.reasons), ([("a", 11)], []))
        self.order.confirmed(self.mine("c"), 13, 10)
        self.tell(self.revision(12, "b", None))
        self.assertEqual(self.names(), [("a", 11), ("c", 13)])
        self.assertEqual(self.reasons, ["another program changes etcd's keys of this API server"])

    def test_marker(self) -> None:
        """If the marker is gone or unknown, the order is in doubt."""
        gone = pb.KeyValue(key=KEYS.marker, mod_revision=11)
        self.tell([pb.Event(type=pb.Event.DELETE, kv=gone)])
        self.tell([pb.Event(kv=pb.KeyValue(key=KEYS.marker, value=b"x", mod_revision=12))])
        deleted, _ = self.reasons
        self.assertEqual(
            deleted,
            f"another program has deleted {KEYS.marker.decode()} from etcd, the marker of the last write",
        )
        self.assertEqual(self.order.seen, 10)

    def test_turns(self) -> None:
        """Each revision is shown in one step; many revisions are spread over several turns."""
        for _ in range(999):
            self.history.watch(MACHINES, None, self.events.append, "")
        self.tell(*(self.revision(number, f"m{number}", f"w-{number}") for number in (11, 12)))
        self.assertEqual(len(self.events), 1000)
        self.assertEqual(self.dealt_with, 0)
        self.tell(self.revision(13, "m13", "w-13"))
        self.assertEqual(len(self.events), 1000)
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertEqual((len(self.events), self.dealt_with), (3000, 2))

    def test_stopped_before_it_is_shown(self) -> None:
        """A write that etcd has confirmed is not told to have failed."""
        write = self.mine("b")
        self.order.confirmed(write, 12, 11)
        self.order.stop()
        self.assertEqual(self.successResultOf(write.done)["metadata"]["resourceVersion"], "12")
        self.assertEqual((self.order.waiting(), self.events), ([], []))

    def test_stop(self) -> None:
        """Nothing waits any more."""
        waiting = self.order.reached(12)
        for _ in range(999):
            self.history.watch(MACHINES, None, self.events.append, "")
        self.tell(*(self.revision(number, f"m{number}", f"w-{number}") for number in (11, 13)))
        self.order.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.failureResultOf(waiting)
