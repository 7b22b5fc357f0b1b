"""
Locate texts that may outlive their machines: the objects name the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.consoles.poollets import forwarded_headers
from twisted_exec.apiserver.serving.filters import Limits, attributes_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.gate import Gate
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import IStreamLocator, Location


@implementer(IStreamLocator)
class RetainedTextLocator:
    """
    Base of the locators of a subresource of such objects; it needs ``get``.

    :param machines: locate the machines, one for each dialect.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, machines: Iterable[MachineLocator], limits: Limits
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._machines = {each.workload: each for each in machines}

    # Implemented by subclasses.

    def _check_request(self, context: RequestContext) -> None:
        """:raises APIError: the request is invalid."""
        raise NotImplementedError

    def _check(self, target: Target, obj: Object) -> None:
        """:raises APIError: the object has no text."""

    def _path(self, target: Target) -> str:
        """Return the path on the poollet."""
        raise NotImplementedError

    def _at(self, location: Location, obj: Object) -> Location:
        """Return the location with more facts."""
        return location

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        """As :meth:`IStreamLocator.locate`; the target is the object."""
        with self._limits.short(context.user):
            return await self._locate_target(context, context.target)

    async def _locate_target(self, context: RequestContext, target: Target) -> Location:
        await self._gate.authorize_session(context, attributes_of(context.user, "get", target))
        headers = forwarded_headers(context.user)
        self._check_request(context)
        obj = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec = obj["spec"]
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        self._check(target, obj)
        machines = self._machines.get(spec["machineResource"])
        if machines is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        pool = await machines.poollets.pool(spec["machine"], spec["pool"])
        location = machines.poollet(pool, context, self._path(target))
        return self._at(replace(location, headers=headers), obj)
