"""
The machine that a ConsoleRequest or ConsoleRecording names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Forbidden,
    NotFound,
)
from twisted_exec.auth.errors import forbidden, hidden
from twisted_exec.auth.interfaces import Decision, IAuthorizer, User
from twisted_exec.auth.rules import CONSOLE, Attributes
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.wire.session_terms import Right


class MachineReferences:
    """Finds the machine in ``spec.machine`` and ``spec.machineResource``."""

    def __init__(
        self, storage: IStorage, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._storage, self._authorizer = storage, authorizer
        self._dialects = {each.workload.qualified: each for each in dialects}

    def dialect(self, qualified: str) -> Dialect:
        """
        Return the dialect of a resource of machines.

        :raises BadRequest: the resource is not that of machines.
        """
        dialect = self._dialects.get(qualified)
        if dialect is None:
            served = ", ".join(self._dialects)
            raise BadRequest(f'spec.machineResource "{qualified}" is not served here: use {served}')
        return dialect

    async def find(self, user: User, obj: Object, noun: str) -> Object:
        """
        Return the machine of a new object, and note its resource in the object.

        The user needs a right at the machine, so that others do not learn whether it exists.
        """
        spec, namespace = obj["spec"], obj["metadata"]["namespace"]
        dialects = list(self._dialects.values())
        if "machineResource" in spec:
            dialects = [self.dialect(spec["machineResource"])]
        missing: NotFound | None = None
        refusal: APIError | None = None
        for resource in (each.workload for each in dialects):
            try:
                await self._check_visible(user, resource, namespace, spec["machine"], noun)
                machine = await self._storage.get(resource, namespace, spec["machine"])
            except NotFound as error:
                missing = missing or error
            except Forbidden as error:
                refusal = refusal or error
            else:
                spec["machineResource"] = resource.qualified
                return machine
        problem = missing or refusal
        assert problem is not None
        raise problem

    async def _check_visible(
        self, user: User, resource: Resource, namespace: str, name: str, noun: str
    ) -> None:
        reading = Attributes(
            user, "get", resource.group, resource.version, resource.plural, "", namespace, name
        )
        observing = replace(reading, verb=Right.OBSERVE.verb, subresource=CONSOLE)
        decision = Decision(False)
        for attributes in (reading, observing):
            decision = await self._authorizer.authorize(attributes)
            if decision.allows_everything:
                return
        if decision.hidden:
            raise hidden(observing, decision.reason)
        raise forbidden(observing, f"a {noun} needs this right, or get on the machine")
