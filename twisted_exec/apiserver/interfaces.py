"""
Interfaces of the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.api.kinds import Kind, Object
from twisted_exec.auth.interfaces import User

CREATE = "create"
UPDATE = "update"
DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """
    A write before it is stored.

    :param operation: ``create``, ``update`` or ``delete``.
    :param new: the object to be stored; ``None`` for a delete.
    :param old: the stored object; ``None`` for a create.
    :param subresource: ``status``, or empty.
    :param dry_run: nothing will be stored.
    :param options: the client's options, such as ``fieldManager``.
    :param warnings: warnings for the client; admission may add to them.
    """

    user: User
    operation: str
    kind: Kind
    new: Object | None
    old: Object | None
    subresource: str = ""
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def obj(self) -> Object:
        """The new object, or for a delete the old one."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


@dataclass(frozen=True)
class Opening:
    """
    A stream before it is opened.

    :param kind: kind of the object that it belongs to.
    :param subresource: such as ``exec``.
    :param options: the query, as an object of the kind in ``kind.connects``.
    """

    user: User
    kind: Kind
    namespace: str
    name: str
    subresource: str
    options: Object


class IAdmission(Interface):
    """Decides about single writes, by their objects, which authorization does not see."""

    def admit(change: Change) -> Deferred[None]:
        """
        :return: fires with ``None``, or fails with an
            :class:`~twisted_exec.api.status.APIError` to refuse the change.
        """


class IMutatingAdmission(IAdmission):
    """Admission that may also change the object, before validation."""

    def mutate(change: Change) -> Deferred[Object]:
        """
        :param change: a create or an update; ``new`` has the schema's types and defaults, but is
            not validated.  Do not modify it.
        :return: fires with the object to continue with, or fails as :meth:`admit`.
        """


class IOpeningAdmission(Interface):
    """Decides about streams, after authorization and before any connection."""

    def admit_opening(opening: Opening) -> Deferred[None]:
        """
        :return: fires with ``None``, or fails with an
            :class:`~twisted_exec.api.status.APIError` to refuse the stream.
        """


class IAPIServer(IService):
    """A running API server."""

    address = Attribute(
        "Listening address (:class:`~twisted.internet.interfaces.IAddress`); ``None`` before."
    )
    url = Attribute("``https://HOST:PORT``, for a kubeconfig; empty until it listens.")

    def when_ready() -> Deferred[None]:
        """Fires when the server accepts requests; fails if it cannot start."""
