"""
The admission of texts that may outlive their machines: ``deletedconsoles/log`` and
``consolerecordings/content``.

The objects of these texts name the pool, whose poollet has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.consolerecordings import FAILED, PENDING, content_path, state_of
from twisted_exec.api.kinds.deletedconsoles import log_path
from twisted_exec.api.status import Conflict, NotImplementedByBackend
from twisted_exec.apiserver.consoles.poollets import Poollets
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.forwarded_user import forwarded_headers
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.subresources import DELETED_LOG, RECORDING, Subresource
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamAdmission, Location

SCREEN_SECONDS = 12.0
"""Time limit for a poollet's answer with a screen."""
CONTENT_SECONDS = 12.0
"""Time limit for a poollet's answer with a recording."""


@implementer(IStreamAdmission)
class RetainedTextAdmission:
    """
    Admits users to one kind of text that may outlive its machine.

    :param poollets: by the resource of the machines, in the form ``PLURAL.GROUP``.
    """

    def __init__(
        self,
        gate: Gate,
        storage: IStorage,
        poollets: Mapping[str, Poollets],
        limits: RequestLimits,
        what: Subresource,
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._poollets = poollets
        self._what, (self._path, self._check) = what, _RETAINED[what]

    @as_deferred
    async def admit(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._admit(context, context.target)

    async def _admit(self, context: RequestContext, target: RequestTarget) -> Location:
        what, permission = self._what, attributes_of(context.user, self._what.verb, target)
        await self._gate.authorize_session(context, permission)
        headers = forwarded_headers(context.user)
        options = what.options(context.request, target.name)
        obj = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec = obj["spec"]
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        self._check(target, obj)
        poollets = self._poollets.get(spec["machineResource"])
        if poollets is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        path = self._path(target.namespace, target.name)
        location = await poollets.of(
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
