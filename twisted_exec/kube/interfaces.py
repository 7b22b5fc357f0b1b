"""
Interfaces of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from zope.interface import Interface

from twisted_exec.api.resource import Resource

if TYPE_CHECKING:
    from twisted_exec.wire.marks import OpenRecording

Object = dict[str, Any]
"""A Kubernetes object, as parsed from JSON."""


class IObjectClient(Interface):
    """
    Reads and writes of single objects.

    Deferreds fail with :class:`~twisted_exec.api.status.APIError`, as an API server answers.
    Objects that they fire with belong to the caller.
    """

    def get(resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        """Fires with the object."""

    def create(resource: Resource, obj: Object, namespace: str = "") -> Deferred[Object]:
        """Fires with the object as stored."""

    def update(
        resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        """Replace the object; fires with the object as stored."""

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
        resource: Resource, name: str, namespace: str = "", *, uid: str = ""
    ) -> Deferred[Object]:
        """
        Fires with the answer.

        :param uid: precondition, or empty.
        """


class IKubeClient(IObjectClient):
    """
    A client of one API server.

    Deferreds fail with :class:`~twisted_exec.api.status.APIError`, such as ``BadGateway`` for an
    unreachable server or unusable credentials, and ``GatewayTimeout`` for a slow server.
    """

    def look() -> int:
        """
        Read the configuration again, such as a kubeconfig that may have been replaced.

        :return: a number that changes with the configuration.
        """

    def groups() -> Deferred[list[str]]:
        """Fires with the names of the server's API groups, except the core group."""

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

        :param trim: returns the part of an item to keep; it may change the item in place.
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

        :param uid: precondition, or empty.
        :param grace_seconds: grace period of a Pod, 0 for none; ``None`` for the Pod's own.
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
        :param on_open: called once when the server has accepted the watch; from then on every
            change arrives.
        :return: fires when the server ended the watch normally; fails with
            :class:`~twisted_exec.api.status.Expired` if ``resource_version``
            is too old: list again.
        """


class IRecordedProtocol(Interface):
    """
    A protocol at a :class:`~twisted_exec.kube.console_endpoint.ConsoleEndpoint` that tells its user
    about recordings.
    """

    def recordings_changed(recordings: tuple[OpenRecording, ...]) -> None:
        """
        Recordings of the console have begun or ended, also those of other users.

        :param recordings: the current ones; users are names from the network, and may be empty.
        """


class IResumableProtocol(Interface):
    """
    A protocol at a :class:`~twisted_exec.kube.console_endpoint.ConsoleEndpoint` that handles losses
    of the connection itself.
    """

    def outage(reason: str) -> None:
        """The connection is lost; :meth:`resumed` or ``connectionLost`` follows."""

    def resumed(seconds: float, uncertain: int) -> None:
        """
        The session goes on.

        :param seconds: since :meth:`outage`.
        :param uncertain: number of dropped bytes of input and other requests, some of which the
            machine may have received.
        """

    def notice(text: str) -> None:
        """A message for people."""

    def skipped(count: int | None) -> None:
        """Output is missing here: its number of bytes, or ``None`` if the number is unknown."""
