"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.service`, through a broker on a target in
memory.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import globalLogPublisher

from tests.runtimes.machinebroker.support import CLASS, CLASSES, POOL, POOLS, BrokerCase, pool
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb


class ShortageTests(BrokerCase):
    """Why no class is offered."""

    async def shortage(self, **options: Any) -> str:
        """Return the reason, which the log has once."""
        broker = await self.make_runtime(place=self.place(**options))
        await self.until(lambda: self.is_current(broker))
        logged: list[str] = []

        def observe(event: Any) -> None:
            if event.get("log_source") is broker.capacity:
                logged.append(event["why"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for _ in range(2):
            await broker.status(pb.StatusRequest())
        why = broker.capacity.shortage()
        self.assertEqual(logged, [why] if why else [])
        return why

    def is_current(self, broker: Any) -> bool:
        try:
            broker.check()
        except ServiceUnavailable:
            return False
        return True

    async def test_none(self) -> None:
        """A target with a pool and a class has no shortage."""
        self.assertEqual(await self.shortage(), "")

    async def test_no_pool(self) -> None:
        """A missing pool is named, with the option that selects it."""
        missing = "the target has no MachinePool"
        self.assertEqual(
            await self.shortage(pool="gone"), f'{missing} "gone" (--machine-pool-name)'
        )
        self.assertEqual(
            await self.shortage(pool="", selector={"zone": "n", "rack": "1"}),
            f"{missing} with labels zone=n,rack=1 (--machine-pool-selector)",
        )
        self.target.cluster.remove((POOLS, "", POOL))
        self.assertEqual(await self.shortage(pool=""), missing)

    async def test_no_class(self) -> None:
        """Pools without a class, and classes without an object, are told apart."""
        self.target.cluster.remove((CLASSES, "", CLASS))
        self.assertEqual(
            await self.shortage(),
            f"the target has no usable MachineClass of those that its pools offer: {CLASS}",
        )
        self.target.cluster.put((POOLS, "", POOL), {**pool(), "status": {}})
        for name, subject in (
            (POOL, f'MachinePool "{POOL}" of the target offers no'),
            ("", "no MachinePool of the target offers a"),
        ):
            self.assertTrue((await self.shortage(pool=name)).startswith(f"{subject} machine class"))


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
