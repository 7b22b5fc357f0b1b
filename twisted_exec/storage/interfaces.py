"""
The door of the storage room: versioned objects and what happened to them.

Why a store cannot be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.resource import Resource


class StorageError(Exception):
    """One line for whoever starts the program: which file, what is wrong, what would help."""


Object = dict[str, Any]
"""
A Kubernetes object as JSON gives it.

Objects that come out of a store are shared with everyone who asked, and carry
their JSON (:class:`~twisted_exec.api.encoded.Encoded`): whoever wants another one
makes a copy.
"""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


@dataclass(frozen=True)
class Event:
    """
    One change.

    :param type: ``ADDED``, ``MODIFIED`` or ``DELETED``.
    :param obj: the object after the change; when deleted its last state, with
        the resourceVersion of the deletion.
    :param previous: the object before the change, ``None`` when it was added.
    :param version: the store's resourceVersion that this change made.
    """

    type: str
    obj: Object
    previous: Object | None
    version: int


@dataclass(frozen=True)
class Listing:
    """Objects in order of namespace and name, and the version they are of."""

    items: Sequence[Object]
    version: int


class IWatch(Interface):
    """A running watch."""

    def stop() -> None:
        """Deliver nothing more.  Repeated calls do nothing."""


class IStorage(IService):
    """
    Objects under optimistic concurrency.

    One resourceVersion counts every change of every object, so an object's
    version, a list's and a watch's can be compared.  A Deferred of a write
    fires when the write will survive the death of the process; then, and only
    then, readers and watchers see it.  Reads see every write acknowledged
    before, by whichever server on the same store.

    ``startService`` opens nothing that takes time: before :meth:`when_ready` nothing
    is to be asked for.
    """

    exclusive = Attribute("Whether this server is the only one that uses these objects: a bool.")

    def when_ready() -> Deferred[None]:
        """
        :return: fires when reads and writes can be served; fails with
            :class:`~twisted_exec.storage.interfaces.StorageError` when that can never be, and
            when the service is stopped before.
        """

    def get(
        resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """
        :param namespace: empty for cluster-scoped resources.
        :param stale: content with what is at hand, which others may have changed: the
            objects that watches have been told of, neither more nor fewer.
        :return: fires with the object; fails with
            :class:`~twisted_exec.api.status.NotFound`.
        """

    def list(
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """
        :param namespace: empty for all.
        :param version: as it was then, not as it is now.
        :param stale: as for :meth:`get`.
        :return: fires with a :class:`Listing`; fails with
            :class:`~twisted_exec.api.status.Expired` when nobody remembers ``version``.
        """

    def create(resource: Resource, obj: Object) -> Deferred[Object]:
        """
        :return: fires with the object as stored, with its resourceVersion; fails
            with :class:`~twisted_exec.api.status.AlreadyExists`.
        """

    def update(resource: Resource, obj: Object) -> Deferred[Object]:
        """
        Replace an object.

        :param obj: its ``metadata.resourceVersion`` and ``metadata.uid`` must be
            those of the object stored.
        :return: fires with the object as stored; fails with
            :class:`~twisted_exec.api.status.NotFound` or
            :class:`~twisted_exec.api.status.Conflict`.
        """

    def delete(resource: Resource, obj: Object) -> Deferred[Object]:
        """
        Remove an object.

        :param obj: as for :meth:`update`.
        :return: fires with the object's last state; fails as :meth:`update`.
        """

    def watch(
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """
        Hear of every change after ``since``, in order, first those that have
        happened already, then live.

        A store that others keep may forget changes before they are seen, or be put
        back to an earlier state.

        :param since: a resourceVersion; ``None``: from now on.
        :param on_lost: called once, instead of all further events, when changes were
            missed: list again.  Who gives none is told how what is differs from what
            was, as changes, one per object.
        :param on_event: called at once for what has happened, before this method
            returns.  A callback that raises is not called again.
        :raises Expired: changes after ``since`` have been forgotten: list again.
        """

    def version() -> int:
        """The resourceVersion of the latest change that is at hand."""

    def current() -> Deferred[int]:
        """
        :return: fires with :meth:`version` when every write acknowledged before is at hand.
        """

    def probe() -> Deferred[object]:
        """
        :return: fires when a write would last now; fails with what keeps it from that.
        """


def is_exclusive(storage: IStorage) -> bool:
    """
    Return :attr:`IStorage.exclusive`.

    A store that was written for release 0.1 has the former name ``alone``; this release accepts it.
    """
    # Both names count: a subclass of a store of ours may override the former one only.
    values = [getattr(storage, name) for name in ("exclusive", "alone") if hasattr(storage, name)]
    return bool(values) and all(values)
