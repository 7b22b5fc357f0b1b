"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.service`, on a target in memory.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.contracts.machine_runtime import MachineLogsContract, MachineRuntimeContract, machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import BadGateway, Conflict, Forbidden, NotFound, Unauthorized
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.machinebroker.objects import BrokerIdentity
from twisted_exec.testing.cluster import unreachable

from .support import CLASS, MACHINES, NAMESPACE, POOL, BrokerCase

SECRETS = kinds.SECRETS.resource


class ContractTests(MachineLogsContract, MachineRuntimeContract, BrokerCase):
    """A broker is a runtime."""

    class_name = CLASS
    stopped = pb.MACHINE_SUSPENDED

    async def refusal(self, call: Any) -> Any:
        return await BrokerCase.refusal(self, call)


class MachineTests(BrokerCase):
    """Machines in the target."""

    async def test_object(self) -> None:
        """It is bound to the pool, and shows whose it is as ironcore's own broker does."""
        broker = await self.make_runtime()
        created = await self.made(broker)
        obj = self.target.object(created.metadata.id)
        self.assertEqual(obj["spec"]["machinePoolRef"], {"name": POOL})
        self.assertEqual(obj["spec"]["machineClassRef"], {"name": CLASS})
        labels, annotations = obj["metadata"]["labels"], obj["metadata"]["annotations"]
        self.assertEqual(labels["machinebroker.ironcore.dev/manager"], "machinebroker")
        self.assertEqual(labels["machinebroker.ironcore.dev/created"], "true")
        self.assertEqual(labels[IRONCORE.uid_label], "uid-x")
        self.assertIn('"default"', annotations["machinebroker.ironcore.dev/labels"])
        self.assertIn('"3"', annotations["machinebroker.ironcore.dev/annotations"])
        self.assertEqual(len(created.metadata.id), 63)

    async def test_two_brokers(self) -> None:
        """Concurrent requests to two brokers create one machine."""
        first, second = await self.make_runtime(), await self.make_runtime()
        calls = [self.made(each) for each in (first, second)]
        ids = {(await call).metadata.id for call in calls}
        self.assertEqual(len(ids), 1)

    async def test_two_sources(self) -> None:
        """Clusters that know a UID each have a machine each."""
        first = await self.make_runtime()
        created = await self.made(first)
        other = await self.make_runtime(place=self.place(source="b"))
        from twisted_exec.runtimes.machinebroker.objects import new_id

        labels = machine("x", CLASS).metadata.labels
        self.assertNotEqual(new_id(labels, self.place(source="b")), created.metadata.id)
        self.assertEqual(len((await other.list_machines(pb.ListMachinesRequest())).machines), 1)

    async def test_made_by_ironcores(self) -> None:
        """Machines of ironcore's own broker are recognized, whatever their names are."""
        obj = {
            "metadata": {
                "name": "f" * 63,
                "labels": {
                    "machinebroker.ironcore.dev/manager": "machinebroker",
                    "machinebroker.ironcore.dev/created": "true",
                },
                "annotations": {
                    "machinebroker.ironcore.dev/labels": f'{{"{IRONCORE.uid_label}":"uid-x"}}',
                    "machinebroker.ironcore.dev/annotations": "null",
                },
            },
            "spec": {"machineClassRef": {"name": CLASS}, "power": "On"},
        }
        await self.target.client.create(MACHINES, obj, NAMESPACE)
        broker = await self.make_runtime()
        self.assertEqual((await self.made(broker)).metadata.id, "f" * 63)

    async def test_lists_ask_nobody(self) -> None:
        """However many machines, and however often: the target is not asked for a list."""
        broker = await self.make_runtime()
        for name in ("a", "b", "c"):
            await self.made(broker, name)
        before = len(self.target.cluster.requests)
        for _ in range(5):
            listed = await broker.list_machines(pb.ListMachinesRequest())
            self.assertEqual(len(listed.machines), 3)
        self.assertEqual(len(self.target.cluster.requests), before)

    async def test_garbled(self) -> None:
        """A damaged object is ignored; other machines are still listed."""
        broker = await self.make_runtime()
        created, other = await self.made(broker), await self.made(broker, "y")
        spoilt = {"metadata": {"annotations": {"machinebroker.ironcore.dev/labels": "["}}}
        await self.target.client.patch(MACHINES, created.metadata.id, spoilt, NAMESPACE)
        listed = (await broker.list_machines(pb.ListMachinesRequest())).machines
        self.assertEqual([each.metadata.id for each in listed], [other.metadata.id])

    async def test_ignition(self) -> None:
        """Ignition lies in a Secret that the machine owns, and goes with it."""
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        template.spec.ignition_data = b"{}"
        created = await self.made(broker, wanted=template)
        obj = self.target.object(created.metadata.id)
        reference = obj["spec"]["ignitionRef"]
        secret = self.target.cluster.objects[(SECRETS, NAMESPACE, reference["name"])]
        self.assertEqual(base64.b64decode(secret["data"][reference["key"]]), b"{}")
        self.assertEqual(secret["type"], "compute.ironcore.dev/ignition")
        (owner,) = secret["metadata"]["ownerReferences"]
        self.assertEqual((owner["kind"], owner["uid"]), ("Machine", obj["metadata"]["uid"]))
        await broker.delete_machine(pb.DeleteMachineRequest(machine_id=created.metadata.id))
        self.assertNotIn((SECRETS, NAMESPACE, reference["name"]), self.target.cluster.objects)

    async def test_ignition_refused(self) -> None:
        """If Secrets cannot be created, no incomplete machine is left behind."""
        broker = await self.make_runtime()
        create = self.target.client.create

        def refusing(resource: Any, *arguments: Any, **more: Any) -> Any:
            if resource == SECRETS:
                raise Forbidden("no secrets for you")
            return create(resource, *arguments, **more)

        self.target.client.create = refusing  # type: ignore[method-assign]
        template = machine("x", CLASS)
        template.spec.ignition_data = b"{}"
        error = await self.refusal(self.made(broker, wanted=template))
        self.assertEqual(error.code, 403)
        objects = self.target.cluster.objects
        await self.until(lambda: not [key for key in objects if key[0] == MACHINES])

    async def test_completed_later(self) -> None:
        """An incomplete machine is completed by the next request."""
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        template.spec.ignition_data = b"{}"
        created = await self.made(broker, wanted=template)
        undone = {"metadata": {"labels": {"machinebroker.ironcore.dev/created": None}}}
        await self.target.client.patch(MACHINES, created.metadata.id, undone, NAMESPACE)
        await self.target.client.delete(SECRETS, created.metadata.id, NAMESPACE)
        self.assertEqual(list((await broker.list_machines(pb.ListMachinesRequest())).machines), [])
        self.assertEqual(
            (await self.made(broker, wanted=template)).metadata.id, created.metadata.id
        )
        self.assertIn((SECRETS, NAMESPACE, created.metadata.id), self.target.cluster.objects)

    async def test_disks(self) -> None:
        """Disks of the host pass, with their images; they come and go."""
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        disk = pb.Volume(name="root", device="oda")
        disk.local_disk.size_bytes = 1 << 30
        disk.local_disk.image.image = "registry.example/image"
        template.spec.volumes.append(disk)
        created = await self.made(broker, wanted=template)
        self.assertEqual(list(created.spec.volumes), [disk])
        more = pb.Volume(name="data", device="odb")
        more.local_disk.size_bytes = 5
        id = created.metadata.id
        await broker.attach_volume(pb.AttachVolumeRequest(machine_id=id, volume=more))
        names = [each["name"] for each in self.target.object(id)["spec"]["volumes"]]
        self.assertEqual(names, ["root", "data"])
        request = pb.DetachVolumeRequest(machine_id=id, name="data")
        await broker.detach_volume(request)
        self.assertIsInstance(await self.refusal(broker.detach_volume(request)), NotFound)

    async def test_deleted_there(self) -> None:
        """A machine that is deleted in the target is on its way out, and then gone."""
        broker = await self.make_runtime()
        created = await self.made(broker)
        self.target.runs = False
        await self.target.client.delete(MACHINES, created.metadata.id, NAMESPACE)
        (listed,) = (await broker.list_machines(pb.ListMachinesRequest())).machines
        self.assertEqual(listed.status.state, pb.MACHINE_TERMINATING)
        error = await self.refusal(broker.exec(pb.ExecRequest(machine_id=created.metadata.id)))
        self.assertIsInstance(error, NotFound)
        power = pb.UpdateMachinePowerRequest(machine_id=created.metadata.id)
        self.assertIsInstance(await self.refusal(broker.update_machine_power(power)), Conflict)

    async def test_conditions(self) -> None:
        """The target's conditions of a machine are passed on."""
        broker = await self.make_runtime()
        created = await self.made(broker)
        self.target.runs = False
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": "NoRoom",
            "message": "the host is full",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"status": {"state": "Pending", "conditions": [condition]}}
        await self.target.client.patch(
            MACHINES, created.metadata.id, status, NAMESPACE, subresource="status"
        )
        (listed,) = (await broker.list_machines(pb.ListMachinesRequest())).machines
        (message,) = listed.status.machine_conditions
        self.assertEqual((message.reason, message.message), ("NoRoom", "the host is full"))
        self.assertEqual(message.last_transition_time, 1767225600 * 10**9)


