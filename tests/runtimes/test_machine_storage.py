"""
Tests for :mod:`twisted_exec.runtimes.machine_storage`.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import SynchronousTestCase

from tests.program.disks import FreezableThread
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.runtimes.machine_storage import MachineStorage, RetainedMachinesError

A, B = "a" * 32, "b" * 32


class MachineStorageTests(SynchronousTestCase):
    """Tests for :class:`MachineStorage`."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())

    def storage(self, keep: bool = True) -> MachineStorage:
        return MachineStorage(self.path, keep=keep)

    def record(self, id: str = A) -> MachineRecord:
        metadata = meta_pb2.ObjectMetadata(id=id, labels={"a": "b"})
        return MachineRecord(metadata, pb.MachineSpec(power=pb.POWER_OFF), ignition_data=b"secret")

    def test_round_trip(self) -> None:
        """A later runtime reads the machines, including secrets; other users cannot."""
        self.storage().open()
        self.storage().write(self.record())
        (entry,) = self.storage().open()
        self.assertEqual((entry.metadata.id, entry.metadata.labels), (A, {"a": "b"}))
        self.assertEqual((entry.spec.power, entry.spec.ignition_data), (pb.POWER_OFF, b"secret"))
        self.assertEqual(os.stat(os.path.join(self.path, A, "machine")).st_mode & 0o777, 0o600)
        self.storage().remove(A)
        self.assertEqual(self.storage().open(), [])

    def test_stalled(self) -> None:
        """A disk that does not answer refuses a machine, and removes another when it answers."""
        thread = FreezableThread()
        storage = MachineStorage(self.path, keep=True, thread=thread)
        storage.open()
        storage.write(self.record())
        thread.is_frozen = True
        with self.assertRaises(ServiceUnavailable) as raised:
            storage.write(self.record(B))
        self.assertIn("the disk does not answer", str(raised.exception))
        storage.remove(A)
        self.assertTrue(os.path.exists(storage.directory(A)))
        thread.thaw()
        self.assertFalse(os.path.exists(storage.directory(A)))

    def test_leftovers(self) -> None:
        """A directory of no machine is removed, and nothing else."""
        self.storage().open()
        for name in (A, B, "notes"):
            os.mkdir(os.path.join(self.path, name))
        self.storage().write(self.record(B))
        self.storage().open()
        self.assertEqual(sorted(os.listdir(self.path)), [B, "notes"])

    def test_not_kept(self) -> None:
        """Without the option nothing is written, and existing machines are not touched."""
        self.storage(keep=False).open()
        self.storage(keep=False).write(self.record())
        self.assertEqual(os.listdir(self.path), [])
        self.storage().write(self.record())
        with self.assertRaises(RetainedMachinesError):
            self.storage(keep=False).open()

    def test_torn(self) -> None:
        """A damaged file is left alone with its disks, and does not affect other machines."""
        self.storage().open()
        self.storage().write(self.record(A))
        self.storage().write(self.record(B))
        with open(os.path.join(self.path, A, "machine"), "wb") as file:
            file.write(b"\xff\xff\xff")
        self.assertEqual([each.metadata.id for each in self.storage().open()], [B])
        self.assertTrue(os.path.isdir(os.path.join(self.path, A)))

    def test_no_room(self) -> None:
        """A machine that cannot be kept is refused in words."""
        self.storage().open()
        with open(os.path.join(self.path, A), "w"):
            pass
        with self.assertRaises(ServiceUnavailable) as caught:
            self.storage().write(self.record())
        self.assertIn("the machine cannot be kept", caught.exception.message)
