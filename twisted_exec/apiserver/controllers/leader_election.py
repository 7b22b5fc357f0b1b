"""
What one server does for all that share a store.

Followers of the store are of two sorts.  Those that keep a server's own view, or its own sessions, run
on each (rules, restrictions, endings, the objects of sessions, Pods).  Those that write what nobody asked
for (scheduler, signer, namespaces, heartbeats, expiry of Events, gathered rules) would do on several
servers the same thing several times, so they run on the one that leads: :mod:`twisted_exec.kube.leader_election.election`
by a Lease of the store itself.

None of them needs to run without a pause, and none needs to have run before: each takes up what there
is.  So a server that died costs its loops a lease's time: machines wait that long for a pool, requests
for their certificate.  Silence of pools is counted anew by whoever leads next, so a pool may
be told of that much later, and never too early.

They are made anew for each term: what a server knew when it led last has changed since.

A store that locks others out has one server by construction.  There nobody is elected: that would
only make a server that was killed wait for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds import LEASES, Object
from twisted_exec.apiserver.controllers.event_recorder import OURSELVES
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import Target, Verbs
from twisted_exec.kube.interfaces import ILeases
from twisted_exec.kube.leader_election.controllers import Leading, Make
from twisted_exec.kube.leader_election.election import Election, new_lease
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

NAMESPACE, LEASE = "kube-system", "exec-apiserver"

_OPTIONS = WriteOptions(manager=MANAGER)


@implementer(ILeases)
class StoredLease:
    """The Lease of this store's servers."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._target = Target(LEASES, NAMESPACE, LEASE)

    def get(self) -> Deferred[Object]:
        """As :meth:`ILeases.get`."""
        return Deferred.fromCoroutine(self._verbs.get(self._target))

    def create(self, spec: Object) -> Deferred[Object]:
        """As :meth:`ILeases.create`."""
        lease = new_lease(NAMESPACE, LEASE, spec)
        making = self._verbs.create(OURSELVES, Target(LEASES, NAMESPACE), lease, _OPTIONS)
        return Deferred.fromCoroutine(making)

    def update(self, lease: Object) -> Deferred[Object]:
        """As :meth:`ILeases.update`."""
        writing = self._verbs.update(OURSELVES, self._target, lease, _OPTIONS)
        return Deferred.fromCoroutine(writing)


class LeaderElectedServices(StoreFollower):
    """
    :class:`Leading` where several servers share a store.

    :param storage: started before this service is.
    :param verbs: without admissions.
    :param identity: what this server is called; no two may be called the same.
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
        super().__init__(storage)
        self._leading = Leading(make)
        self.election = Election(StoredLease(verbs), identity, self._leading, clock, now, **terms)

    @property
    def services(self) -> Sequence[Service]:
        """Those that run."""
        return self._leading.services

    def startService(self) -> None:
        """Stand for election."""
        super().startService()
        self.election.startService()

    def stopService(self) -> Deferred[None]:
        """Lead no longer, and let others."""
        super().stopService()
        return self.election.stopService()

    def followed(self) -> tuple[Followed, ...]:
        """See :meth:`StoreFollower.followed`."""
        return (Followed(LEASES.resource, self._changed, namespace=NAMESPACE),)

    def _changed(self, event: Event) -> None:
        if key_of(event.obj) == (NAMESPACE, LEASE) and event.type != DELETED:
            self.election.heard(event.obj)
