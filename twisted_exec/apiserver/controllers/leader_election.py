"""
Controllers that run on one of the servers that share a store.

The leader is elected with a Lease in the store itself (:mod:`twisted_exec.kube.leases`). A store
with an exclusive lock has one server, and needs no election.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import EVENTS, LEASES
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.serving.client import VerbsClient
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.kube.election import Election
from twisted_exec.kube.leases import EVENT_REASON, ClientLeases, LeaderServices, Make, new_lease
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

NAMESPACE, LEASE = "kube-system", "exec-apiserver"


class LeaderElectedServices(StoreFollower):
    """
    :class:`LeaderServices` with election, for servers that share a store.

    :param identity: this server's unique name.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        make: Make,
        storage: IStorage,
        verbs: Verbs,
        identity: str,
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(storage, clock)
        self._leading = LeaderServices(make)
        client = VerbsClient(verbs, [LEASES, EVENTS])
        self._recorder = Recorder(client, clock, about=LEASES.resource, component=LEASE, now=now)
        self.add_part(self._recorder)
        self.election = Election(
            ClientLeases(client, NAMESPACE, LEASE),
            identity,
            self._leading,
            clock,
            now,
            lease=f"Lease {NAMESPACE}/{LEASE}",
            on_failure=self._report,
        )

    @property
    def services(self) -> Sequence[Service]:
        """The controllers that run now."""
        return self._leading.services

    def probe(self) -> None:
        """
        As :meth:`Election.probe`, but do not fail while the store is unavailable: the store has its
        own check.
        """
        if not isinstance(self.election.failure, ServiceUnavailable):
            self.election.probe()

    def _report(self, text: str) -> None:
        lease = new_lease(NAMESPACE, LEASE, {})
        lease["metadata"]["uid"] = ""  # unknown, because the Lease may not exist
        self._recorder.record(lease, WARNING, EVENT_REASON, text)

    def startService(self) -> None:
        super().startService()
        self.election.startService()

    def stopService(self) -> Deferred[None]:
        stopping = gatherResults([self.election.stopService(), super().stopService()])
        return stopping.addCallback(lambda _: None)

    def followed(self) -> tuple[Followed, ...]:
        return (Followed(LEASES.resource, self._lease_changed, namespace=NAMESPACE),)

    def _lease_changed(self, event: Event) -> None:
        # A deleted Lease is no reason to try at once: its leader works until its next attempt notices.
        if key_of(event.obj) == (NAMESPACE, LEASE) and event.type != DELETED:
            self.election.heard(event.obj)
