"""
The broker as a runtime: every method is a change in the target cluster, or a look at the copy of it.

Who may make machines there is the broker itself; who may reach a console is the user who asks, see
:mod:`.identity`.  What a machine's owner wants twice happens once: the name in the target is made of
the owner's UID, so a second broker, or this one after a lost answer, finds what the first made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

import twisted_exec
from twisted_exec.api.dialects import owner_of
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    BadRequest,
    Conflict,
    NotFound,
    Unauthorized,
)
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import LOG, Grant
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.capacity import TargetCapacity
from twisted_exec.runtimes.machinebroker.machine_cache import Copy
from twisted_exec.runtimes.machinebroker.streams import find
from twisted_exec.runtimes.machinebroker.target import Identity, Place

from .events import EVENTS, events_of, selector
from .objects import IGNITION_KEY, Held, encode_texts, new_id, power_of, to_object
from .part_objects import Parts
from .parts import INTERFACES, Part, changed, disk_of, interface_of, merge_parts
from .tokens import Tokens

NAME = "twisted-exec-broker"
DELETE_SECONDS = 45.0
"""How long a deletion may take in the target until its caller must ask again."""

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


def _answered(method: Callable[_P, Any]) -> Callable[_P, Deferred[Any]]:
    """A coroutine as a method that answers a Deferred; our own rights are the operator's matter."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[Any]:
        return Deferred.fromCoroutine(method(*args, **kwargs)).addErrback(_in_words)

    return call


def _in_words(failure: Any) -> Any:
    if failure.check(Unauthorized) or getattr(failure.value, "code", 0) == Unauthorized.code:
        raise BadGateway("the target cluster does not accept this broker's credentials")
    return failure


