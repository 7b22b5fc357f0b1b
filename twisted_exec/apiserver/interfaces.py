"""
Doors of the API server.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    user: User
    operation: str
    kind: Kind
    new: Object | None
    old: Object | None
    subresource: str = ""

    @property
    def obj(self) -> Object:
        """The object that this is about, new if there is one."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


class IAdmission(Interface):
    """Decides on single writes what authorization, which sees no objects, cannot."""

    def admit(change: Change) -> Deferred[None]:
        """
        :return: fires with ``None``, or fails with the
            :class:`~twisted_exec.api.status.APIError` that refuses the change.
        """


class IAPIServer(IService):
    """A running API server."""

    address = Attribute(
        "Where it listens (:class:`~twisted.internet.interfaces.IAddress`); ``None`` until it does."
    )
    url = Attribute("``https://HOST:PORT``, for a kubeconfig; empty until it listens.")

    def when_ready() -> Deferred[None]:
        """Fires when requests are answered; fails with what kept it from starting."""
