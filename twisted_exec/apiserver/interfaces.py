"""
Doors of the API server.
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
    A write that is about to be made.

    :param operation: ``create``, ``update`` or ``delete``.
    :param new: the object as it would be stored; ``None`` for a delete.
    :param old: the object as it is; ``None`` for a create.
    :param subresource: ``status``, or empty.
    :param dry_run: nothing will be stored.
    :param options: what else its client has said about it, such as ``fieldManager``.
    :param warnings: what the client is to be told besides; admissions add to it.
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
        """The object that this is about, new if there is one."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


@dataclass(frozen=True)
class Opening:
    """
    A stream that is about to be opened.

    :param kind: of the object that it belongs to.
    :param subresource: the stream's, such as ``exec``.
    :param options: the query, as an object of the kind that ``kind.connects`` tells.
    """

    user: User
    kind: Kind
    namespace: str
    name: str
    subresource: str
    options: Object


class IAdmission(Interface):
    """Decides on single writes what authorization, which sees no objects, cannot."""

    def admit(change: Change) -> Deferred[None]:
        """
        :return: fires with ``None``, or fails with the
            :class:`~twisted_exec.api.status.APIError` that refuses the change.
        """


class IMutatingAdmission(IAdmission):
    """Changes what is to be written as well, before the rules have their say."""

    def mutate(change: Change) -> Deferred[Object]:
        """
        :param change: a create or an update; ``new`` fits the schema's types and has its
            defaults, and may break any other rule.  It is not to be changed.
        :return: fires with the object to go on with, or fails as :meth:`admit`.
        """


class IOpeningAdmission(Interface):
    """Decides on streams, after authorization and before anybody is connected."""

    def admit_opening(opening: Opening) -> Deferred[None]:
        """
        :return: fires with ``None``, or fails with the
            :class:`~twisted_exec.api.status.APIError` that refuses the stream.
        """


class IAPIServer(IService):
    """A running API server."""

    address = Attribute(
        "Where it listens (:class:`~twisted.internet.interfaces.IAddress`); ``None`` until it does."
    )
    url = Attribute("``https://HOST:PORT``, for a kubeconfig; empty until it listens.")

    def when_ready() -> Deferred[None]:
        """Fires when requests are answered; fails with what kept it from starting."""
