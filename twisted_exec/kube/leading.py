"""
Services that run as long as somebody leads, see :mod:`.election`.

They are made anew for each term: what a program knew when it led last has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.kube.interfaces import ILeader

Make = Callable[[], Sequence[Service]]


@implementer(ILeader)
class Leading(Service):
    """
    Services that run as long as this one does, or as long as it is elected.

    :param make: makes them anew.
    :ivar services: those that run.
    """

    _log = Logger()

    def __init__(self, make: Make) -> None:
        self._make = make
        self.services: Sequence[Service] = ()

    def startService(self) -> None:
        """Lead."""
        super().startService()
        self.elected()

    def stopService(self) -> Deferred[None]:
        """Lead no longer."""
        super().stopService()
        return self.deposed()

    def elected(self) -> None:
        """As :meth:`ILeader.elected`."""
        self.services = self._make()
        for each in self.services:
            try:
                each.startService()
            except Exception:  # the others are no worse for it
                self._log.failure("{name} cannot start", name=type(each).__name__)

    def deposed(self) -> Deferred[None]:
        """As :meth:`ILeader.deposed`."""
        services, self.services = self.services, ()
        ending = [maybeDeferred(each.stopService) for each in reversed(services) if each.running]
        return Deferred.fromCoroutine(self._ended(ending))

    async def _ended(self, ending: Sequence[Deferred[None]]) -> None:
        for each in ending:
            try:
                await each
            except Exception:  # the others end, too
                self._log.failure("what the leader did did not end well")
