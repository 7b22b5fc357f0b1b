"""Carries out actions in the API server and the runtime, and lists the runtime's machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import AlreadyExists, APIError, BadGateway, Conflict, NotFound
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.poollet.machines.actions import (
    Action,
    Attachment,
    Create,
    Delete,
    PatchStatus,
    SetAnnotations,
    SetFinalizers,
    SetPower,
)
from twisted_exec.poollet.machines.config import MachineConfig, Object, PatchObject, machine_uid

Report = Callable[[Object, str, str, str], object]
"""Callback for Events of a Machine: the Machine, ``Normal`` or ``Warning``, reason, message."""

FAILURES: dict[type[Action], str] = {
    Create: "CreateFailed",
    Delete: "DeleteFailed",
    SetPower: "PowerFailed",
    SetAnnotations: "UpdateFailed",
    Attachment: "AttachFailed",
}
"""Reasons of Events when an action fails."""


class Gone(Exception):
    """The Machine no longer exists in the API."""


class RefusedAction(APIError):
    """An action for the Machine was refused."""

    event = ""
    """Reason of an Event; empty sends none."""

    @classmethod
    def because(cls, error: APIError, event: str, message: str = "") -> RefusedAction:
        """Return a refusal made from another error."""
        error_with_reason = cls(
            message or error.message,
            code=error.code,
            reason=error.reason,
            retry_after_seconds=error.retry_after_seconds,
        )
        error_with_reason.event = event
        return error_with_reason


@dataclass(frozen=True)
class Done:
    """
    The result of an action.

    :param machine: the Machine, if the action changed it.
    :param observed: the runtime's machine, if the runtime returned one.
    :param changed: the runtime's machines must be listed again.
    """

    machine: Object | None = None
    observed: pb.Machine | None = None
    changed: bool = False


@dataclass
class ActionRunner:
    """Carries out actions of plans."""

    client: IKubeClient
    runtime: IMachineRuntime
    config: MachineConfig
    report: Report

    _log = Logger()

    async def act(self, machine: Object, action: Action) -> Done:
        """
        Carry out one action.

        :raises Gone: the Machine no longer exists.
        :raises RefusedAction: the runtime refused, or an object cannot be claimed.
        :raises APIError: the API server refused, or did not answer.
        """
        match action:
            case SetFinalizers(finalizers, version):
                metadata = {"finalizers": list(finalizers), "resourceVersion": version}
                return Done(await self.patch(machine, {"metadata": metadata}))
            case PatchStatus(status):
                return Done(await self.patch(machine, {"status": status}, "status"))
            case PatchObject():
                return await self._patch_other(action)
        try:
            return await self._change_runtime(machine, action)
        except APIError as refused:
            raise RefusedAction.because(refused, FAILURES[type(action)]) from None

    async def _patch_other(self, action: PatchObject) -> Done:
        try:
            await self.client.patch(action.resource, action.name, action.patch, action.namespace)
        except APIError as refused:
            if refused.reason == Conflict.reason:
                raise
            message = f"{action.resource.qualified} {action.name!r}: {refused.message}"
            raise RefusedAction.because(refused, "ClaimFailed", message) from None
        return Done()

    async def patch(self, machine: Object, patch: Object, subresource: str = "") -> Object:
        """
        Merge ``patch`` into the Machine and return the result.

        :raises Gone: the Machine no longer exists.
        :raises APIError: it cannot be changed.
        """
        metadata = machine["metadata"]
        try:
            return await self.client.patch(
                self.config.dialect.workload,
                metadata["name"],
                patch,
                metadata.get("namespace", ""),
                subresource=subresource,
            )
        except APIError as refused:
            if refused.code == NotFound.code:
                raise Gone from None
            raise

    async def delete(self, machine_id: str) -> None:
        """Delete a machine from the runtime, if it exists."""
        try:
            await self.runtime.delete_machine(pb.DeleteMachineRequest(machine_id=machine_id))
        except APIError as refused:
            if refused.code != NotFound.code:
                raise

    async def _change_runtime(self, machine: Object, action: Action) -> Done:
        runtime = self.runtime
        match action:
            case Create(wanted):
                return Done(observed=await self._create(machine, wanted))
            case Delete(machine_id):
                self._log.info("deleting the machine of {name}", name=label(machine))
                await self.delete(machine_id)
                self.report(machine, "Normal", "Deleting", f"deleting machine {machine_id}")
            case SetPower(machine_id, power):
                change = pb.UpdateMachinePowerRequest(machine_id=machine_id)
                change.power = power  # type: ignore[assignment]
                await runtime.update_machine_power(change)
            case SetAnnotations(machine_id, annotations):
                await runtime.update_machine_annotations(
                    pb.UpdateMachineAnnotationsRequest(
                        machine_id=machine_id, annotations=annotations
                    )
                )
            case Attachment():
                await self._attach(machine, action)
        return Done(changed=True)

    async def _create(self, machine: Object, desired: pb.Machine) -> pb.Machine:
        self._log.info("creating the machine of {name}", name=label(machine))
        created = (
            await self.runtime.create_machine(pb.CreateMachineRequest(machine=desired))
        ).machine
        if not created.metadata.id:
            raise BadGateway("the machine runtime made a machine without an id")
        self.report(machine, "Normal", "Created", f"created machine {created.metadata.id}")
        return created

    async def _attach(self, machine: Object, action: Attachment) -> None:
        try:
            await self._attachment(action)
        except APIError as refused:
            attaches = action.volume is not None or action.interface is not None
            done = AlreadyExists.reason if attaches else NotFound.reason
            if refused.reason != done or action.update:
                message = f"{action.name}: {refused.message}"
                raise APIError(message, code=refused.code, reason=refused.reason) from None

    async def _attachment(self, action: Attachment) -> None:
        runtime, machine_id = self.runtime, action.machine_id
        if action.volume is not None and action.update:
            await runtime.update_volume(
                pb.UpdateVolumeRequest(machine_id=machine_id, volume=action.volume)
            )
        elif action.volume is not None:
            await runtime.attach_volume(
                pb.AttachVolumeRequest(machine_id=machine_id, volume=action.volume)
            )
        elif action.interface is not None:
            await runtime.attach_network_interface(
                pb.AttachNetworkInterfaceRequest(
                    machine_id=machine_id, network_interface=action.interface
                )
            )
        elif action.is_volume:
            await runtime.detach_volume(
                pb.DetachVolumeRequest(machine_id=machine_id, name=action.name)
            )
        else:
            await runtime.detach_network_interface(
                pb.DetachNetworkInterfaceRequest(machine_id=machine_id, name=action.name)
            )


def label(machine: Object) -> str:
    """Return ``NAMESPACE/NAME``."""
    metadata = machine["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


MAX_ORPHANS = 100
"""Limit of orphans deleted after one listing; the next listing continues."""
_AT_ONCE = 5000


def by_uid(machines: Iterable[pb.Machine], dialect: Dialect) -> dict[str, list[pb.Machine]]:
    """Group the runtime's machines by the UID of their Machine."""
    machines_by_uid: dict[str, list[pb.Machine]] = {}
    for machine in machines:
        uid = machine_uid(machine, dialect)
        if uid:
            machines_by_uid.setdefault(uid, []).append(machine)
    return machines_by_uid


