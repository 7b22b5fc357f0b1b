"""
Which of several replicas acts for all, and what it does then.

The one acts that holds a Lease; it lets go of it when it stops.  What it does is made anew for each term.

Services that run as long as somebody leads, see :mod:`.election`.

They are made anew for each term: what a program knew when it led last has changed since.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.kube.interfaces import IKubeClient, ILeader
from twisted_exec.kube.leader_election.election import ClientLeases, Election

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


def identity() -> str:
    """What one replica is called: no two at the same time, nor one after another."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Acting:
    """
    Services that run while this replica leads.

    :param client: of the cluster that has the Lease.
    :param make: makes them anew.
    :param now: seconds since the epoch.
    :param name: see :func:`identity`.
    :param when: fires when there is anything to lead with; until then it does not stand.
    """

    def __init__(
        self,
        client: IKubeClient,
        make: Callable[[], Sequence[Service]],
        clock: Any,
        now: Callable[[], float],
        *,
        namespace: str,
        lease: str,
        name: str = "",
        when: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self._when, self._waiting = when, False
        self._leading = Leading(make)
        leases = ClientLeases(client, namespace, lease)
        self._election = Election(leases, name or identity(), self._leading, clock, now)

    @property
    def services(self) -> Sequence[Service]:
        """Those that run; none while another replica leads."""
        return self._leading.services

    def start(self) -> None:
        """Stand for election, as soon as may be."""
        self._waiting = True
        self._when().addCallbacks(self._stand, lambda _: None)  # who cannot start says so itself

    def _stand(self, _: object) -> None:
        if self._waiting:
            self._election.startService()

    def stop(self) -> Deferred[None]:
        """Act no longer, and let others; fires when that is so."""
        self._waiting = False
        return self._election.stopService() if self._election.running else succeed(None)
