"""
Controllers that run on one of the servers that share a store.

The leader is elected with a Lease in the store itself (:mod:`twisted_exec.kube.leases`). A store
with an exclusive lock has one server, and needs no election.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds import LEASES, Object
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers.event_recorder import OURSELVES, WARNING, Reports
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.kube.interfaces import ILeases
from twisted_exec.kube.leases import EVENT_REASON, Election, LeaderServices, Make, new_lease
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

NAMESPACE, LEASE = "kube-system", "exec-apiserver"

_OPTIONS = WriteOptions(manager=MANAGER)


@implementer(ILeases)
class StoredLease:
    """The Lease of the servers that share this store."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._target = RequestTarget(LEASES, NAMESPACE, LEASE)

    def get(self) -> Deferred[Object]:
        return Deferred.fromCoroutine(self._verbs.get(self._target))

    def create(self, spec: Object) -> Deferred[Object]:
        lease = new_lease(NAMESPACE, LEASE, spec)
        making = self._verbs.create(OURSELVES, RequestTarget(LEASES, NAMESPACE), lease, _OPTIONS)
        return Deferred.fromCoroutine(making)

    def update(self, lease: Object) -> Deferred[Object]:
        writing = self._verbs.update(OURSELVES, self._target, lease, _OPTIONS)
        return Deferred.fromCoroutine(writing)


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
        **terms: Any,
    ) -> None:
        super().__init__(storage, clock)
        self._leading = LeaderServices(make)
        self._reports = Reports(verbs, LEASE, now)
        self.election = Election(
            StoredLease(verbs),
            identity,
            self._leading,
            clock,
            now,
            lease=f"Lease {NAMESPACE}/{LEASE}",
            on_failure=self._report,
            **terms,
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
        Deferred.fromCoroutine(self._reports.tell(LEASES, lease, WARNING, EVENT_REASON, text))

    def startService(self) -> None:
        super().startService()
        self.election.startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self.election.stopService()

    def followed(self) -> tuple[Followed, ...]:
        return (Followed(LEASES.resource, self._changed, namespace=NAMESPACE),)

    def _changed(self, event: Event) -> None:
        if key_of(event.obj) == (NAMESPACE, LEASE) and event.type != DELETED:
            self.election.heard(event.obj)
