"""
``consolerecordings/content``: a recording as an asciicast, from the runtime that made it.

It is located like the log of a deleted machine: the recording names the pool, and the machine need
not exist any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.policies.consolerecordings import (
    CONTENT,
    CONTENT_TYPE,
    FAILED,
    PENDING,
    content_path,
    state_of,
)
from twisted_exec.api.status import BadRequest, Conflict, NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import (
    MachineLocator,
    forwarded_headers,
    item_path,
    target_of,
)
from twisted_exec.apiserver.serving.filters import Limits, attributes_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IStreamLocator, Location
from twisted_exec.streaming.text.relay import Relay

ANSWER_SECONDS = 12.0
"""How long a poollet may take: the runtime may read the recording from a store."""
_HEADERS = (
    (b"Content-Type", CONTENT_TYPE.encode()),
    (b"X-Content-Type-Options", b"nosniff"),
)


@implementer(IStreamLocator)
class ContentLocator:
    """
    Locates the poollet for ``.../consolerecordings/NAME/content``.

    :param machines: locate the machines, one for each dialect.
    """

    def __init__(
        self, gate: Gate, storage: IStorage, machines: Iterable[MachineLocator], limits: Limits
    ) -> None:
        self._gate, self._storage, self._limits = gate, storage, limits
        self._machines = {each.workload: each for each in machines}

    def locate(self, context: RequestContext) -> Deferred[Location]:
        """As :meth:`IStreamLocator.locate`; the target is a ConsoleRecording."""
        return Deferred.fromCoroutine(self._locate(context))

    async def _locate(self, context: RequestContext) -> Location:
        with self._limits.short(context.user):
            return await self._found(context, context.target)

    async def _found(self, context: RequestContext, target: Target) -> Location:
        await self._gate.authorize_session(context, attributes_of(context.user, "get", target))
        headers = forwarded_headers(context.user)
        if is_upgrade(context.request):
            raise BadRequest("a recording is read with a plain GET")
        recording = await self._storage.get(target.kind.resource, target.namespace, target.name)
        spec, state = recording["spec"], state_of(recording)
        context.learn(uid=spec["machineUID"], pool=spec["pool"])
        named = f'{target.kind.resource.qualified} "{target.name}"'
        if state == PENDING:
            raise Conflict(f"{named} has not begun yet: try again in some seconds")
        if state == FAILED and "firstOffset" not in recording["status"]:
            raise Conflict(
                f"{named} has no content: {recording['status'].get('message', 'it failed')}"
            )
        machines = self._machines.get(spec["machineResource"])
        if machines is None:
            raise NotImplementedByBackend(
                f"this server does not serve {spec['machineResource']} any more"
            )
        pool = await machines.pool(spec["machine"], spec["pool"])
        path = content_path(target.namespace, target.name)
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{spec["pool"]}" does not serve recordings: '
            "it is of an older release, or not an exec-poollet"
        )
        return replace(
            machines.poollet(pool, context, path),
            headers=headers,
            unknown_path=unknown,
            answer_headers=_HEADERS,
        )


def add_contents(routes: GatedRoutes, relay: Relay) -> None:
    """Add the content of recordings; the relay has a :class:`ContentLocator`."""
    kind = CONSOLERECORDINGS
    facts = {
        "resource": kind.resource.qualified,
        "noun": kind.singular,
        "subresource": CONTENT,
    }

    def session(target: Target) -> dict[str, str]:
        return {"namespace": target.namespace, "machine": target.name, **facts}

    path, target = f"{item_path(kind)}/{CONTENT}", partial(target_of, kind, CONTENT)
    routes.add_session(["GET"], path, relay.handle, target=target, session=session)
