"""
Tests for :mod:`twisted_exec.runtimes.machine_records`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.machine_runtime import machine
from twisted_exec.api.status import BadRequest, NotFound, TooManyRequests
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.machine_records import MachineRecords


class MachinesTests(SynchronousTestCase):
    """Tests for :class:`Machines`."""

    def setUp(self) -> None:
        self.machines = MachineRecords({"small": 2, "large": 1})

    def test_create(self) -> None:
        """A new machine has an id of its own and the requested fields."""
        record, is_new = self.machines.create(machine("a", "small"), 5)
        other, _ = self.machines.create(machine("b", "small"), 6)
        self.assertTrue(is_new)
        self.assertNotEqual(record.id, other.id)
        self.assertEqual(
            (record.uid, record.label, record.class_name), ("uid-a", "default/a", "small")
        )
        self.assertEqual(record.metadata.created_at, 5)
        self.assertEqual(self.machines.get(record.id), record)

    def test_same_uid(self) -> None:
        """A UID has one machine; machines without a UID are all different."""
        record, _ = self.machines.create(machine("a", "small"), 0)
        again, is_new = self.machines.create(machine("a2", "large", uid="uid-a"), 0)
        self.assertEqual((again.id, is_new), (record.id, False))
        for _ in range(2):
            bare = machine("x", "small")
            bare.metadata.labels.clear()
        self.assertTrue(self.machines.create(bare, 0)[1])

    def test_label_without_name(self) -> None:
        """A machine of a poollet that tells no name goes by its id."""
        bare = machine("x", "small")
        bare.metadata.labels.clear()
        record, _ = self.machines.create(bare, 0)
        self.assertEqual(record.label, record.id)
        self.assertEqual(record.subject().machine, record.id)

    def test_asked_for_stays_as_it_is(self) -> None:
        """A record is a copy: neither side changes the other's message."""
        template = machine("a", "small")
        record, _ = self.machines.create(template, 0)
        template.metadata.labels["later"] = "x"
        output = record.to_machine()
        output.metadata.labels["other"] = "x"
        self.assertEqual(set(record.metadata.labels) & {"later", "other"}, set())

    def test_unknown_class(self) -> None:
        """The message names what is offered."""
        with self.assertRaises(BadRequest) as caught:
            self.machines.create(machine("a", "huge"), 0)
        self.assertIn("'huge'; it offers: large, small", caught.exception.message)

    def test_full(self) -> None:
        """Machines beyond the quantity of a class are refused; a deletion makes room."""
        record, _ = self.machines.create(machine("a", "large"), 0)
        with self.assertRaises(TooManyRequests):
            self.machines.create(machine("b", "large"), 0)
        self.machines.create(machine("c", "small"), 0)
        self.machines.remove(record.id)
        self.machines.create(machine("b", "large"), 0)

    def test_full_of_broken_machines(self) -> None:
        """The refusal names the machines that keep a place although they do not run."""
        record, _ = self.machines.create(machine("a", "large"), 0)
        record.set_state(pb.MACHINE_PENDING, "ImageMissing", "there is no image ciros")
        with self.assertRaises(TooManyRequests) as caught:
            self.machines.create(machine("b", "large"), 0)
        self.assertIn('"default/a" (ImageMissing)', caught.exception.message)

    def test_remove(self) -> None:
        """A removed machine is not found, and can be removed again."""
        record, _ = self.machines.create(machine("a", "small"), 0)
        self.machines.remove(record.id)
        self.machines.remove(record.id)
        with self.assertRaises(NotFound):
            self.machines.get(record.id)
        self.assertEqual(len(self.machines), 0)

    def test_power(self) -> None:
        """Only a change is a new generation."""
        record, _ = self.machines.create(machine("a", "small"), 0)
        self.assertFalse(self.machines.set_power(record, pb.POWER_ON))
        self.assertTrue(self.machines.set_power(record, pb.POWER_OFF))
        self.assertEqual(record.metadata.generation, 2)

    def test_events(self) -> None:
        """Events are found by machine, label and time, oldest first."""
        record, _ = self.machines.create(machine("a", "small"), 0)
        other, _ = self.machines.create(machine("b", "small"), 0)
        for time, each in ((10, record), (20, other), (30, record)):
            self.machines.add_event(each, "Normal", "Something", "happened", time)

        def times(**filter: object) -> list[int]:
            entry = self.machines.find_events(pb.EventFilter(**filter))  # type: ignore[arg-type]
            return [event.spec.event_time for event in entry]

        self.assertEqual(times(), [10, 20, 30])
        self.assertEqual(times(id=record.id), [10, 30])
        self.assertEqual(times(label_selector={"no": "such"}), [])
        self.assertEqual(times(events_from_time=20), [20, 30])
        self.assertEqual(times(events_to_time=20), [10, 20])

    def test_events_are_bounded(self) -> None:
        """Of very many events the oldest are forgotten."""
        record, _ = self.machines.create(machine("a", "small"), 0)
        for time in range(1500):
            self.machines.add_event(record, "Normal", "Something", "happened", time)
        entry = self.machines.find_events(pb.EventFilter())
        self.assertEqual((len(entry), entry[0].spec.event_time), (1000, 500))
