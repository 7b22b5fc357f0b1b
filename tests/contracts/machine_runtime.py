"""
Tests of every :class:`~twisted_exec.iri.interfaces.IMachineRuntime`, and of those with logs
(:class:`~twisted_exec.iri.interfaces.IMachineLogs`).
"""

from __future__ import annotations

import re
from typing import Any

from zope.interface.verify import verifyObject

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb


def machine(name: str, class_name: str, power: int = pb.POWER_ON, uid: str = "") -> pb.Machine:
    """A machine as a poollet asks for it."""
    template = pb.Machine(spec=pb.MachineSpec(power=power, **{"class": class_name}))
    template.metadata.labels[IRONCORE.uid_label] = uid or f"uid-{name}"
    template.metadata.labels[IRONCORE.namespace_label] = "default"
    template.metadata.labels[IRONCORE.name_label] = name
    template.metadata.annotations[IRONCORE.generation_annotation] = "3"
    return template


class MachineRuntimeContract:
    """
    Mix in before a :class:`~twisted.trial.unittest.TestCase` with a real reactor.

    ``make_runtime()`` is a coroutine that returns a running runtime; ``class_name`` is a class that
    it offers; ``stopped`` is its state of a machine that is off.
    """

    class_name = ""
    stopped: int = pb.MACHINE_STOPPED

    async def create(self: Any, name: str = "x", **options: Any) -> tuple[Any, pb.Machine]:
        runtime = await self.make_runtime()
        request = machine(name, self.class_name, **options)
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=request))
        return runtime, answer.machine

    async def listed(self: Any, runtime: Any, **filter: Any) -> list[pb.Machine]:
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(**filter))
        return list((await runtime.list_machines(request)).machines)

    async def state_of(self: Any, runtime: Any, machine_id: str, state: int) -> pb.Machine:
        """Wait until the machine has this state, and return it."""
        while True:
            (entry,) = await self.listed(runtime, id=machine_id)
            if entry.status.state == state:
                return entry
            await self.pause()

    async def refusal(self: Any, call: Any) -> APIError:
        try:
            answer = await call
        except APIError as error:
            return error
        self.fail(f"the call answered {answer!r}")

    async def test_interface(self: Any) -> None:
        """It provides the interface."""
        verifyObject(IMachineRuntime, await self.make_runtime())

    async def test_version(self: Any) -> None:
        """It has a name and a semantic version."""
        answer = await (await self.make_runtime()).version(pb.VersionRequest())
        self.assertTrue(answer.runtime_name)
        self.assertTrue(re.match(r"\d+\.\d+\.\d+", answer.runtime_version))

    async def test_status(self: Any) -> None:
        """The status has the classes with their capabilities."""
        answer = await (await self.make_runtime()).status(pb.StatusRequest())
        by_name = {each.machine_class.name: each for each in answer.machine_class_status}
        result = by_name[self.class_name]
        self.assertGreater(result.quantity, 0)
        self.assertGreater(result.machine_class.capabilities.resources["memory"], 1 << 20)
        self.assertGreater(result.machine_class.capabilities.resources["cpu"], 0)

    async def test_create(self: Any) -> None:
        """The answer has an id, the labels and annotations, and a status."""
        _, created = await self.create()
        template = machine("x", self.class_name)
        self.assertTrue(created.metadata.id)
        self.assertGreater(created.metadata.created_at, 1_600_000_000 * 10**9)
        self.assertEqual(created.metadata.labels, template.metadata.labels)
        self.assertEqual(created.metadata.annotations, template.metadata.annotations)
        self.assertGreaterEqual(created.status.observed_generation, created.metadata.generation)

    async def test_create_again(self: Any) -> None:
        """Repeated requests with one UID create one machine."""
        runtime, created = await self.create()
        again = machine("renamed", self.class_name, uid="uid-x")
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=again))
        self.assertEqual(answer.machine.metadata.id, created.metadata.id)
        self.assertEqual(len(await self.listed(runtime)), 1)

    async def test_create_unknown_class(self: Any) -> None:
        """A class that is not offered is a bad request that names it."""
        runtime = await self.make_runtime()
        request = machine("x", "no-such-class")
        error = await self.refusal(runtime.create_machine(pb.CreateMachineRequest(machine=request)))
        self.assertEqual(error.code, 400)
        self.assertIn("no-such-class", error.message)

    async def test_list(self: Any) -> None:
        """A list has all machines, the one with an id, or those that match every label."""
        runtime, created = await self.create("x")
        other = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("y", self.class_name))
        )
        ids = {created.metadata.id, other.machine.metadata.id}
        self.assertEqual({each.metadata.id for each in await self.listed(runtime)}, ids)
        (by_id,) = await self.listed(runtime, id=created.metadata.id)
        self.assertEqual(by_id.metadata.id, created.metadata.id)
        (by_label,) = await self.listed(runtime, label_selector={IRONCORE.uid_label: "uid-y"})
        self.assertEqual(by_label.metadata.id, other.machine.metadata.id)
        both = {IRONCORE.uid_label: "uid-y", IRONCORE.name_label: "x"}
        self.assertEqual(await self.listed(runtime, label_selector=both), [])

    async def test_unknown(self: Any) -> None:
        """An unknown id is not found; lists are empty."""
        runtime = await self.make_runtime()
        for call in (
            runtime.delete_machine(pb.DeleteMachineRequest(machine_id="nobody")),
            runtime.update_machine_power(pb.UpdateMachinePowerRequest(machine_id="nobody")),
            runtime.update_machine_annotations(
                pb.UpdateMachineAnnotationsRequest(machine_id="nobody")
            ),
            runtime.exec(pb.ExecRequest(machine_id="nobody")),
            runtime.attach_volume(pb.AttachVolumeRequest(machine_id="nobody")),
        ):
            self.assertIsInstance(await self.refusal(call), NotFound)
        self.assertEqual(await self.listed(runtime, id="nobody"), [])

    async def test_runs(self: Any) -> None:
        """A new machine starts by default."""
        runtime, created = await self.create()
        await self.state_of(runtime, created.metadata.id, pb.MACHINE_RUNNING)

    async def test_created_off(self: Any) -> None:
        """A machine that is created powered off is not started."""
        runtime, created = await self.create(power=pb.POWER_OFF)
        self.assertEqual(created.status.state, self.stopped)
        error = await self.refusal(runtime.exec(pb.ExecRequest(machine_id=created.metadata.id)))
        self.assertEqual(error.code, 409)

    async def test_power(self: Any) -> None:
        """Power goes off and on again; each change increments the generation, and is observed."""
        runtime, created = await self.create()
        id, generation = created.metadata.id, created.metadata.generation
        for power, state in (
            (pb.POWER_OFF, self.stopped),
            (pb.POWER_OFF, self.stopped),
            (pb.POWER_ON, pb.MACHINE_RUNNING),
        ):
            request = pb.UpdateMachinePowerRequest(machine_id=id, power=power)
            await runtime.update_machine_power(request)
            entry = await self.state_of(runtime, id, state)
        self.assertEqual(entry.metadata.generation, generation + 2)
        self.assertEqual(entry.status.observed_generation, generation + 2)
        self.assertEqual(entry.spec.power, pb.POWER_ON)

    async def test_annotations(self: Any) -> None:
        """New annotations replace all old ones."""
        runtime, created = await self.create()
        request = pb.UpdateMachineAnnotationsRequest(
            machine_id=created.metadata.id, annotations={"only": "this"}
        )
        await runtime.update_machine_annotations(request)
        (entry,) = await self.listed(runtime)
        self.assertEqual(entry.metadata.annotations, {"only": "this"})

    async def test_delete(self: Any) -> None:
        """
        After the answer the machine does not exist; concurrent requests succeed, later ones do not.
        """
        runtime, created = await self.create()
        await self.state_of(runtime, created.metadata.id, pb.MACHINE_RUNNING)
        request = pb.DeleteMachineRequest(machine_id=created.metadata.id)
        first, second = runtime.delete_machine(request), runtime.delete_machine(request)
        await first
        await second
        self.assertEqual(await self.listed(runtime), [])
        self.assertIsInstance(await self.refusal(runtime.delete_machine(request)), NotFound)

    async def test_exec(self: Any) -> None:
        """Each Exec returns a different URL."""
        runtime, created = await self.create()
        request = pb.ExecRequest(machine_id=created.metadata.id)
        urls = {(await runtime.exec(request, user="ann")).url for _ in range(3)}
        self.assertEqual(len(urls), 3)

    async def test_exec_other_machine(self: Any) -> None:
        """Exec with an id and the UID of another machine fails with NotFound."""
        runtime, created = await self.create()
        request = pb.ExecRequest(machine_id=created.metadata.id)
        error = await self.refusal(runtime.exec(request, machine_uid="uid-another"))
        self.assertIsInstance(error, NotFound)

    async def test_events(self: Any) -> None:
        """Events of a machine can be listed."""
        runtime, created = await self.create()
        await self.state_of(runtime, created.metadata.id, pb.MACHINE_RUNNING)
        events = (await runtime.list_events(pb.ListEventsRequest())).events
        spec = events[-1].spec
        self.assertEqual(spec.involved_object_meta.id, created.metadata.id)
        self.assertTrue(spec.reason and spec.message and spec.event_time)
        nobody = pb.ListEventsRequest(filter=pb.EventFilter(id="nobody"))
        self.assertEqual(list((await runtime.list_events(nobody)).events), [])


