"""
The broker as a machine runtime.

Creation is idempotent if a request has the owner's UID.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
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
from twisted_exec.iri.request_cache import LOG, Grant, StreamLinks
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.capacity import TargetCapacity
from twisted_exec.runtimes.machinebroker.events import EVENTS, events_of, selector
from twisted_exec.runtimes.machinebroker.machine_cache import MachineCache
from twisted_exec.runtimes.machinebroker.objects import (
    IGNITION_KEY,
    CachedMachine,
    encode_texts,
    new_id,
    power_of,
    to_object,
)
from twisted_exec.runtimes.machinebroker.part_objects import PartObjects
from twisted_exec.runtimes.machinebroker.parts import (
    INTERFACES,
    Part,
    disk_of,
    interface_of,
    merge_parts,
    with_part,
)
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.machinebroker.streams import find
from twisted_exec.runtimes.machinebroker.tokens import Tokens

NAME = "twisted-exec-broker"
DELETE_SECONDS = 45.0
"""Time limit for a deletion in the target; afterwards the caller must repeat it."""

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


def _as_deferred(method: Callable[_P, Any]) -> Callable[_P, Deferred[Any]]:

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[Any]:
        return Deferred.fromCoroutine(method(*args, **kwargs)).addErrback(_translate)

    return call


def _translate(failure: Any) -> Any:
    if failure.check(Unauthorized) or getattr(failure.value, "code", 0) == Unauthorized.code:
        raise BadGateway("the target cluster does not accept this broker's credentials")
    return failure


@implementer(IMachineRuntime, IMachineLogs)
class MachineBroker:
    """A runtime whose machines are in another cluster."""

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        place: BrokerPlace,
        identity: BrokerIdentity,
        tokens: Tokens,
        clock: IReactorTime,
        *,
        links: StreamLinks,
        deleted: Callable[[CachedMachine], None] = lambda entry: None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.cache = MachineCache(client, place, clock, deleted, trouble)
        self.capacity = TargetCapacity(client, place, clock, trouble)
        self._client, self._place, self._identity = client, place, identity
        self._parts = PartObjects(client, place)
        self._tokens, self._links = tokens, links

    def start(self) -> None:
        self.cache.start()
        self.capacity.start()

    async def stop(self) -> None:
        await self.cache.stop()
        await self.capacity.stop()

    def forget(self) -> None:
        """Discard all caches, because the target is another server now."""
        self.cache.forget()
        self.capacity.forget()

    def check(self) -> None:
        """
        :raises ServiceUnavailable: a cache is not current; the message says why.
        """
        self.cache.check()
        self.capacity.check()

    # Status and lists.

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return succeed(
            pb.VersionResponse(runtime_name=NAME, runtime_version=twisted_exec.__version__)
        )

    @_as_deferred
    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        self.capacity.check()
        self.cache.check()
        return pb.StatusResponse(machine_class_status=self.capacity.status(self.cache))

    @_as_deferred
    async def list_events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        self.cache.check()
        listed = await self._client.list(
            EVENTS, self._place.namespace, field_selector=selector(self._place)
        )
        machines = {each.uid: each for each in self.cache}
        return pb.ListEventsResponse(events=events_of(listed["items"], machines, request.filter))

    @_as_deferred
    async def list_machines(self, request: pb.ListMachinesRequest) -> pb.ListMachinesResponse:
        self.cache.check()
        # Poollets list single machines by UID, one request for each of theirs.
        uid = owner_of(request.filter.label_selector).uid
        candidates = self.cache.of(uid) if uid else self.cache
        machines = [each.machine for each in candidates if _matches(each, request.filter)]
        return pb.ListMachinesResponse(machines=machines)

    # Machines.

    @_as_deferred
    async def create_machine(self, request: pb.CreateMachineRequest) -> pb.CreateMachineResponse:
        template = request.machine
        self.cache.check()
        uid = owner_of(template.metadata.labels).uid
        existing = self.cache.of(uid) if uid else []
        if existing:
            return pb.CreateMachineResponse(machine=existing[0].machine)
        self._check_class(str(getattr(template.spec, "class")))
        machine_id = new_id(template.metadata.labels, self._place)
        created = await self._make(to_object(template, machine_id, self._place), uid)
        if self._place.created_label not in (created["metadata"].get("labels") or {}):
            created = await self._complete(created, template.spec)
        entry = await self.cache.until(created)
        return pb.CreateMachineResponse(machine=entry.machine)

    def _check_class(self, name: str) -> None:
        self.capacity.check()
        offered = self.capacity.names()
        if name not in offered:
            raise BadRequest(
                f"the target cluster has no machine class {name!r}; it offers: "
                f"{', '.join(offered) or 'none'}"
            )

    async def _make(self, document: Object, uid: str) -> Object:
        machines, namespace = self._place.machines, self._place.namespace
        try:
            return await self._client.create(machines, document, namespace)
        except APIError as error:
            if error.reason != AlreadyExists.reason or not uid:
                raise
        existing = await self._client.get(machines, document["metadata"]["name"], namespace)
        if existing["metadata"].get("deletionTimestamp"):
            raise Conflict("the previous machine of this owner is still being deleted")
        return existing

    async def _complete(self, target_machine: Object, spec: pb.MachineSpec) -> Object:
        name = target_machine["metadata"]["name"]
        try:
            if spec.ignition_data:
                kind = f"{self._place.dialect.group}/ignition"
                await self._parts.create_secret(
                    target_machine, name, kind, {IGNITION_KEY: spec.ignition_data}
                )
            await self._parts.make(target_machine, spec)
            complete = {"metadata": {"labels": {self._place.created_label: "true"}}}
            return await self._patch(name, complete)
        except APIError:
            await self._unmake(target_machine)
            raise

    async def _unmake(self, target_machine: Object) -> None:
        name = target_machine["metadata"]["name"]
        try:
            await self._client.delete(self._place.machines, name, self._place.namespace)
            await self._parts.remove({"name": name, "spec": target_machine["spec"]})
        except APIError as error:
            self._log.warn(
                "machine {id} of the target is incomplete and cannot be deleted: {why}",
                id=name,
                why=error.message,
            )

    @_as_deferred
    async def delete_machine(self, request: pb.DeleteMachineRequest) -> pb.DeleteMachineResponse:
        entry = self.cache.get(request.machine_id)
        if not entry.deleting:
            try:
                await self._client.delete(
                    self._place.machines, entry.id, self._place.namespace, uid=entry.uid
                )
            except APIError as error:
                if error.code != NotFound.code:
                    raise
        await self.cache.until_gone(entry, DELETE_SECONDS)
        try:
            await self._parts.remove({"name": entry.id, "spec": entry.spec})
        except APIError as error:
            self._log.info(
                "objects of machine {id} cannot be deleted: {why}", id=entry.id, why=error.message
            )
        return pb.DeleteMachineResponse()

    @_as_deferred
    async def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> pb.UpdateMachineAnnotationsResponse:
        entry = self.cache.get(request.machine_id)
        text = encode_texts(request.annotations)
        key = self._place.annotations_annotation
        await self._change(entry, {"metadata": {"annotations": {key: text}}})
        return pb.UpdateMachineAnnotationsResponse()

    @_as_deferred
    async def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> pb.UpdateMachinePowerResponse:
        entry = self.cache.get(request.machine_id)
        if entry.deleting:
            raise Conflict(f'machine "{entry.id}" is being deleted')
        await self._change(entry, {"spec": {"power": power_of(request.power)}})
        return pb.UpdateMachinePowerResponse()

    async def _change(self, entry: CachedMachine, patch: Object) -> None:
        await self.cache.until(await self._patch(entry.id, patch))

    async def _patch(self, machine_id: str, patch: Object) -> Object:
        return await self._client.patch(
            self._place.machines, machine_id, patch, self._place.namespace
        )

    # Parts of machines.

    @_as_deferred
    async def attach_volume(self, request: pb.AttachVolumeRequest) -> pb.AttachVolumeResponse:
        entry, volume = self.cache.get(request.machine_id), request.volume
        disk = disk_of(volume, entry.id, self._place)
        target_machine = await self._current(entry)
        await self._parts.make_volume(target_machine, volume)
        field = self._place.dialect.disks_field
        parts = with_part(target_machine["spec"].get(field) or [], disk)
        await self._set_parts(entry, target_machine, field, parts, volume)
        return pb.AttachVolumeResponse()

    @_as_deferred
    async def detach_volume(self, request: pb.DetachVolumeRequest) -> pb.DetachVolumeResponse:
        entry, field = self.cache.get(request.machine_id), self._place.dialect.disks_field
        part = await self._without(entry, field, request.name)
        if "volumeRef" in part:
            await self._parts.remove_volume(entry.id, request.name)
        return pb.DetachVolumeResponse()

    @_as_deferred
    async def update_volume(self, request: pb.UpdateVolumeRequest) -> pb.UpdateVolumeResponse:
        entry = self.cache.get(request.machine_id)
        target_machine = await self._current(entry)
        await self._parts.update_volume(target_machine, request.volume)
        field = self._place.dialect.disks_field
        await self._set_parts(
            entry, target_machine, field, target_machine["spec"][field], request.volume
        )
        return pb.UpdateVolumeResponse()

    @_as_deferred
    async def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> pb.AttachNetworkInterfaceResponse:
        entry, interface = self.cache.get(request.machine_id), request.network_interface
        fields = interface_of(interface, entry.id, self._place)
        target_machine = await self._current(entry)
        await self._parts.make_interface(target_machine, interface)
        parts = with_part(target_machine["spec"].get(INTERFACES) or [], fields)
        await self._set_parts(entry, target_machine, INTERFACES, parts, interface)
        return pb.AttachNetworkInterfaceResponse()

    @_as_deferred
    async def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> pb.DetachNetworkInterfaceResponse:
        entry = self.cache.get(request.machine_id)
        part = await self._without(entry, INTERFACES, request.name)
        if "networkInterfaceRef" in part:
            await self._parts.remove_interface(entry.id, request.name)
        return pb.DetachNetworkInterfaceResponse()

    async def _current(self, entry: CachedMachine) -> Object:
        return await self._client.get(self._place.machines, entry.id, self._place.namespace)

    async def _without(self, entry: CachedMachine, field: str, name: str) -> Object:
        target_machine = await self._current(entry)
        parts = target_machine["spec"].get(field) or []
        matches = [each for each in parts if each["name"] == name]
        if not matches:
            raise NotFound(field, name)
        await self._set_parts(
            entry, target_machine, field, [each for each in parts if each not in matches]
        )
        return dict(matches[0])

    async def _set_parts(
        self,
        entry: CachedMachine,
        target_machine: Object,
        field: str,
        parts: list[Object],
        *changes: Part,
    ) -> None:
        metadata, key = target_machine["metadata"], self._place.parts_annotation
        annotation = merge_parts((metadata.get("annotations") or {}).get(key) or "", *changes)
        patch = {
            "metadata": {
                "resourceVersion": metadata.get("resourceVersion"),
                "annotations": {key: annotation or None},
            },
            "spec": {field: parts},
        }
        await self._change(entry, patch)

    # Consoles.

    @_as_deferred
    async def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> pb.ExecResponse:
        find(self.cache, request.machine_id, machine_uid)
        self._identity.acting_as(user)
        grant = Grant(request.machine_id, machine_uid, user, session)
        return pb.ExecResponse(url=self._links.exec_url(self._tokens.make(grant)))

    @_as_deferred
    async def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> console_pb2.LogResponse:
        find(self.cache, request.machine_id, machine_uid, needs_power=False)
        self._identity.acting_as(user)
        grant = Grant(request.machine_id, machine_uid, user, session, LOG)
        return console_pb2.LogResponse(url=self._links.log_url(self._tokens.make(grant)))


def _matches(entry: CachedMachine, filter: pb.MachineFilter) -> bool:
    if filter.id and filter.id != entry.id:
        return False
    labels = entry.machine.metadata.labels
    return all(labels.get(key) == value for key, value in filter.label_selector.items())
