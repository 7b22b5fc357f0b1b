"""
The restrictions of poollets, node servers and members of the exposed group, beyond their roles.

Without a restriction, one poollet could report its own address as that of another pool and receive
the consoles of that pool's Machines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS, Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.apiserver.interfaces import Change, IAdmission
from twisted_exec.apiserver.restriction.agents import CONSOLES
from twisted_exec.apiserver.restriction.exposed import ExposedRestriction
from twisted_exec.apiserver.restriction.nodes import NodeRestriction
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph
from twisted_exec.apiserver.restriction.pools import PoolRestriction
from twisted_exec.apiserver.restriction.visibility import intersection
from twisted_exec.auth.credentials import files_of
from twisted_exec.auth.interfaces import Decision, IAuthorizer, IVisibility, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.interfaces import IStorage
from twisted_exec.tls.files import Replaceable


class Restriction(Protocol):
    """
    The restriction of one group of users.

    It applies only to members of its groups, and to users whose name has one of its prefixes.
    """

    groups: Collection[str]
    prefixes: Collection[str]

    def decide(self, attributes: Attributes) -> Decision | None:
        """
        Decide about a request for stored objects, or for a stream of one.

        :return: ``None`` if the user may do whatever roles allow.
        """

    async def admit(self, change: Change) -> None:
        """As :meth:`IAdmission.admit`."""


@implementer(IAdmission)
class Restrictions:
    """
    The restrictions of one API server.

    :ivar graphs: services to start after the store.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        dialects: Sequence[Dialect],
        storage: IStorage,
        clock: IReactorTime,
    ) -> None:
        listed = [kind for kind in kinds if kind.listed]
        # Reviews have no objects: poollets create them for their own clients.
        self._resources = {
            (each.resource.group, each.resource.plural): each.resource for each in listed
        }
        # Pods of Nodes are another kind of the same name.
        pods_view = PODS in listed
        self.graphs = [PoolGraph(dialect, storage, clock) for dialect in dialects]
        self._restrictions: list[Restriction] = [
            ExposedRestriction(dialects, pods_view=pods_view),
            NodeRestriction(storage, pods_view=pods_view),
            *(
                PoolRestriction(dialect, storage, graph, pods_view=pods_view)
                for dialect, graph in zip(dialects, self.graphs, strict=True)
            ),
        ]
        self._groups = frozenset(group for each in self._restrictions for group in each.groups)
        self._prefixes = tuple({name for each in self._restrictions for name in each.prefixes})

    def decide(self, attributes: Attributes) -> Decision:
        """
        Combine the decisions of all restrictions.

        A decision that allows a request is no permission: roles must allow it as well.
        """
        combined = Decision(True)
        if not self._is_restricted(attributes.user):
            return combined
        # Restrictions protect objects that can be read, and the identities of other users.
        if attributes.verb != "impersonate" and self.resource(attributes) is None:
            return combined
        for restriction in self._restrictions:
            decision = restriction.decide(attributes)
            if decision is None:
                continue
            if not decision.allowed:
                return decision
            visibility = intersection(combined.visibility, decision.visibility)
            combined = replace(combined, visibility=visibility)
        return combined

    def _is_restricted(self, user: User) -> bool:
        return user.name.startswith(self._prefixes) or not self._groups.isdisjoint(user.groups)

    def resource(self, attributes: Attributes) -> Resource | None:
        """Return the resource that a request is for, if its objects can be read."""
        return self._resources.get((attributes.group, attributes.resource))

    @as_deferred
    async def admit(self, change: Change) -> None:
        if not self._is_restricted(change.user):
            return
        for restriction in self._restrictions:
            await restriction.admit(change)


@implementer(IAuthorizer)
class RestrictedAuthorizer:
    """
    Allows what another authorizer and the restrictions allow.

    :param authorizer: the other authorizer; decides first, as its refusal names the missing right.
    """

    def __init__(
        self, authorizer: IAuthorizer, restrictions: Restrictions, storage: IStorage
    ) -> None:
        self._authorizer, self._restrictions = authorizer, restrictions
        self._storage = storage

    def files(self) -> list[Replaceable]:
        return files_of([self._authorizer])

    @as_deferred
    async def authorize(self, attributes: Attributes) -> Decision:
        decision: Decision = await self._authorizer.authorize(attributes)
        if not decision.allowed:
            return decision
        restricted = self._restrictions.decide(attributes)
        if not restricted.allowed:
            return restricted
        if decision.visibility is None and restricted.visibility is None:
            return decision
        visibility = intersection(decision.visibility, restricted.visibility)
        if visibility is not None and attributes.subresource in CONSOLES:
            return await self._decide_stream(attributes, visibility, decision)
        return replace(decision, visibility=visibility)

    async def _decide_stream(
        self, attributes: Attributes, visibility: IVisibility, decision: Decision
    ) -> Decision:
        """
        Decide about a stream by its object now: its answer has no object that a visibility could
        apply to.
        """
        resource = self._restrictions.resource(attributes)
        hidden = Decision(False, hidden=True)
        if resource is None:
            return hidden
        try:
            obj = await self._storage.get(resource, attributes.namespace, attributes.name)
        except NotFound:
            return hidden
        return replace(decision, visibility=None) if visibility.sees(obj) else hidden
