"""
Interfaces of the poollet.
"""

from __future__ import annotations

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from zope.interface import Attribute


class IPoollet(IService):
    """A running poollet."""

    pool = Attribute("The name of the pool that it serves (str).")
    address = Attribute(
        "Where it listens (:class:`~twisted.internet.interfaces.IAddress`); ``None`` until it does."
    )

    def when_ready() -> Deferred[None]:
        """
        Return a Deferred that fires when the poollet listens and its pool is registered.

        It fails with the error that kept the poollet from listening.
        """
