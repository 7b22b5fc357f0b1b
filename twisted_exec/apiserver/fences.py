"""
The fences round the poollets of every dialect that a server has, and round node servers.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.selectors import FieldSelector
from twisted_exec.apiserver.exposed import sight_of
from twisted_exec.apiserver.fence import Fence
from twisted_exec.apiserver.interfaces import Change, IAdmission
from twisted_exec.apiserver.narrowed import ISight
from twisted_exec.apiserver.node_fence import NodeFence
from twisted_exec.apiserver.placed import Placed
from twisted_exec.apiserver.verbs import Target
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage


@implementer(IAdmission)
class Fences:
    """
    Lets happen what every dialect's :class:`Fence` lets happen, and that round node servers.

    A poollet of one dialect is nobody to the fences of the others, and what it is
    not expressly allowed its own fence refuses.
    """

    def __init__(self, dialects: Iterable[Dialect], storage: IStorage, clock: IReactorTime) -> None:
        self._dialects = tuple(dialects)
        self._each: list[Fence | NodeFence] = [NodeFence(storage)]
        self.followers: list[Placed] = []
        """To be started after the store."""
        for dialect in self._dialects:
            placed = Placed(dialect, storage, clock)
            self._each.append(Fence(dialect, storage, placed))
            self.followers.append(placed)

    def pool_of(self, user: User) -> str | None:
        """
        The pool whose poollet this is, ``None`` for anyone else.

        :raises Forbidden: it claims to be a poollet and names no pool.
        """
        pools = [fence.pool_of(user) for fence in self._each]
        return next((pool for pool in pools if pool is not None), None)

    def check_get(self, user: User, kind: Kind, obj: Object) -> None:
        """As :meth:`Fence.check_get`."""
        for fence in self._each:
            fence.check_get(user, kind, obj)

    def check_list(self, user: User, kind: Kind, chosen: FieldSelector) -> None:
        """As :meth:`Fence.check_list`."""
        for fence in self._each:
            fence.check_list(user, kind, chosen)

    def check_name(self, user: User, target: Target) -> None:
        """As :meth:`Fence.check_name`."""
        for fence in self._each:
            fence.check_name(user, target)

    def sight_of(self, user: User, kind: Kind) -> ISight | None:
        """As :meth:`Fence.sight_of`; also of who comes for another cluster."""
        exposed = sight_of(user, kind, self._dialects)
        if exposed is not None:
            return exposed
        sights = (fence.sight_of(user, kind) for fence in self._each)
        return next((sight for sight in sights if sight is not None), None)

    def check_connect(self, user: User, name: str) -> None:
        """As :meth:`Fence.check_connect`."""
        for fence in self._each:
            fence.check_connect(user, name)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        return Deferred.fromCoroutine(self._admit(change))

    async def _admit(self, change: Change) -> None:
        for fence in self._each:
            await fence.admit(change)
