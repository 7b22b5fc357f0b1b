"""
Doors of the client room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Interface

from twisted_exec.api.resource import Resource

Object = dict[str, Any]
"""A Kubernetes object as JSON gives it."""


class IKubeClient(Interface):
    """
    A client of one API server.

    Every Deferred fails with :class:`~twisted_exec.api.status.APIError` for an
    answer that is an error (with ``NotFound``, ``Conflict`` and ``AlreadyExists`` for
    those), with ``BadGateway`` when the server cannot be reached and ``GatewayTimeout``
    when it is too slow.
    """

    def get(resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        """Fires with the object."""

    def list(
        resource: Resource,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Deferred[Object]:
        """
        Fires with the whole list object (``items``, ``metadata.resourceVersion``).

        :param trim: what is kept of an item, which it may change in place.  A list that comes in
            pages is never held whole as it was.
        """

    def create(
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
    ) -> Deferred[Object]:
        """Fires with the object as stored (or answered, for reviews)."""

    def update(
        resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        """PUT; the object's ``metadata`` names it.  Fires with the object as stored."""

    def patch(
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = "application/merge-patch+json",
    ) -> Deferred[Object]:
        """Fires with the object as stored."""

    def delete(
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> Deferred[Object]:
        """
        Fires with the answer.

        :param uid: becomes a precondition.
        :param grace_seconds: for a Pod to end in, 0 for at once; ``None`` for its own.
        """

    def watch(
        resource: Resource,
        on_event: Callable[[str, Object], None],
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",
        on_open: Callable[[], None] = lambda: None,
    ) -> Deferred[None]:
        """
        Watch until the server ends it or the Deferred is cancelled.

        :param on_event: called with ``ADDED``, ``MODIFIED``, ``DELETED`` or
            ``BOOKMARK`` and the object.
        :param on_open: called once when the server has accepted the watch:
            what does not come from then on did not happen.
        :return: fires when the server ended the watch normally; fails with
            :class:`~twisted_exec.api.status.Expired` when ``resource_version``
            is too old: list again.
        """


class ILeases(Interface):
    """
    One Lease, by which an :class:`~twisted_exec.kube.leader_election.election.Election` is decided, wherever it is
    kept.  Deferreds fail with ``APIError``, as an API server answers.
    """

    def get() -> Deferred[Object]:
        """Fires with it; fails with :class:`~twisted_exec.api.status.NotFound`."""

    def create(spec: Object) -> Deferred[Object]:
        """Fires with it as stored; fails with ``AlreadyExists``."""

    def update(lease: Object) -> Deferred[Object]:
        """Fires with it as stored; fails with ``Conflict`` when it is not as ``lease`` was read."""


class ILeader(Interface):
    """Who acts while it leads."""

    def elected() -> None:
        """Begin to act."""

    def deposed() -> Deferred[None]:
        """
        Act no longer, from before this returns.

        :return: fires when what was under way is over, too; never fails.  It is not
            :meth:`elected` again before.
        """
