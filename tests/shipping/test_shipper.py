"""
Shipping to one sink: :mod:`twisted_exec.shipping.shipper`.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.control.support import WithoutJitter
from tests.journal.support import LateJournal, SlowDisk, close_segments
from tests.retained import instances
from tests.shipping.doubles import MemoryBatch, MemorySink
from twisted_exec.journal.journal import Journal
from twisted_exec.shipping.interfaces import BatchRefused, Labels, Receipt, SinkError
from twisted_exec.shipping.metrics import ShippingMetrics
from twisted_exec.shipping.shipper import Shipper
from twisted_exec.shipping.source import ShippedJournal

_SECOND = 1_000_000_000


class ShipperCase(SynchronousTestCase):
    """A shipper, its sink, and a clock for both and the journals."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.sink = MemorySink()
        self.shippers: list[Shipper] = []
        self.addCleanup(lambda: [self.stop(each) for each in list(self.shippers)])

    def shipper(self, **options: Any) -> Shipper:
        self.registry = CollectorRegistry()
        metrics = ShippingMetrics(self.registry)
        shipper = Shipper(
            self.sink, self.clock, metrics.of("memory"), rng=WithoutJitter(), **options
        )
        metrics.watch("memory", shipper)
        shipper.start()
        self.shippers.append(shipper)
        return shipper

    def stop(self, shipper: Shipper) -> None:
        self.shippers.remove(shipper)
        stopped = Deferred.fromCoroutine(shipper.stop())
        self.clock.pump([0.1] * 20)
        self.successResultOf(stopped)

    def journal(self, shipper: Shipper | None = None, machine: str = "vm") -> Journal:
        journal = Journal(lambda: int(self.clock.seconds() * _SECOND))
        if shipper is not None:
            shipper.add(Labels(machine), journal)
        return journal

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.05] * int(seconds * 20))

    def metric(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(
            f"twisted_exec_shipping_{name}", {"sink": "memory", **labels}
        )
        assert value is not None
        return value


class DeliveryTests(ShipperCase):
    """A sink that works."""

    def test_lines(self) -> None:
        """Lines of all machines arrive within a second, in order, with their labels."""
        shipper = self.shipper()
        one, two = self.journal(shipper, "one"), self.journal(shipper, "two")
        for number in range(5):
            one.append(b"one %d\r\n" % number)
            two.append(b"two %d\r\n" % number)
        self.run_for(1)
        self.assertEqual(self.sink.texts("one"), [b"one %d" % number for number in range(5)])
        self.assertEqual(self.sink.texts("two"), [b"two %d" % number for number in range(5)])
        self.assertEqual(len(self.sink.sizes), 1)
        self.assertEqual(self.metric("lines_total"), 10)
        self.assertEqual(self.metric("bytes_total"), one.end + two.end)

    def test_restart(self) -> None:
        """The next shipper continues where the last one stopped."""
        first = self.shipper()
        journal = self.journal(first)
        journal.append(b"one\n")
        self.run_for(1)
        self.stop(first)
        self.assertTrue(self.sink.is_closed)
        journal.append(b"two\n")
        self.shipper().add(Labels("vm"), journal)
        self.run_for(1)
        self.assertEqual(self.sink.texts(), [b"one", b"two"])

    def test_late_disk(self) -> None:
        """A shipper whose position is on a disk that does not answer continues there when it answers."""
        for newest in (False, True):
            with self.subTest(newest=newest):
                self.sink = MemorySink()
                journal = LateJournal(lambda: int(self.clock.seconds() * _SECOND))
                first = self.shipper(newest=newest)
                first.add(Labels("vm"), journal)
                self.run_for(1)
                journal.append(b"one\n")
                self.run_for(1)
                self.stop(first)
                journal.append(b"two\n")
                journal.is_late = True
                self.shipper(newest=newest).add(Labels("vm"), journal)
                self.run_for(1)
                journal.append(b"three\n")
                self.run_for(1)
                self.assertEqual(self.sink.texts(), [b"one"])
                journal.is_late = False
                journal.became_readable()
                self.run_for(1)
                self.assertEqual(self.sink.texts(), [b"one", b"two", b"three"])

    def test_slow_disk(self) -> None:
        """Lines of a disk that does not answer at once arrive whole, each with its time."""
        self.addCleanup(close_segments)
        chance = random.Random(1)
        disk = SlowDisk(self.mktemp(), self.clock, lambda call: chance.random() < 0.3)
        times = itertools.count(1_000_000 * _SECOND, _SECOND // 10)
        journal = Journal(lambda: next(times), disk)
        printed = []
        for number in range(100):
            if number % 40 == 0:
                journal.booted("Started")
            text = b"line %d, " % number
            journal.append(text)
            journal.append(b"the rest\n")
            printed.append((text + b"the rest", journal.last_time))
        journal.rest()
        self.shipper().add(Labels("vm"), journal)
        self.run_for(5)
        self.assertGreater(disk.refusals, 0)
        self.assertEqual([(line.text, line.time) for _, line in self.sink.entries], printed)

    def test_killed(self) -> None:
        """A shipper that is killed repeats the lines of the last seconds, and no others."""
        first = self.shipper()
        journal = self.journal(first)
        journal.append(b"one\n")
        self.run_for(6)
        self.sink.settles = False
        journal.append(b"two\n")
        self.run_for(1)
        self.shipper().add(Labels("vm"), journal)
        self.run_for(1)
        self.assertEqual(self.sink.texts(), [b"one", b"two", b"two"])

    def test_prompt(self) -> None:
        """Text without a newline is sent when nothing follows for ten seconds."""
        journal = self.journal(self.shipper())
        journal.append(b"login: ")
        self.run_for(5)
        journal.append(b"ada")
        self.run_for(9)
        self.assertEqual(self.sink.texts(), [])
        self.run_for(2)
        self.assertEqual(self.sink.texts(), [b"login: ada"])
        journal.append(b"\nok\n")
        self.run_for(1)
        self.assertEqual(self.sink.texts(), [b"login: ada", b"", b"ok"])

    def test_deleted(self) -> None:
        """The rest of a deleted machine is sent; then its journal is released."""
        shipper = self.shipper()
        journal = self.journal(shipper)
        journal.append(b"one\ncut")
        journal.close()
        self.run_for(7)
        self.assertEqual(self.sink.texts(), [b"one", b"cut"])
        self.assertEqual((shipper.sources, instances(journal, ShippedJournal)), (set(), []))

    def test_deleted_idle(self) -> None:
        """A journal that is closed when everything was sent is released, too."""
        shipper = self.shipper()
        journal = self.journal(shipper)
        journal.append(b"one\n")
        self.run_for(7)
        journal.close()
        self.run_for(1)
        self.assertEqual((shipper.sources, instances(journal, ShippedJournal)), (set(), []))

    def test_newest(self) -> None:
        """A new sink may begin with new lines; by default it gets what is retained."""
        journal = self.journal()
        journal.append(b"old\n")
        shipper = self.shipper(newest=True)
        shipper.add(Labels("vm"), journal)
        self.run_for(1)
        journal.append(b"new\n")
        self.run_for(1)
        self.assertEqual(self.sink.texts(), [b"new"])

    def test_plain(self) -> None:
        """Escape sequences can be removed."""
        journal = self.journal(self.shipper(plain=True))
        journal.append(b"\x1b[1mbold\x1b[0m\r\n")
        self.run_for(1)
        self.assertEqual(self.sink.texts(), [b"bold"])

    def test_max_age(self) -> None:
        """Lines that are too old for the receiver are replaced by a gap."""
        journal = self.journal()
        journal.append(b"old\n")
        self.clock.advance(3600)
        journal.append(b"new\n")
        self.shipper(max_age_seconds=60).add(Labels("vm"), journal)
        self.run_for(1)
        self.assertEqual([line.missing for _, line in self.sink.entries], [4, 0])
        self.assertEqual(self.sink.texts(), [b"", b"new"])

    def test_gap(self) -> None:
        """Output that the journal has lost is a record of its own, and counted."""
        journal = self.journal()
        for _ in range(3):
            journal.append(b"x" * 65535 + b"\n")
        shipper = self.shipper()
        shipper.add(Labels("vm"), journal)
        self.sink.refusal = lambda batch: SinkError("unreachable", "no route")
        self.run_for(1)
        journal.discard_before(65536)
        self.sink.refusal = lambda batch: None
        self.run_for(10)
        self.assertEqual(self.sink.entries[0][1].missing, 65536)
        self.assertEqual(sum(map(len, self.sink.texts())), 2 * 65535)
        self.assertGreaterEqual(self.metric("missing_bytes_total"), 65536)

    def test_flood(self) -> None:
        """A machine that prints without end does not keep out the others."""
        shipper = self.shipper()
        flood = self.journal(shipper, "flood")
        flood.append((b"x" * 99 + b"\n") * 100_000)
        journals = [self.journal(shipper, f"vm-{number}") for number in range(20)]
        for journal in journals:
            journal.append(b"here\n")
        self.run_for(0.9)
        order = [machine for machine, _ in self.sink.entries]
        self.assertEqual(order.count("flood"), 100_000)
        self.assertEqual(len(set(order[:1000])), 21)

    def test_thousand(self) -> None:
        """The lines of a thousand machines are sent in a few batches."""
        shipper = self.shipper()
        journals = [self.journal(shipper, f"vm-{number}") for number in range(1000)]
        self.run_for(0.1)
        for journal in journals:
            journal.append(b"ready\n")
        self.run_for(2)
        self.assertEqual(len(self.sink.entries), 1000)
        self.assertEqual(len(self.sink.sizes), 1)
        self.assertEqual(self.metric("lag_bytes"), 0)


class OutageTests(ShipperCase):
    """A sink that fails."""

    def test_back_off(self) -> None:
        """Attempts become rare; then everything arrives, in order and once."""
        self.sink.refusal = lambda batch: SinkError("unreachable", "no route to host")
        shipper = self.shipper()
        journal = self.journal(shipper)
        for number in range(300):
            journal.append(b"%d\n" % number)
            self.run_for(1)
        self.assertEqual(self.sink.entries, [])
        self.assertLess(len(self.sink.sizes), 12)
        self.assertEqual(self.metric("lag_bytes"), journal.end)
        self.assertGreater(self.metric("lag_seconds"), 299)
        self.assertEqual(self.metric("failures_total", kind="unreachable"), len(self.sink.sizes))
        self.assertEqual(shipper.problem, "no route to host")
        self.sink.refusal = lambda batch: None
        self.run_for(70)
        self.assertEqual(self.sink.texts(), [b"%d" % number for number in range(300)])
        self.assertEqual(self.metric("lag_seconds"), 0)
        self.assertEqual(shipper.problem, "")

    def test_full_disk(self) -> None:
        """Lines are sent although no cursor can be written."""
        shipper = self.shipper()
        journal = self.journal()

        def save(offset: int) -> None:
            raise OSError(28, "No space left on device")

        self.patch(journal.cursor("ship-memory"), "save", save)
        shipper.add(Labels("vm"), journal)
        journal.append(b"one\n")
        self.run_for(10)
        self.assertEqual(self.sink.texts(), [b"one"])

    def test_mistake(self) -> None:
        """An unexpected exception of a sink is logged, and the lines are sent again."""

        def fail(batch: MemoryBatch) -> None:
            raise ZeroDivisionError

        self.sink.refusal = fail
        self.journal(self.shipper()).append(b"one\n")
        self.run_for(1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.sink.refusal = lambda batch: None
        self.run_for(5)
        self.assertEqual(self.sink.texts(), [b"one"])

    def test_retry_after(self) -> None:
        """The receiver's own wish is respected, within limits."""
        self.sink.refusal = lambda batch: SinkError("refused", "busy", 120)
        self.journal(self.shipper()).append(b"one\n")
        self.run_for(110)
        self.assertEqual(len(self.sink.sizes), 1)
        self.run_for(15)
        self.assertEqual(len(self.sink.sizes), 2)

    def test_poison(self) -> None:
        """A line that the receiver refuses is left out; all others arrive."""

        def refuse(batch: MemoryBatch) -> SinkError | None:
            texts = [line.text for _, line in batch.entries]
            return BatchRefused("400") if b"poison" in texts else None

        self.sink.refusal = refuse
        journal = self.journal(self.shipper())
        texts = [b"%d" % number for number in range(50)]
        journal.append(b"\n".join([*texts[:25], b"poison", *texts[25:], b""]))
        self.run_for(20)
        self.assertEqual(self.sink.texts(), texts)
        self.assertEqual(self.metric("rejected_lines_total"), 1)
        self.assertEqual(self.metric("lag_bytes"), 0)

    def test_everything_refused(self) -> None:
        """A receiver that refuses every line gets them all when it is repaired."""
        self.sink.refusal = lambda batch: BatchRefused("400 Bad Request")
        shipper = self.shipper()
        one, two = self.journal(shipper, "one"), self.journal(shipper, "two")
        one.append(b"1\n2\n3\n")
        two.append(b"4\n")
        self.run_for(600)
        self.assertEqual(self.metric("rejected_lines_total"), 0)
        self.assertLess(len(self.sink.sizes), 40)
        self.sink.refusal = lambda batch: None
        self.run_for(70)
        self.assertEqual(self.sink.texts("one"), [b"1", b"2", b"3"])
        self.assertEqual(self.sink.texts("two"), [b"4"])

    def test_partial_success(self) -> None:
        """Lines that the receiver discards on purpose are counted and not repeated."""
        self.sink.receipt = Receipt(2, "too old")
        self.journal(self.shipper()).append(b"1\n2\n3\n")
        self.run_for(20)
        self.assertEqual(self.sink.sizes, [3])
        self.assertEqual(self.metric("rejected_lines_total"), 2)
        self.assertEqual(self.metric("lines_total"), 1)

    def test_lost_before_settled(self) -> None:
        """Lines that the receiver accepted and may have lost are sent again."""
        journal = self.journal(self.shipper())
        journal.append(b"one\n")
        self.run_for(6)
        self.sink.loss = SinkError("unreachable", "connection lost")
        journal.append(b"two\n")
        self.run_for(7)
        self.assertEqual(self.sink.texts(), [b"one", b"two", b"two"])
        self.assertEqual(self.metric("lag_bytes"), 0)

    def test_slow_to_settle(self) -> None:
        """Without settling the cursor stays, and a stop does not wait for it."""
        first = self.shipper()
        journal = self.journal(first)
        self.sink.settles = False
        journal.append(b"one\n")
        self.run_for(60)
        self.assertEqual(journal.cursor("ship-memory").load(), 0)
        self.stop(first)
        self.assertEqual(journal.cursor("ship-memory").load(), 0)