class TargetAwayTests(BrokerCase):
    """A target that does not answer, or not to us."""

    async def test_unreachable(self) -> None:
        """While the target is not reachable, lists fail instead of returning old data."""
        broker = await self.make_runtime()
        await self.made(broker)
        self.target.cluster.problem = unreachable()
        self.target.cluster.end_watches()
        # A call before it is noticed still gets the old list.
        await self.until(lambda: broker.cache._reflector.problem)
        for call in (
            broker.list_machines(pb.ListMachinesRequest()),
            broker.status(pb.StatusRequest()),
        ):
            error = await self.refusal(call)
            self.assertEqual(error.code, 503)
            self.assertIn("the target cluster is not available", error.message)

    async def test_unknown_there(self) -> None:
        """A target that rejects the broker's credentials is a bad gateway for users."""
        broker = await self.make_runtime()
        self.target.cluster.problem = Unauthorized()
        error = await self.refusal(self.made(broker))
        self.assertIsInstance(error, BadGateway)
        self.assertIn("this broker's credentials", error.message)


class WhoTests(BrokerCase):
    """For whom a console is opened."""

    async def test_nobody(self) -> None:
        """A poollet that names no user gets no URL, nor does one that names Kubernetes' own."""
        broker = await self.make_runtime(identity=BrokerIdentity("a"))
        id = (await self.made(broker)).metadata.id
        for user, word in (("", "the user's name"), ("system:admin", "a component of its cluster")):
            for call in (
                broker.exec(pb.ExecRequest(machine_id=id), user=user),
                broker.log(pb.ExecRequest(machine_id=id), user=user),
            ):
                error = await self.refusal(call)
                self.assertEqual(error.code, 403)
                self.assertIn(word, error.message)
        self.assertTrue((await broker.exec(pb.ExecRequest(machine_id=id), user="jane")).url)
