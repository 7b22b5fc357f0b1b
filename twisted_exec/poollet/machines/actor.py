"""Carry out actions in the API server and in the runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.logger import Logger

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
from twisted_exec.poollet.machines.claims import PatchObject
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.references import Object

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
