"""
The restrictions of poollets, of every dialect that a server has, and of node servers.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.selectors import FieldSelector
from twisted_exec.apiserver.interfaces import Change, IAdmission
from twisted_exec.apiserver.restriction.exposed import visibility_of
from twisted_exec.apiserver.restriction.filtered_storage import IVisibility
from twisted_exec.apiserver.restriction.nodes import NodeRestriction
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph
from twisted_exec.apiserver.restriction.pools import PoolRestriction
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage


@implementer(IAdmission)
class Restrictions:
    """
    Lets happen what every dialect's :class:`PoolRestriction` lets happen, and :class:`NodeRestriction`.

    A poollet of one dialect is an ordinary user to the restrictions of the others; its own
    refuses every write that it does not expressly allow.
    """

    def __init__(self, dialects: Iterable[Dialect], storage: IStorage, clock: IReactorTime) -> None:
        self._dialects = tuple(dialects)
        self._each: list[PoolRestriction | NodeRestriction] = [NodeRestriction(storage)]
        self.followers: list[PoolGraph] = []
        """To be started after the store."""
        for dialect in self._dialects:
            graph = PoolGraph(dialect, storage, clock)
            self._each.append(PoolRestriction(dialect, storage, graph))
            self.followers.append(graph)

    def pool_of(self, user: User) -> str | None:
        """
        The pool whose poollet this is, ``None`` for anyone else.

        :raises Forbidden: it claims to be a poollet and names no pool.
        """
        pools = [restriction.pool_of(user) for restriction in self._each]
        return next((pool for pool in pools if pool is not None), None)

    def check_get(self, user: User, kind: Kind, obj: Object) -> None:
        """As :meth:`PoolRestriction.check_get`."""
        for restriction in self._each:
            restriction.check_get(user, kind, obj)

    def check_list(self, user: User, kind: Kind, chosen: FieldSelector) -> None:
        """As :meth:`PoolRestriction.check_list`."""
        for restriction in self._each:
            restriction.check_list(user, kind, chosen)

    def check_name(self, user: User, target: Target) -> None:
        """As :meth:`PoolRestriction.check_name`."""
        for restriction in self._each:
            restriction.check_name(user, target)

    def visibility_of(self, user: User, kind: Kind) -> IVisibility | None:
        """As :meth:`PoolRestriction.visibility_of`; also of who comes for another cluster."""
        exposed = visibility_of(user, kind, self._dialects)
        if exposed is not None:
            return exposed
        sights = (restriction.visibility_of(user, kind) for restriction in self._each)
        return next((visibility for visibility in sights if visibility is not None), None)

    def check_connect(self, user: User, name: str) -> None:
        """As :meth:`PoolRestriction.check_connect`."""
        for restriction in self._each:
            restriction.check_connect(user, name)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        return Deferred.fromCoroutine(self._admit(change))

    async def _admit(self, change: Change) -> None:
        for restriction in self._each:
            await restriction.admit(change)
