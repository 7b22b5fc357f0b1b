"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.objects`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.machine_runtime import machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, IRONCORE, ONMETAL
from twisted_exec.api.status import BadRequest
from twisted_exec.api.strategy import for_create
from twisted_exec.iri.image_disk import image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.machinebroker.objects import new_id, power_of, read, to_object
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

from .support import CLASS, NAMESPACE


class ObjectTests(SynchronousTestCase):
    """Machines in targets of every dialect."""

    def test_valid(self) -> None:
        """Objects are valid in each dialect, and reading them gives the same machine."""
        for dialect in DIALECTS:
            template = machine("x", CLASS)
            disk = pb.Volume(name="data", device="odb")
            disk.local_disk.size_bytes = 5
            image = pb.Volume(name="root", device="oda")
            image.local_disk.image.image = "registry.example/image"
            if dialect.image_field:
                image = image_disk("registry.example/image")
            template.spec.volumes.extend([image, disk])
            place = BrokerPlace(dialect, NAMESPACE, "a", "p")
            id = new_id(template.metadata.labels, place)
            kind = kinds.of(dialect)[0]
            document = for_create(
                kind, to_object(template, id, place), namespace=NAMESPACE, now=1e9
            )
            self.assertEqual(dialect.pool_name(document), "p", dialect.name)
            entry = read(document, place)
            self.assertEqual(entry.machine.spec, template.spec, dialect.name)
            self.assertEqual(entry.machine.metadata.labels, template.metadata.labels)
            self.assertIn(
                f"machinebroker.{dialect.runtime_prefix.partition('.')[2]}", str(document)
            )

    def test_ids(self) -> None:
        """One for a UID of a cluster; without a UID another each time."""
        place, labels = BrokerPlace(IRONCORE, NAMESPACE, "a"), machine("x", CLASS).metadata.labels
        self.assertEqual(new_id(labels, place), new_id(labels, place))
        self.assertNotEqual(
            new_id(labels, place), new_id(labels, BrokerPlace(IRONCORE, NAMESPACE, "b"))
        )
        self.assertNotEqual(new_id({}, place), new_id({}, place))
        self.assertRegex(new_id({}, place), r"\A[0-9a-f]{63}\Z")

    def test_too_large(self) -> None:
        """A machine too large for an object is a bad request."""
        template = machine("x", CLASS)
        template.metadata.annotations["x"] = "x" * (100 << 10)
        self.assertRaises(BadRequest, to_object, template, "i", BrokerPlace(IRONCORE, NAMESPACE))
        self.assertRaises(BadRequest, power_of, 7)

    def test_generation_of_older_releases(self) -> None:
        """onmetal's first releases tell the generation that was seen under a name of their own."""
        place = BrokerPlace(ONMETAL, NAMESPACE)
        document: Any = to_object(machine("x", CLASS), "i", place)
        document["status"] = {"machinePoolObservedGeneration": 4}
        self.assertEqual(read(document, place).machine.status.observed_generation, 4)

    def test_garbled(self) -> None:
        """A damaged object is read or refused with a message."""
        place = BrokerPlace(IRONCORE, NAMESPACE)
        for part, value in (
            ("status", {"conditions": [{"status": "True"}]}),
            ("status", {"conditions": [7]}),
            ("status", {"observedGeneration": 1 << 70}),
            ("status", {"volumes": [{"name": "\ud800"}]}),
            ("spec", {"volumes": [{"name": "x", "localDisk": {"sizeLimit": "much"}}]}),
            ("spec", {"volumes": {"name": "x"}}),
            ("spec", {"guestConfig": []}),
        ):
            document: Any = to_object(machine("x", CLASS), "i", place)
            document[part] = value
            if value == {"guestConfig": []}:
                self.assertEqual(read(document, place).machine.spec.guest_config.hostname, "")
            else:
                self.assertRaises(ValueError, read, document, place)

    def test_states(self) -> None:
        """Each state of an object has a state of a machine; unknown states are pending."""
        place = BrokerPlace(IRONCORE, NAMESPACE)
        document: Any = to_object(machine("x", CLASS), "i", place)
        for state, expected in (
            ("Running", pb.MACHINE_RUNNING),
            ("Shutdown", pb.MACHINE_SUSPENDED),
            ("Terminated", pb.MACHINE_TERMINATED),
            ("Strange", pb.MACHINE_PENDING),
        ):
            document["status"] = {"state": state}
            self.assertEqual(read(document, place).machine.status.state, expected)
