"""Tests for :mod:`twisted_exec.kube.recorder`: a cluster in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import MACHINES, machine
from tests.retained import entries
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.kube import recorder
from twisted_exec.kube.recorder import BURST, MAX_SIMILAR, REFILL_SECONDS, Recorder
from twisted_exec.testing.cluster import MemoryCluster

EPOCH = 1_700_000_000.0


class RecorderTests(SynchronousTestCase):
    """Tests for :class:`Recorder`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(EPOCH)
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.recorder = self.make()
        self.vm = self.create("vm")
        self.busy = False

    def make(self) -> Recorder:
        return Recorder(
            self.client,
            self.clock,
            about=IRONCORE.workload,
            component=IRONCORE.poollet,
            host="pool-a",
            now=self.clock.seconds,
            busy=lambda: self.busy,
        )

    def create(self, name: str) -> Any:
        return self.successResultOf(self.client.create(MACHINES, machine(name), "lab"))

    def events(self) -> list[Any]:
        found = self.successResultOf(self.client.list(kinds.EVENTS.resource, "lab"))["items"]
        return sorted(found, key=lambda event: str(event["metadata"]["uid"]))

    def test_busy(self) -> None:
        """While the pool is busy, Events are delayed for a bounded time and counted together."""
        self.busy = True
        for _ in range(3):
            self.recorder.record(self.vm, "Normal", "Created", "made")
        self.clock.advance(0.25)
        self.assertEqual(self.events(), [])
        self.busy = False
        self.clock.advance(0.25)
        self.assertEqual([event["count"] for event in self.events()], [3])
        self.busy = True
        self.recorder.record(self.vm, "Normal", "Other", "made")
        self.clock.pump([0.25] * 8)
        self.assertEqual(len(self.events()), 2)

    def test_told(self) -> None:
        """An Event has type, reason, message, times and the object it is about."""
        self.recorder.record(self.vm, "Normal", "Started", "it\nruns")
        (event,) = self.events()
        self.assertEqual(
            event["involvedObject"],
            {
                "apiVersion": "compute.ironcore.dev/v1alpha1",
                "kind": "Machine",
                "namespace": "lab",
                "name": "vm",
                "uid": self.vm["metadata"]["uid"],
                "resourceVersion": self.vm["metadata"]["resourceVersion"],
            },
        )
        told = {key: event[key] for key in ("type", "reason", "message", "count", "source")}
        self.assertEqual(
            told,
            {
                "type": "Normal",
                "reason": "Started",
                "message": "it runs",
                "count": 1,
                "source": {"component": "machinepoollet", "host": "pool-a"},
            },
        )
        self.assertEqual(event["firstTimestamp"], timestamp(EPOCH))
        self.assertTrue(event["metadata"]["name"].startswith("vm."))

    def test_no_namespace(self) -> None:
        """Events of cluster-scoped objects are in the namespace ``default``."""
        about = {"metadata": {"name": "node-a", "uid": "u-1"}}
        self.recorder.record(about, "Normal", "Started", "it runs")
        (event,) = self.successResultOf(self.client.list(kinds.EVENTS.resource, "default"))["items"]
        self.assertEqual(event["involvedObject"]["namespace"], "")

    def test_counted(self) -> None:
        """A repeated Event increases the count of the first."""
        for _ in range(3):
            self.clock.advance(10)
            self.recorder.record(self.vm, "Warning", "CreateFailed", "no room")
        (event,) = self.events()
        self.assertEqual(event["count"], 3)
        self.assertEqual(event["firstTimestamp"], timestamp(EPOCH + 10))
        self.assertEqual(event["lastTimestamp"], timestamp(EPOCH + 30))

    def test_apart(self) -> None:
        """Another reason, message or machine gives another Event."""
        other = self.create("other")
        for about, reason, message in (
            (self.vm, "A", "x"),
            (self.vm, "B", "x"),
            (self.vm, "A", "y"),
            (other, "A", "x"),
        ):
            self.recorder.record(about, "Normal", reason, message)
        self.assertEqual([event["count"] for event in self.events()], [1] * 4)

    def test_similar(self) -> None:
        """Beyond MAX_SIMILAR messages, Events are combined into one with the newest message."""
        for number in range(MAX_SIMILAR + 5):
            self.recorder.record(self.vm, "Warning", "CreateFailed", f"try {number}")
        messages = {event["message"]: event["count"] for event in self.events()}
        self.assertEqual(len(messages), MAX_SIMILAR + 1)
        newest = f"(combined from similar events): try {MAX_SIMILAR + 4}"
        self.assertEqual(messages[newest], 5)

    def test_spam(self) -> None:
        """Each machine has a burst and a rate limit of its own."""
        for _ in range(3 * BURST):
            self.recorder.record(self.vm, "Warning", "Failed", "again")
        self.assertEqual(self.events()[0]["count"], BURST)
        self.recorder.record(self.create("other"), "Normal", "Started", "it runs")
        self.assertEqual(len(self.events()), 2)
        self.clock.advance(2 * REFILL_SECONDS + 1)
        for _ in range(5):
            self.recorder.record(self.vm, "Warning", "Failed", "again")
        self.assertEqual(max(event["count"] for event in self.events()), BURST + 2)

    def test_bounded(self) -> None:
        """The recorder's memory is bounded."""
        self.patch(recorder, "MAX_KEPT", 10)
        self.recorder = self.make()
        sizes = []
        for number in range(30):
            about = {"metadata": {"name": "m", "namespace": "lab", "uid": f"u-{number}"}}
            self.recorder.record(about, "Normal", "A", "x")
            self.clock.advance(1)
            sizes.append(entries(self.recorder, beside=[self.client, self.cluster]))
        self.assertEqual(len(set(sizes[10:])), 1)

    def test_bounded_without_a_server(self) -> None:
        """It is, too, while the API server is down."""
        self.patch(recorder, "MAX_KEPT", 10)
        self.recorder = self.make()
        self.cluster.problem = ServiceUnavailable("no store")
        sizes = []
        for number in range(30):
            about = {"metadata": {"name": "m", "namespace": "lab", "uid": f"u-{number}"}}
            self.recorder.record(about, "Normal", "A", "x")
            sizes.append(entries(self.recorder, beside=[self.client, self.cluster, self.clock]))
        self.assertEqual(len(set(sizes[15:])), 1)

    def test_after_a_restart(self) -> None:
        """After a restart, the same Event is counted on."""
        self.recorder.record(self.vm, "Normal", "Started", "it runs", at=EPOCH - 60)
        again = self.make()
        for at in (EPOCH - 60, EPOCH - 30):
            again.record(self.vm, "Normal", "Started", "it runs", at=at)
        (event,) = self.events()
        self.assertEqual((event["count"], event["lastTimestamp"]), (2, timestamp(EPOCH - 30)))

    def test_times(self) -> None:
        """Events older than EVENT_SECONDS are dropped; future times become now."""
        self.recorder.record(self.vm, "Normal", "Old", "x", at=EPOCH - kinds.EVENT_SECONDS - 1)
        self.recorder.record(self.vm, "Normal", "Never", "x", at=-1e20)
        self.assertEqual(self.events(), [])
        self.recorder.record(self.vm, "Normal", "Future", "x", at=1e20)
        self.assertEqual(self.events()[0]["lastTimestamp"], timestamp(EPOCH))

    def test_expired(self) -> None:
        """An Event that was deleted meanwhile is created again."""
        self.recorder.record(self.vm, "Normal", "A", "x")
        (event,) = self.events()
        name = event["metadata"]["name"]
        self.successResultOf(self.client.delete(kinds.EVENTS.resource, name, "lab"))
        self.recorder.record(self.vm, "Normal", "A", "x")
        self.assertEqual([event["count"] for event in self.events()], [2])

    def test_away(self) -> None:
        """While the API server is down Events are counted, and written once it is back."""
        self.cluster.problem = ServiceUnavailable("no store")
        with capturedLogs() as logs:
            for _ in range(3):
                self.recorder.record(self.vm, "Warning", "Failed", "x")
                self.clock.advance(5)
        told = [event for event in logs if "why" in event]
        self.assertEqual([event["why"] for event in told], ["no store"])
        self.cluster.problem = None
        self.clock.pump([10.0] * 10)
        self.assertEqual([event["count"] for event in self.events()], [3])

    def test_given_up(self) -> None:
        """Retries stop after a while."""
        self.cluster.problem = ServiceUnavailable("no store")
        self.recorder.record(self.vm, "Warning", "Failed", "x")
        self.clock.pump([60.0] * 60)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.cluster.problem = None
        self.clock.pump([60.0] * 60)
        self.assertEqual(self.events(), [])

    def test_refused(self) -> None:
        """
        Refused Events are dropped: silently if the namespace or the machine is being deleted; a
        missing right is logged once.
        """
        ending = "unable to create new content in namespace lab because it is being terminated"
        gone = 'the poollet of machine pool "pool-a" may not create events "vm.fd7"'
        missing = (
            'events is forbidden: User "poollet" cannot patch resource "events" in API group ""'
        )
        line = (
            f"events of machinepoollet about machines cannot be written: {missing}; "
            "allow its user to create and patch events"
        )
        for message, logged in ((ending, []), (gone, []), (missing, [line]), (missing, [])):
            self.cluster.problem = Forbidden(message)
            with capturedLogs() as logs:
                self.recorder.record(self.vm, "Normal", "Deleted", "x")
            self.assertEqual([formatEvent(each) for each in logs], logged)
            asked = len(self.cluster.requests)
            self.clock.pump([10.0] * 10)
            self.assertEqual(len(self.cluster.requests), asked)

    def test_long(self) -> None:
        """Long messages are cut at the Kubernetes limit, between characters."""
        self.recorder.record(self.vm, "Normal", "A", "ä" * 1500)
        self.assertEqual(self.events()[0]["message"], "ä" * 512)

    def test_stopped(self) -> None:
        """After ``stop`` no Events are written and no timers remain."""
        self.cluster.problem = ServiceUnavailable("no store")
        self.recorder.record(self.vm, "Normal", "A", "x")
        self.successResultOf(self.recorder.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.cluster.problem = None
        self.recorder.record(self.vm, "Normal", "A", "x")
        self.assertEqual(self.events(), [])
        self.successResultOf(self.make().stop())
