"""
Which of several replicas acts for all, and what it does then.

The one acts that holds a Lease; it lets go of it when it stops.  What it does is made anew for each term.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed

from twisted_exec.kube.election import ClientLeases, Election
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.leading import Leading


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
