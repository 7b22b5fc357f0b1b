"""
Tests for :mod:`twisted_exec.apiserver.serving.renamed_storage`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import TestCase

from tests.contracts.storage import StorageContract
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.serving.renamed_storage import RenamedStorage
from twisted_exec.storage.interfaces import IStorage, Object
from twisted_exec.storage.memory import MemoryStorage

KEPT = Resource("kept.example", "v1", "things", "Thing")
SHOWN = replace(kinds.MACHINES, kept_as=KEPT)


def _renamed(obj: Object, resource: Resource, before: str, after: str) -> Object:
    made = {after if key == before else key: value for key, value in obj.items()}
    return made | {"apiVersion": resource.api_version, "kind": resource.kind}


def shown(obj: Object) -> Object:
    return _renamed(obj, SHOWN.resource, "will", "spec")


def kept(obj: Object) -> Object:
    return _renamed(obj, KEPT, "spec", "will")


class RenamedStorageTests(StorageContract, TestCase):
    """The contract, for machines that are kept as things."""

    async def make_storage(self) -> IStorage:
        storage = MemoryStorage(self.remembered, self.remembered_bytes, self.limits)
        made: IStorage = RenamedStorage(storage, SHOWN, shown, kept)
        return made

    async def test_kept(self) -> None:
        """The store has them by its own names."""
        storage = MemoryStorage()
        renamed = RenamedStorage(storage, SHOWN, shown, kept)
        obj = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"x": 1}}
        made = await renamed.create(SHOWN.resource, obj)
        self.assertEqual((made["kind"], made["spec"]), ("Machine", {"x": 1}))
        found = await storage.get(KEPT, "n", "a")
        self.assertEqual((found["kind"], found["will"]), ("Thing", {"x": 1}))

    async def test_converted_when_read(self) -> None:
        """A list converts the objects that are read, not all."""
        storage, conversions = MemoryStorage(), list[str]()

        def counted(obj: Object) -> Object:
            conversions.append(obj["metadata"]["name"])
            return shown(obj)

        renamed = RenamedStorage(storage, SHOWN, counted, kept)
        for name in "abcdef":
            await storage.create(
                KEPT, {"metadata": {"name": name, "namespace": "n", "uid": name}, "will": {}}
            )
        items = (await renamed.list(SHOWN.resource)).items
        self.assertEqual([obj["kind"] for obj in items[2:4]], ["Machine", "Machine"])
        self.assertEqual(conversions, ["c", "d"])
