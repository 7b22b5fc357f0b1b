"""
Locate the poollet for texts that may outlive their machines: ``deletedconsoles/log`` and
``consolerecordings/content``.

The objects of these texts name the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.consolerecordings import FAILED, PENDING, content_path, state_of
from twisted_exec.api.kinds.deletedconsoles import log_path
from twisted_exec.api.status import Conflict, NotImplementedByBackend
from twisted_exec.apiserver.consoles.machine_locator import MachineLocator
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.forwarded_user import forwarded_headers
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.subresources import DELETED_LOG, RECORDING, Subresource
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamLocator, Location

SCREEN_SECONDS = 12.0
"""Time limit for a poollet's answer with a screen."""
CONTENT_SECONDS = 12.0
"""Time limit for a poollet's answer with a recording."""


@implementer(IStreamLocator)
class RetainedTextLocator:
    """Locates the poollet for a text that may outlive its machine."""

    def __init__(
        self,
        gate: Gate,
        storage: IStorage,
        machines: Iterable[MachineLocator],
        limits: RequestLimits,
        what: Subresource,
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._machines = {each.workload: each for each in machines}
        self._what, (self._path, self._check) = what, _RETAINED[what]

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._locate_target(context, context.target)

    async def _locate_target(self, context: RequestContext, target: RequestTarget) -> Location:
        what, permission = self._what, attributes_of(context.user, self._what.verb, target)
        await self._gate.authorize_session(context, permission)
        headers = forwarded_headers(context.user)
        options = what.options(context.request, target.name)
        obj = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec = obj["spec"]
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        self._check(target, obj)
        machines = self._machines.get(spec["machineResource"])
        if machines is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        path = self._path(target.namespace, target.name)
        location = await machines.poollets.of(
            what, options, target.namespace, spec["machine"], spec["pool"], path
        )
        return replace(location, headers=headers)  # the poollets do not know the user


def _check_log(target: RequestTarget, obj: Object) -> None:
    """A deleted machine has a log, even if it is empty."""


def _check_recording(target: RequestTarget, obj: Object) -> None:
    state = state_of(obj)
    named = f'{target.kind.resource.qualified} "{target.name}"'
    if state == PENDING:
        raise Conflict(f"{named} has not begun yet: try again in some seconds")
    if state == FAILED and "firstOffset" not in obj["status"]:
        reason = obj["status"].get("message", "it failed")
        raise Conflict(f"{named} has no content: {reason}")


_RETAINED: dict[
    Subresource, tuple[Callable[[str, str], str], Callable[[RequestTarget, Object], None]]
] = {
    DELETED_LOG: (log_path, _check_log),
    RECORDING: (content_path, _check_recording),
}
"""For each text its path on the poollet, and a check of its object."""
