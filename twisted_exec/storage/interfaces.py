"""
Interfaces of stores: versioned objects and their changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.resource import Resource

Object = dict[str, Any]
"""
A Kubernetes object, as parsed from JSON.

Objects from a store are shared by all its callers and carry their JSON
(:class:`~twisted_exec.api.encoded.Encoded`): copy an object before changing it.
"""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

MEMORY = "memory"
"""Location of a store that writes nowhere."""


class StorageError(Exception):
    """A store cannot be used."""


@dataclass(frozen=True)
class Event:
    """
    One change.

    :param obj: the object after the change, or the last state of a deleted one, with the
        resourceVersion of the deletion.
    :param previous: the object before the change, ``None`` if it was added.
    :param type: ``ADDED``, ``MODIFIED`` or ``DELETED``.
    :param version: the store's resourceVersion of this change.
    """

    type: str
    obj: Object
    previous: Object | None
    version: int


@dataclass(frozen=True)
class Listing:
    """Objects in order of namespace and name, and the version of the list."""

    items: Sequence[Object]
    version: int


class IWatch(Interface):
    """A running watch."""

    def stop() -> None:
        """Deliver nothing more."""


class IStorage(IService):
    """
    Objects under optimistic concurrency.

    One resourceVersion counts all changes of all objects. Readers and watchers see only durable
    writes, and a write's Deferred fires when the write is durable. Reads see the writes that any
    server on the same store acknowledged before, unless they are stale or of a given version. Reads
    and writes may also fail with other errors of :mod:`twisted_exec.api.status`, such as on a full
    disk.

    ``startService`` must not wait for another host; calls may come only after :meth:`when_ready`
    has fired.
    """

    exclusive = Attribute("Whether this server is the only one that uses these objects: a bool.")
    location = Attribute(
        "Place of the objects, without secrets, in the form of --storage: a str, unique for each store; "
        "MEMORY if they are lost at the end, empty if it is unknown."
    )

    def when_ready() -> Deferred[None]:
        """
        Wait for the store.

        :return: fires when the store can serve reads and writes; fails with
            :class:`~twisted_exec.storage.interfaces.StorageError` if it never can, or if the
            service stops before.
        """

    def get(
        resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """
        Read an object.

        :param namespace: empty for cluster-scoped resources.
        :param stale: read the local copy, which has exactly the changes that watches have
            delivered.
        :return: fires with the object; fails with :class:`~twisted_exec.api.status.NotFound`.
        """

    def list(
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """
        Read the objects of a resource.

        :param namespace: empty for all.
        :param version: list the objects as of this version; by default the latest.
        :param stale: as for :meth:`get`.
        :return: fires with a :class:`Listing`; fails with :class:`~twisted_exec.api.status.Expired`
            if the store has forgotten ``version``, with another
            :class:`~twisted_exec.api.status.APIError` if it has not happened yet.
        """

    def create(resource: Resource, obj: Object) -> Deferred[Object]:
        """
        Add an object.

        :return: fires with the object as stored, with its resourceVersion; fails with
            :class:`~twisted_exec.api.status.AlreadyExists`.
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
        Deliver each change after ``since``, in order.

        :param since: a resourceVersion, or ``None`` for now.
        :param on_lost: called once, instead of further events, if changes were missed.
        :param on_event: called for past changes before this method returns; must not raise.
        :raises Expired: changes after ``since`` are forgotten: list again.
        :raises APIError: ``since`` has not happened yet.
        """

    def version() -> int:
        """Return the resourceVersion of the latest change in the local copy."""

    def current() -> Deferred[int]:
        """
        Bring the local copy up to date.

        :return: fires with :meth:`version` when the local copy has the writes acknowledged before.
        """

    def probe() -> Deferred[object]:
        """
        Check that the store can write.

        :return: fires if a write would be durable now, with a ``str`` if some writes are refused meanwhile, such as on
            a full disk: which, and what to do, in words for all users. Fails with the problem otherwise.
        """
