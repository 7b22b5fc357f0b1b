"""
The broker as a runtime: every method is a change in the target cluster, or a look at the copy of it.

Who may make machines there is the broker itself; who may reach a console is the user who asks, see
:mod:`.identity`.  What a machine's owner wants twice happens once: the name in the target is made of
the owner's UID, so a second broker, or this one after a lost answer, finds what the first made.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

import twisted_exec
from twisted_exec.api.dialects import owner_of
from twisted_exec.api.meta import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    BadRequest,
    Conflict,
    NotFound,
    NotImplementedByBackend,
    Unauthorized,
)
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import LOG, Grant
from twisted_exec.kube.interfaces import IKubeClient, Object

from .copy import Copy
from .events import EVENTS, events_of, selector
from .identity import Identity
from .locator import find
from .objects import (
    IGNITION_KEY,
    Held,
    Place,
    as_text,
    disk_of,
    new_id,
    owner_of_held,
    power_of,
    to_object,
)
from .offer import Offer
from .tokens import Tokens

NAME = "twisted-exec-broker"
SECRETS = Resource("", "v1", "secrets", "Secret")
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
    ) -> None:
        self.copy = Copy(client, place, clock, gone)
        self.offer = Offer(client, place, clock)
        self._client, self._place, self._identity = client, place, identity
        self._tokens, self._exec_url, self._log_url = tokens, exec_url, log_url

    def start(self) -> None:
        """Follow the target until :meth:`stop`."""
        self.copy.start()
        self.offer.start()

    async def stop(self) -> None:
        """Fires when nothing is under way any more."""
        await self.copy.stop()
        await self.offer.stop()

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
        found = [each.machine for each in self.copy if _matches(each, request.filter)]
        return pb.ListMachinesResponse(machines=found)

    # Machines.

    @_answered
    async def create_machine(self, request: pb.CreateMachineRequest) -> pb.CreateMachineResponse:
        wanted = request.machine
        self.copy.check()
        uid = owner_of(wanted.metadata.labels).uid
        known = [each for each in self.copy if uid and owner_of_held(each) == uid]
        if known:
            return pb.CreateMachineResponse(machine=known[0].machine)
        self._check_class(str(getattr(wanted.spec, "class")))
        machine_id = new_id(wanted.metadata.labels, self._place)
        made = await self._make(to_object(wanted, machine_id, self._place), uid)
        if self._place.created_label not in made["metadata"]["labels"]:
            await self._keep_ignition(made, wanted.spec.ignition_data)
            complete = {"metadata": {"labels": {self._place.created_label: "true"}}}
            made = await self._patch(machine_id, complete)
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

    async def _keep_ignition(self, made: Object, ignition: bytes) -> None:
        """
        A Secret that goes with its machine, because the machine owns it.  Without ignition, none.

        It is made behind the machine, which waits for it: so there is none without an owner.
        """
        if not ignition:
            return
        place, metadata = self._place, made["metadata"]
        secret = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": metadata["name"],
                "labels": place.labels(),
                "ownerReferences": [
                    {
                        "apiVersion": place.machines.api_version,
                        "kind": place.machines.kind,
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "type": f"{place.dialect.group}/ignition",
            "data": {IGNITION_KEY: base64.b64encode(ignition).decode("ascii")},
        }
        try:
            await self._client.create(SECRETS, secret, place.namespace)
        except APIError as error:
            if error.reason != AlreadyExists.reason:
                await self._unmake(metadata["name"])
                raise

    async def _unmake(self, machine_id: str) -> None:
        """What cannot be completed is not left behind."""
        try:
            await self._client.delete(self._place.machines, machine_id, self._place.namespace)
        except APIError as error:
            self._log.warn(
                "machine {id} of the target is incomplete and cannot be deleted: {why}",
                id=machine_id,
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
        await self._forget_ignition(held)
        return pb.DeleteMachineResponse()

    async def _forget_ignition(self, held: Held) -> None:
        """For clusters in which nobody removes what has lost its owner."""
        try:
            await self._client.delete(SECRETS, held.id, self._place.namespace)
        except APIError as error:
            if error.code != NotFound.code:
                self._log.info("secret {id} stays behind: {why}", id=held.id, why=error.message)

    @_answered
    async def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> pb.UpdateMachineAnnotationsResponse:
        held = self.copy.get(request.machine_id)
        told = as_text(request.annotations)
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
        held, wanted = self.copy.get(request.machine_id), disk_of(request.volume, self._place)

        def attached(disks: list[Object]) -> list[Object]:
            return [each for each in disks if each["name"] != wanted["name"]] + [wanted]

        await self._change_disks(held, attached)
        return pb.AttachVolumeResponse()

    @_answered
    async def detach_volume(self, request: pb.DetachVolumeRequest) -> pb.DetachVolumeResponse:
        held, name = self.copy.get(request.machine_id), request.name

        def detached(disks: list[Object]) -> list[Object]:
            if all(each["name"] != name for each in disks):
                raise NotFound("volumes", name)
            return [each for each in disks if each["name"] != name]

        await self._change_disks(held, detached)
        return pb.DetachVolumeResponse()

    async def _change_disks(
        self, held: Held, changed: Callable[[list[Object]], list[Object]]
    ) -> None:
        """As the target has them now: only it knows all of a disk, and who else changed it."""
        place, field = self._place, self._place.dialect.disks_field
        found = await self._client.get(place.machines, held.id, place.namespace)
        disks = changed(found["spec"].get(field) or [])
        version = found["metadata"].get("resourceVersion")
        await self._change(held, {"metadata": {"resourceVersion": version}, "spec": {field: disks}})

    @_answered
    async def update_volume(self, request: pb.UpdateVolumeRequest) -> pb.UpdateVolumeResponse:
        self.copy.get(request.machine_id)
        disk_of(request.volume, self._place)
        raise NotImplementedByBackend("a disk of the machine's own host does not change")

    @_answered
    async def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> pb.AttachNetworkInterfaceResponse:
        raise _no_interfaces(self.copy.get(request.machine_id))

    @_answered
    async def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> pb.DetachNetworkInterfaceResponse:
        raise _no_interfaces(self.copy.get(request.machine_id))

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


def _no_interfaces(held: Held) -> NotImplementedByBackend:
    return NotImplementedByBackend(
        f'machine "{held.id}": this broker passes no network interfaces on'
    )
