"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.parts`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.machine_runtime import machine
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.iri.image_disk import image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.machinebroker.objects import read, to_object
from twisted_exec.runtimes.machinebroker.parts import parts_annotation
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

from .support import CLASS, NAMESPACE, connected, interface


class DialectTests(SynchronousTestCase):
    """Parts of machines in targets of every dialect."""

    def test_subnets(self) -> None:
        """In dialects with subnets, interfaces exist only in the machine's spec."""
        place = BrokerPlace(SPHERIC, NAMESPACE, "a", "p")
        template = machine("x", CLASS)
        nic = pb.NetworkInterface(name="n", ips=["10.0.0.1"])
        nic.attributes.update({"network-name": "net", "subnet-name": "sub"})
        template.spec.network_interfaces.append(nic)
        document = to_object(template, "i", place)
        (part,) = document["spec"]["networkInterfaces"]
        self.assertEqual(part["subnetRef"], {"networkName": "net", "name": "sub"})

    def test_without_kinds(self) -> None:
        """Parts without a kind in the dialect are refused before any object is created."""
        for dialect, part in (
            (SPHERIC, connected()),
            (SPHERIC, interface()),
            (ONMETAL, pb.Volume(name="d", local_disk=image_disk("i").local_disk)),
        ):
            template = machine("x", CLASS)
            parts: Any = template.spec.volumes
            if isinstance(part, pb.NetworkInterface):
                parts = template.spec.network_interfaces
            parts.append(part)
            place = BrokerPlace(dialect, NAMESPACE)
            self.assertRaises(NotImplementedByBackend, to_object, template, "i", place)

    def test_garbled(self) -> None:
        """A damaged annotation means that the machine is not a broker's."""
        place = BrokerPlace(IRONCORE, NAMESPACE)
        template = machine("x", CLASS)
        template.spec.volumes.append(connected())
        document = to_object(template, "i", place)
        document["metadata"]["annotations"][place.parts_annotation] = "{"
        self.assertRaises(ValueError, read, document, place)

    def test_nothing_to_tell(self) -> None:
        """Local disks need no annotation."""
        spec = pb.MachineSpec(volumes=[pb.Volume(name="d", local_disk=pb.LocalDisk())])
        self.assertEqual(parts_annotation(spec), "")
