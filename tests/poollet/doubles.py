"""
A runtime in memory, and the objects that the poollet's tests are about.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import AlreadyExists, APIError, NotFound
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2, event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.config import MachineConfig

MACHINES = kinds.MACHINES.resource
POOLS = kinds.MACHINEPOOLS.resource
CLASSES = kinds.MACHINECLASSES.resource

CONFIG = MachineConfig(IRONCORE, "pool-a", "memory")
NOW = "2026-11-20T05:00:00Z"


def machine(name: str = "vm", pool: str = "pool-a", **spec: Any) -> dict[str, Any]:
    """A Machine as a user writes it."""
    return {
        "metadata": {"name": name},
        "spec": {"machineClassRef": {"name": "pty"}, "machinePoolRef": {"name": pool}, **spec},
    }


@implementer(IMachineRuntime, IMachineLogs)
class MemoryRuntime:
    """
    Keeps machines in a dictionary; they run at once, unless told otherwise.

    :ivar calls: the name of every call but listings, in order.
    :ivar problem: while set, every call fails with it.
    :ivar refusals: by method, an error that this method fails with.
    :ivar starts_pending: new machines stay pending until :meth:`settle`.
    """

    def __init__(self) -> None:
        self.deleted: set[str] = set()  # UIDs of deleted machines whose output is retained
        self.machines: dict[str, pb.Machine] = {}
        self.calls: list[str] = []
        self.listings = 0
        self.events: list[event_pb2.Event] = []
        self.problem: APIError | None = None
        self.refusals: dict[str, APIError] = {}
        self.starts_pending = False
        self.ends_slowly = False
        self.classes = {"pty": ({"cpu": 1, "memory": 1 << 30}, 10)}
        self.url = "http://127.0.0.1:1/exec/token"
        self.execs: list[tuple[str, str, str, str]] = []
        self.log_url = "http://127.0.0.1:1/log/token"
        self.logs: list[tuple[str, str, str, str]] = []
        self.answer: Deferred[Any] | None = None
        """What the next ``status`` waits for, to be slow."""

    def add(self, state: int = pb.MACHINE_RUNNING, **labels: str) -> pb.Machine:
        """Add an existing machine; labels by the dialect's short names."""
        machine = pb.Machine()
        for key, value in labels.items():
            machine.metadata.labels[IRONCORE.runtime_prefix + key.replace("_", "-")] = value
        machine.metadata.id = uuid.uuid4().hex
        machine.status.state = state  # type: ignore[assignment]
        self.machines[machine.metadata.id] = machine
        return machine

    def settle(self) -> None:
        """Let pending machines reach their state and ending machines disappear."""
        for machine_id, machine in list(self.machines.items()):
            if machine.status.state == pb.MACHINE_TERMINATING:
                del self.machines[machine_id]
            elif machine.status.state == pb.MACHINE_PENDING:
                self._power(machine)

    def _power(self, machine: pb.Machine) -> None:
        running = machine.spec.power == pb.POWER_ON
        machine.status.state = pb.MACHINE_RUNNING if running else pb.MACHINE_STOPPED

    def _do(self, name: str, act: Any) -> Deferred[Any]:
        if name == "list_machines":
            self.listings += 1
        else:
            self.calls.append(name)
        problem = self.problem or self.refusals.get(name)
        if problem is not None:
            return fail(problem)
        try:
            done = act()
        except APIError as refused:
            return fail(refused)
        return done if isinstance(done, Deferred) else succeed(done)

    def _find(self, machine_id: str) -> pb.Machine:
        if machine_id not in self.machines:
            raise NotFound("machines", machine_id, "", f"machine {machine_id} not found")
        return self.machines[machine_id]

    def happen(
        self, labels: Mapping[str, str], type: str, reason: str, message: str, at: int
    ) -> None:
        """Record an event of a machine with these labels; ``at`` in the runtime's own unit."""
        event = event_pb2.Event(
            spec=event_pb2.EventSpec(type=type, reason=reason, message=message, event_time=at)
        )
        event.spec.involved_object_meta.labels.update(labels)
        self.events.append(event)

    def list_events(self, request: Any) -> Deferred[Any]:
        return self._do(
            "list_events",
            lambda: pb.ListEventsResponse(
                events=[
                    event
                    for event in self.events
                    if event.spec.event_time >= request.filter.events_from_time
                ]
            ),
        )

    def version(self, request: Any) -> Deferred[Any]:
        return self._do(
            "version", lambda: pb.VersionResponse(runtime_name="memory", runtime_version="1.0.0")
        )

    def status(self, request: Any) -> Deferred[Any]:
        def told() -> Any:
            if self.answer is not None:
                return self.answer
            return pb.StatusResponse(
                machine_class_status=[
                    pb.MachineClassStatus(
                        machine_class=pb.MachineClass(
                            name=name,
                            capabilities=pb.MachineClassCapabilities(resources=resources),
                        ),
                        quantity=quantity,
                    )
                    for name, (resources, quantity) in self.classes.items()
                ]
            )

        return self._do("status", told)

    def list_machines(self, request: Any) -> Deferred[Any]:
        selector = dict(request.filter.label_selector)

        def chosen() -> Any:
            return pb.ListMachinesResponse(
                machines=[
                    entry
                    for entry in self.machines.values()
                    if selector.items() <= dict(entry.metadata.labels).items()
                ]
            )

        return self._do("list_machines", chosen)

    def create_machine(self, request: Any) -> Deferred[Any]:
        def make() -> Any:
            machine = pb.Machine()
            machine.CopyFrom(request.machine)
            machine.metadata.id = uuid.uuid4().hex
            if not self.starts_pending:
                self._power(machine)
            self._report_parts(machine)
            self.machines[machine.metadata.id] = machine
            return pb.CreateMachineResponse(machine=machine)

        return self._do("create_machine", make)

    def delete_machine(self, request: Any) -> Deferred[Any]:
        def end() -> Any:
            machine = self._find(request.machine_id)
            if self.ends_slowly:
                machine.status.state = pb.MACHINE_TERMINATING
            else:
                del self.machines[request.machine_id]
            return pb.DeleteMachineResponse()

        return self._do("delete_machine", end)

    def update_machine_power(self, request: Any) -> Deferred[Any]:
        def change() -> Any:
            machine = self._find(request.machine_id)
            machine.spec.power = request.power
            self._power(machine)
            return pb.UpdateMachinePowerResponse()

        return self._do("update_machine_power", change)

    def update_machine_annotations(self, request: Any) -> Deferred[Any]:
        def change() -> Any:
            machine = self._find(request.machine_id)
            machine.metadata.ClearField("annotations")
            machine.metadata.annotations.update(request.annotations)
            # A runtime may count this as a change of its own object.
            machine.metadata.generation += 1
            machine.status.observed_generation = machine.metadata.generation
            return pb.UpdateMachineAnnotationsResponse()

        return self._do("update_machine_annotations", change)

    def exec(
        self, request: Any, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[Any]:
        def token() -> Any:
            self._find(request.machine_id)
            self.execs.append((request.machine_id, user, machine_uid, session))
            return pb.ExecResponse(url=self.url)

        return self._do("exec", token)

    def log(
        self, request: Any, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[Any]:
        def token() -> Any:
            if request.machine_id or machine_uid not in self.deleted:
                self._find(request.machine_id)
            self.logs.append((request.machine_id, user, machine_uid, session))
            return console_pb2.LogResponse(url=self.log_url)

        return self._do("log", token)

    def _report_parts(self, machine: pb.Machine) -> None:
        """Report a machine's parts as attached, under handles of the runtime's own."""
        for has, reports in (
            (machine.spec.volumes, machine.status.volumes),
            (machine.spec.network_interfaces, machine.status.network_interfaces),
        ):
            del reports[:]
            for part in has:
                reports.add(name=part.name, handle=f"handle-{part.name}", state=1)

    def _part(self, name: str, request: Any, parts: str, new: Any, old: str = "") -> Deferred[Any]:
        """Replace, add or remove one part of a machine."""

        def change() -> Any:
            machine = self._find(request.machine_id)
            has = getattr(machine.spec, parts)
            old_name = old or new.name
            there = [part for part in has if part.name == old_name]
            if bool(there) == name.startswith("attach"):
                raise (AlreadyExists("parts", old_name) if there else NotFound("parts", old_name))
            for part in there:
                has.remove(part)
            if new is not None:
                has.append(new)
            self._report_parts(machine)
            return None

        return self._do(name, change)

    def attach_volume(self, request: Any) -> Deferred[Any]:
        return self._part("attach_volume", request, "volumes", request.volume)

    def detach_volume(self, request: Any) -> Deferred[Any]:
        return self._part("detach_volume", request, "volumes", None, request.name)

    def update_volume(self, request: Any) -> Deferred[Any]:
        return self._part("update_volume", request, "volumes", request.volume)

    def attach_network_interface(self, request: Any) -> Deferred[Any]:
        new = request.network_interface
        return self._part("attach_network_interface", request, "network_interfaces", new)

    def detach_network_interface(self, request: Any) -> Deferred[Any]:
        name = "detach_network_interface"
        return self._part(name, request, "network_interfaces", None, request.name)
