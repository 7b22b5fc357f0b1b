"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.capacity`, through a broker on a target in
memory.
"""

from __future__ import annotations

from typing import Any

from tests.runtimes.machinebroker.support import CLASS, CLASSES, POOL, POOLS, BrokerCase, pool
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.iri.protos import machine_pb2 as pb


class StatusTests(BrokerCase):
    """The offered classes."""

    async def quantity(self, broker: Any) -> dict[str, int]:
        output = (await broker.status(pb.StatusRequest())).machine_class_status
        return {each.machine_class.name: each.quantity for each in output}

    async def test_quantity(self) -> None:
        """Quantities include the broker's own machines, which the poollet subtracts."""
        broker = await self.make_runtime()
        await self.until(lambda: broker.capacity.names())
        self.assertEqual(await self.quantity(broker), {CLASS: 10})
        await self.made(broker)
        key = f"{IRONCORE.capacity_prefix}{CLASS}"
        left = {"status": {"allocatable": {key: "9"}}}
        await self.target.client.patch(POOLS, POOL, left, subresource="status")
        self.assertEqual(await self.quantity(broker), {CLASS: 10})

    async def test_selected_pools(self) -> None:
        """Of several pools those count that the selector chooses."""
        for name, labels in (
            ("p-1", {"zone": "n"}),
            ("p-2", {"zone": "n"}),
            ("p-3", {"zone": "s"}),
        ):
            self.target.cluster.put((POOLS, "", name), pool(name, allocatable="2", labels=labels))
        broker = await self.make_runtime(place=self.place(pool="", selector={"zone": "n"}))
        await self.until(lambda: broker.capacity.names())
        self.assertEqual(await self.quantity(broker), {CLASS: 4})
        created = await self.made(broker)
        spec = self.target.object(created.metadata.id)["spec"]
        self.assertEqual(spec["machinePoolSelector"], {"zone": "n"})
        self.assertNotIn("machinePoolRef", spec)

    async def test_nonsense(self) -> None:
        """A class with capabilities that are none is not offered, and others are."""
        odd = {"metadata": {"name": "odd"}, "capabilities": {"cpu": "many"}}
        self.target.cluster.put((CLASSES, "", "odd"), odd)
        key = f"{IRONCORE.capacity_prefix}odd"
        room = {"status": {"allocatable": {key: "3"}}}
        await self.target.client.patch(POOLS, POOL, room, subresource="status")
        broker = await self.make_runtime()
        await self.until(broker.capacity.names)
        self.assertEqual(broker.capacity.names(), [CLASS])
        more = {"status": {"allocatable": {f"{IRONCORE.capacity_prefix}{CLASS}": "x", key: "3"}}}
        await self.target.client.patch(POOLS, POOL, more, subresource="status")
        self.assertEqual(await self.quantity(broker), {CLASS: 0})