class MachineLogsContract:
    """Mix in before :class:`MachineRuntimeContract`, whose ``create`` and ``refusal`` it uses."""

    async def test_logs_interface(self: Any) -> None:
        """It provides the interface."""
        verifyObject(IMachineLogs, await self.make_runtime())

    async def test_log(self: Any) -> None:
        """Each Log returns a different URL, which also differs from those of consoles."""
        runtime, created = await self.create()
        request = console_pb2.LogRequest(machine_id=created.metadata.id)
        urls = {(await runtime.log(request, user="ann")).url for _ in range(3)}
        urls.add((await runtime.exec(pb.ExecRequest(machine_id=created.metadata.id))).url)
        self.assertEqual(len(urls), 4)

    async def test_log_of_nobody(self: Any) -> None:
        """
        Log fails with NotFound for an unknown id, and for an id with the UID of another machine.
        """
        runtime, created = await self.create()
        error = await self.refusal(runtime.log(console_pb2.LogRequest(machine_id="nobody")))
        self.assertIsInstance(error, NotFound)
        request = console_pb2.LogRequest(machine_id=created.metadata.id)
        error = await self.refusal(runtime.log(request, machine_uid="uid-another"))
        self.assertIsInstance(error, NotFound)

    async def test_log_without_power(self: Any) -> None:
        """A machine that is off has a log."""
        runtime, created = await self.create(power=pb.POWER_OFF)
        request = console_pb2.LogRequest(machine_id=created.metadata.id)
        self.assertTrue((await runtime.log(request)).url)
