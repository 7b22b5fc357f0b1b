"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.parts`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.machine_runtime import machine
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions.older import image_disk
from twisted_exec.runtimes.machinebroker.objects import read, to_object
from twisted_exec.runtimes.machinebroker.parts import parts_annotation
from twisted_exec.runtimes.machinebroker.target import Place

from .support import CLASS, NAMESPACE, connected, interface


class DialectTests(SynchronousTestCase):
    """What a machine says of its parts, in targets of every dialect."""

    def test_subnets(self) -> None:
        """Where interfaces name their subnet they are words of the machine."""
        place = Place(SPHERIC, NAMESPACE, "a", "p")
        wanted = machine("x", CLASS)
        nic = pb.NetworkInterface(name="n", ips=["10.0.0.1"])
        nic.attributes.update({"network-name": "net", "subnet-name": "sub"})
        wanted.spec.network_interfaces.append(nic)
        made = to_object(wanted, "i", place)
        (part,) = made["spec"]["networkInterfaces"]
        self.assertEqual(part["subnetRef"], {"networkName": "net", "name": "sub"})

    def test_without_kinds(self) -> None:
        """What a dialect has no kinds for is refused before anything is made."""
        for dialect, part in (
            (SPHERIC, connected()),
            (SPHERIC, interface()),
            (ONMETAL, pb.Volume(name="d", local_disk=image_disk("i").local_disk)),
        ):
            wanted = machine("x", CLASS)
            parts: Any = wanted.spec.volumes
            if isinstance(part, pb.NetworkInterface):
                parts = wanted.spec.network_interfaces
            parts.append(part)
            place = Place(dialect, NAMESPACE)
            self.assertRaises(NotImplementedByBackend, to_object, wanted, "i", place)

    def test_garbled(self) -> None:
        """What is kept of parts is no message: the machine is none of ours."""
        place = Place(IRONCORE, NAMESPACE)
        wanted = machine("x", CLASS)
        wanted.spec.volumes.append(connected())
        made = to_object(wanted, "i", place)
        made["metadata"]["annotations"][place.parts_annotation] = "{"
        self.assertRaises(ValueError, read, made, place)

    def test_nothing_to_tell(self) -> None:
        """Disks of the host are told by the machine itself."""
        spec = pb.MachineSpec(volumes=[pb.Volume(name="d", local_disk=pb.LocalDisk())])
        self.assertEqual(parts_annotation(spec), "")