def distinct(machines: Iterable[pb.Machine]) -> list[pb.Machine]:
    """Return each machine once, whatever a runtime repeats."""
    unique = {machine.metadata.id: machine for machine in machines}
    return list(unique.values())


@dataclass
class MachineListing:
    """
    One listing of the runtime's machines: groups them by Machine, and deletes orphans.

    A runtime may list anything, such as foreign machines, duplicates, and many thousands. That must
    not block the process or end a machine that this pool did not create.

    :param synced: whether ``machines`` is complete.
    """

    actor: ActionRunner
    clock: IReactorTime
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]

    _log = Logger()

    async def ask(self) -> dict[str, list[pb.Machine]]:
        """Return the machines by UID of their Machine. Raises :class:`APIError`."""
        listed = await self.actor.runtime.list_machines(pb.ListMachinesRequest())
        machines = listed.machines
        if len(machines) <= _AT_ONCE:
            machines_by_uid = by_uid(machines, self.actor.config.dialect)
        else:
            machines_by_uid = await self._sort_slowly(machines)
        for uid, several in machines_by_uid.items():
            if len(several) > 1:
                machines_by_uid[uid] = distinct(several)
        return machines_by_uid

    async def _sort_slowly(self, machines: Iterable[pb.Machine]) -> dict[str, list[pb.Machine]]:
        machines_by_uid: dict[str, list[pb.Machine]] = {}
        rest = list(machines)
        while rest:
            some, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
            for uid, ones in by_uid(some, self.actor.config.dialect).items():
                machines_by_uid.setdefault(uid, []).extend(ones)
            # A turn of the reactor, not a pause.
            await deferLater(self.clock, 0)
        return machines_by_uid

    async def clean_up(self, observed: dict[str, list[pb.Machine]]) -> None:
        """
        Delete the runtime's machines whose Machine is no longer in this pool.

        A machine is deleted only if it has this pool's label and the API server has confirmed that:
        the copy behind ``machines`` may be stale.
        """
        config = self.actor.config
        if not self.synced():
            return
        known_uids = {machine["metadata"]["uid"] for machine in self.machines()}
        orphans = [
            machine
            for uid, machines in observed.items()
            if uid not in known_uids
            for machine in machines
            if machine.metadata.labels.get(config.pool_label) == config.pool
        ]
        if not orphans:
            return
        try:
            listed = await self.actor.client.list(
                config.dialect.workload, field_selector=f"{config.dialect.pool_field}={config.pool}"
            )
            existing_uids = {machine["metadata"]["uid"] for machine in listed["items"]}
            orphaned = [
                machine
                for machine in orphans
                if machine_uid(machine, config.dialect) not in existing_uids
            ]
            for orphan in orphaned[:MAX_ORPHANS]:
                uid = machine_uid(orphan, config.dialect)
                self._log.info("deleting orphan {id} of {uid}", id=orphan.metadata.id, uid=uid)
                await self.actor.delete(orphan.metadata.id)
        except APIError as error:
            self._log.warn("cleaning up orphans: {why}", why=error.message)