@implementer(IMachineRuntime, IMachineLogs)
class MachineBroker:
    """
    Has its machines in another cluster.

    :param client: of the target, as the broker.
    :param exec_url: the URL for a token.
    :param log_url: likewise, of the console's log.
    :param trouble: why the target cannot be asked, or empty.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: Place,
        identity: Identity,
        tokens: Tokens,
        clock: Any,
        *,
        exec_url: Callable[[str], str],
        log_url: Callable[[str], str],
        gone: Callable[[Held], None] = lambda held: None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.copy = Copy(client, place, clock, gone, trouble)
        self.offer = TargetCapacity(client, place, clock, trouble)
        self._client, self._place, self._identity = client, place, identity
        self._parts = Parts(client, place)
        self._tokens, self._exec_url, self._log_url = tokens, exec_url, log_url

    def start(self) -> None:
        """Follow the target until :meth:`stop`."""
        self.copy.start()
        self.offer.start()

    async def stop(self) -> None:
        """Fires when nothing is under way any more."""
        await self.copy.stop()
        await self.offer.stop()

    def forget(self) -> None:
        """The target is another server: nothing counts of what is known of it."""
        self.copy.forget()
        self.offer.forget()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: what is known of the target is not what it has.
        """
        self.copy.check()
        self.offer.check()

    # What it is.

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return succeed(
            pb.VersionResponse(runtime_name=NAME, runtime_version=twisted_exec.__version__)
        )

    @_answered
    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        self.offer.check()
        self.copy.check()
        return pb.StatusResponse(machine_class_status=self.offer.status(self.copy))

    @_answered
    async def list_events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        self.copy.check()
        listed = await self._client.list(
            EVENTS, self._place.namespace, field_selector=selector(self._place)
        )
        held = {each.uid: each for each in self.copy}
        return pb.ListEventsResponse(events=events_of(listed["items"], held, request.filter))

    @_answered
    async def list_machines(self, request: pb.ListMachinesRequest) -> pb.ListMachinesResponse:
        self.copy.check()
        # A poollet asks for one by its UID, for each of its machines.
        uid = owner_of(request.filter.label_selector).uid
        held = self.copy.of(uid) if uid else self.copy
        found = [each.machine for each in held if _matches(each, request.filter)]
        return pb.ListMachinesResponse(machines=found)

    # Machines.

    @_answered
    async def create_machine(self, request: pb.CreateMachineRequest) -> pb.CreateMachineResponse:
        wanted = request.machine
        self.copy.check()
        uid = owner_of(wanted.metadata.labels).uid
        known = self.copy.of(uid) if uid else []
        if known:
            return pb.CreateMachineResponse(machine=known[0].machine)
        self._check_class(str(getattr(wanted.spec, "class")))
        machine_id = new_id(wanted.metadata.labels, self._place)
        made = await self._make(to_object(wanted, machine_id, self._place), uid)
        if self._place.created_label not in (made["metadata"].get("labels") or {}):
            made = await self._complete(made, wanted.spec)
        held = await self.copy.until(made)
        return pb.CreateMachineResponse(machine=held.machine)

    def _check_class(self, name: str) -> None:
        self.offer.check()
        offered = self.offer.names()
        if name not in offered:
            raise BadRequest(
                f"the target cluster has no machine class {name!r}; it offers: "
                f"{', '.join(offered) or 'none'}"
            )

    async def _make(self, wanted: Object, uid: str) -> Object:
        """The object, new or as it was made before."""
        machines, namespace = self._place.machines, self._place.namespace
        try:
            return await self._client.create(machines, wanted, namespace)
        except APIError as error:
            if error.reason != AlreadyExists.reason or not uid:
                raise
        found = await self._client.get(machines, wanted["metadata"]["name"], namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise Conflict("the machine that was made before is still being deleted")
        return found

    async def _complete(self, made: Object, spec: pb.MachineSpec) -> Object:
        """
        Make all that belongs to a machine.

        It is made behind the machine, which waits for it: so there is nothing without an owner.
        """
        name = made["metadata"]["name"]
        try:
            if spec.ignition_data:
                kind = f"{self._place.dialect.group}/ignition"
                await self._parts.keep_secret(made, name, kind, {IGNITION_KEY: spec.ignition_data})
            await self._parts.make(made, spec)
            complete = {"metadata": {"labels": {self._place.created_label: "true"}}}
            return await self._patch(name, complete)
        except APIError:
            await self._unmake(made)
            raise

    async def _unmake(self, made: Object) -> None:
        """What cannot be completed is not left behind."""
        name = made["metadata"]["name"]
        try:
            await self._client.delete(self._place.machines, name, self._place.namespace)
            await self._parts.remove({"name": name, "spec": made["spec"]})
        except APIError as error:
            self._log.warn(
                "machine {id} of the target is incomplete and cannot be deleted: {why}",
                id=name,
                why=error.message,
            )

    @_answered
    async def delete_machine(self, request: pb.DeleteMachineRequest) -> pb.DeleteMachineResponse:
        held = self.copy.get(request.machine_id)
        if not held.deleting:
            try:
                await self._client.delete(
                    self._place.machines, held.id, self._place.namespace, uid=held.uid
                )
            except APIError as error:
                if error.code != NotFound.code:
                    raise
        await self.copy.until_gone(held, DELETE_SECONDS)
        try:
            await self._parts.remove({"name": held.id, "spec": held.spec})
        except APIError as error:
            self._log.info("parts of {id} stay behind: {why}", id=held.id, why=error.message)
        return pb.DeleteMachineResponse()

    @_answered
    async def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> pb.UpdateMachineAnnotationsResponse:
        held = self.copy.get(request.machine_id)
        told = encode_texts(request.annotations)
        key = self._place.annotations_annotation
        await self._change(held, {"metadata": {"annotations": {key: told}}})
        return pb.UpdateMachineAnnotationsResponse()

    @_answered
    async def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> pb.UpdateMachinePowerResponse:
        held = self.copy.get(request.machine_id)
        if held.deleting:
            raise Conflict(f'machine "{held.id}" is being deleted')
        await self._change(held, {"spec": {"power": power_of(request.power)}})
        return pb.UpdateMachinePowerResponse()

    async def _change(self, held: Held, patch: Object) -> None:
        await self.copy.until(await self._patch(held.id, patch))

    async def _patch(self, machine_id: str, patch: Object) -> Object:
        return await self._client.patch(
            self._place.machines, machine_id, patch, self._place.namespace
        )

    # Parts of machines.

    @_answered
    async def attach_volume(self, request: pb.AttachVolumeRequest) -> pb.AttachVolumeResponse:
        held, volume = self.copy.get(request.machine_id), request.volume
        wanted = disk_of(volume, held.id, self._place)
        found = await self._found(held)
        await self._parts.make_volume(found, volume)
        field = self._place.dialect.disks_field
        parts = changed(found["spec"].get(field) or [], wanted)
        await self._set_parts(held, found, field, parts, volume)
        return pb.AttachVolumeResponse()

    @_answered
    async def detach_volume(self, request: pb.DetachVolumeRequest) -> pb.DetachVolumeResponse:
        held, field = self.copy.get(request.machine_id), self._place.dialect.disks_field
        part = await self._without(held, field, request.name)
        if "volumeRef" in part:
            await self._parts.remove_volume(held.id, request.name)
        return pb.DetachVolumeResponse()

    @_answered
    async def update_volume(self, request: pb.UpdateVolumeRequest) -> pb.UpdateVolumeResponse:
        held = self.copy.get(request.machine_id)
        found = await self._found(held)
        await self._parts.update_volume(found, request.volume)
        field = self._place.dialect.disks_field
        await self._set_parts(held, found, field, found["spec"][field], request.volume)
        return pb.UpdateVolumeResponse()

    @_answered
    async def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> pb.AttachNetworkInterfaceResponse:
        held, interface = self.copy.get(request.machine_id), request.network_interface
        wanted = interface_of(interface, held.id, self._place)
        found = await self._found(held)
        await self._parts.make_interface(found, interface)
        parts = changed(found["spec"].get(INTERFACES) or [], wanted)
        await self._set_parts(held, found, INTERFACES, parts, interface)
        return pb.AttachNetworkInterfaceResponse()

    @_answered
    async def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> pb.DetachNetworkInterfaceResponse:
        held = self.copy.get(request.machine_id)
        part = await self._without(held, INTERFACES, request.name)
        if "networkInterfaceRef" in part:
            await self._parts.remove_interface(held.id, request.name)
        return pb.DetachNetworkInterfaceResponse()

    async def _found(self, held: Held) -> Object:
        """As the target has it now: only it knows who else changed it."""
        return await self._client.get(self._place.machines, held.id, self._place.namespace)

    async def _without(self, held: Held, field: str, name: str) -> Object:
        """
        Take a part out of a machine's spec.

        :raises NotFound: it has none of this name.
        """
        found = await self._found(held)
        parts = found["spec"].get(field) or []
        gone = [each for each in parts if each["name"] == name]
        if not gone:
            raise NotFound(field, name)
        await self._set_parts(held, found, field, [each for each in parts if each not in gone])
        return dict(gone[0])

    async def _set_parts(
        self, held: Held, found: Object, field: str, parts: list[Object], *told: Part
    ) -> None:
        """
        :param told: parts of which something new was told.
        """
        metadata, key = found["metadata"], self._place.parts_annotation
        kept = merge_parts((metadata.get("annotations") or {}).get(key) or "", *told)
        patch = {
            "metadata": {
                "resourceVersion": metadata.get("resourceVersion"),
                "annotations": {key: kept or None},
            },
            "spec": {field: parts},
        }
        await self._change(held, patch)

    # Consoles.

    @_answered
    async def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> pb.ExecResponse:
        find(self.copy, request.machine_id, machine_uid)
        self._identity.acting_as(user)
        grant = Grant(request.machine_id, machine_uid, user, session)
        return pb.ExecResponse(url=self._exec_url(self._tokens.make(grant)))

    @_answered
    async def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> console_pb2.LogResponse:
        find(self.copy, request.machine_id, machine_uid, needs_power=False)
        self._identity.acting_as(user)
        grant = Grant(request.machine_id, machine_uid, user, session, LOG)
        return console_pb2.LogResponse(url=self._log_url(self._tokens.make(grant)))


def _matches(held: Held, asked: pb.MachineFilter) -> bool:
    if asked.id and asked.id != held.id:
        return False
    labels = held.machine.metadata.labels
    return all(labels.get(key) == value for key, value in asked.label_selector.items())
