"""
Services that run only on the leader, the Lease that names it, and an Event while no election succeeds.

A process that was suspended may still complete a step when it resumes, so a leader's writes should
name the resourceVersion or at least the UID.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds import LEASES
from twisted_exec.kube.election import Election, ILeader, ILeases
from twisted_exec.kube.interfaces import IKubeClient, IObjectClient, Object
from twisted_exec.kube.recorder import Recorder

Make = Callable[[], Sequence[Service]]

EVENT_REASON = "LeaderElectionFailed"
"""Reason of the Event about the Lease when a replica cannot be elected."""


@implementer(ILeases)
class ClientLeases:
    """One Lease of an API server, through a client."""

    def __init__(self, client: IObjectClient, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name

    def get(self) -> Deferred[Object]:
        return self._client.get(LEASES.resource, self._name, self._namespace)

    def create(self, spec: Object) -> Deferred[Object]:
        lease = new_lease(self._namespace, self._name, spec)
        return self._client.create(LEASES.resource, lease, self._namespace)

    def update(self, lease: Object) -> Deferred[Object]:
        return self._client.update(LEASES.resource, lease, self._namespace)


def new_lease(namespace: str, name: str, spec: Object) -> Object:
    """Return a Lease with its metadata."""
    return {
        "apiVersion": LEASES.resource.api_version,
        "kind": LEASES.resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@implementer(ILeader)
class LeaderServices(Service):
    """The services of one term as leader."""

    _log = Logger()

    def __init__(self, make: Make) -> None:
        self._make = make
        self.services: Sequence[Service] = ()

    def startService(self) -> None:
        super().startService()
        self.elected()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self.deposed()

    def elected(self) -> None:
        # New services for each term: state from an earlier term is out of date.
        self.services = self._make()
        for each in self.services:
            try:
                each.startService()
            except Exception:  # the other services can still start
                self._log.failure("{name} cannot start", name=type(each).__name__)

    def deposed(self) -> Deferred[None]:
        services, self.services = self.services, ()
        ending = [maybeDeferred(each.stopService) for each in reversed(services) if each.running]
        return Deferred.fromCoroutine(self._ended(ending))

    async def _ended(self, ending: Sequence[Deferred[None]]) -> None:
        for each in ending:
            try:
                await each
            except Exception:  # the other services must stop, too
                self._log.failure("what the leader did did not end well")


def identity() -> str:
    """Return an identity for this replica, unique also among its earlier runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElected:
    """
    Services that run while this replica leads, with the election.

    :param make: creates the services of one term as leader.
    :param clock: a monotonic clock.
    :param now: seconds since the epoch.
    :param namespace: of the Lease.
    :param lease: name of the Lease, and the component of its Events.
    :param name: of this replica, by default a new one in each run.
    :param when: its Deferred fires when the replica is able to lead.
    """

    def __init__(
        self,
        client: IKubeClient,
        make: Callable[[], Sequence[Service]],
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        namespace: str,
        lease: str,
        name: str = "",
        when: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self._when, self._waiting = when, False
        self._leading = LeaderServices(make)
        leases, name = ClientLeases(client, namespace, lease), name or identity()
        self._recorder = Recorder(
            client, clock, about=LEASES.resource, component=lease, host=name, now=now
        )
        self._about = new_lease(namespace, lease, {})
        # Unknown, because the failure may be that the Lease cannot be read.
        self._about["metadata"]["uid"] = ""
        self._election = Election(
            leases,
            name,
            self._leading,
            clock,
            now,
            lease=f"Lease {namespace}/{lease}",
            on_failure=self._report,
        )

    @property
    def services(self) -> Sequence[Service]:
        """The running services; none while another replica leads."""
        return self._leading.services

    def start(self) -> None:
        """Take part in the election, once ``when`` allows it."""
        self._waiting = True
        self._recorder.start()
        self._when().addCallbacks(self._stand, lambda _: None)  # the failure is reported elsewhere

    def _stand(self, _: object) -> None:
        if self._waiting:
            self._election.startService()

    def _report(self, text: str) -> None:
        self._recorder.record(self._about, "Warning", EVENT_REASON, text)

    def probe(self) -> None:
        """
        Check that this replica can be elected.

        :raises ServiceUnavailable: it has failed for a while, also to read the Lease.
        """
        self._election.probe()

    def stop(self) -> Deferred[None]:
        """Stop the services and release the Lease; fires when both are done."""
        self._waiting = False
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._election.running:
            await self._election.stopService()
        await self._recorder.stop()
