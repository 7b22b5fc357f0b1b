"""
Doors of the poollet.
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
        Fires when it listens and its pool is registered; fails with what kept
        it from listening.
        """
