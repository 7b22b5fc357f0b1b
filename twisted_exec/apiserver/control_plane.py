"""
The control plane of a server: the differences between a standalone and an aggregated one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from twisted_exec.api.kinds import Kind
from twisted_exec.apiserver.interfaces import IAdmission, Strictness
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.registry import KindRegistry
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer, User
from twisted_exec.control.metrics import WorkQueueMetrics
from twisted_exec.program.health import Health
from twisted_exec.storage.interfaces import IStorage


class ControlPlane(Protocol):
    """
    The differences between a standalone and an aggregated server.

    :ivar storage: holds the served objects, and others that the server reads.
    :ivar garbage_collection: a garbage collector handles the dependents of deleted objects.
    """

    storage: IStorage
    kinds: Sequence[Kind]
    garbage_collection: bool

    @property
    def authenticator(self) -> IAuthenticator:
        """Authenticates requests."""

    @property
    def authorizer(self) -> IAuthorizer:
        """Authorizes users."""

    @property
    def admissions(self) -> Sequence[IAdmission]:
        """Admission for each write, after the restrictions."""

    def on_permission_change(
        self, callback: Callable[[], None], users: Callable[[], Iterable[User]]
    ) -> None:
        """Call ``callback`` whenever a user may have lost a permission."""

    def observe_permissions(self) -> None:
        """Begin to observe changes; called while there are sessions."""

    def followers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        """Return the services that follow the store on each server, to be started after it."""

    def leader_controllers(
        self,
        registry: KindRegistry,
        verbs: Verbs,
        reactor: Any,
        now: Callable[[], float],
        metrics: WorkQueueMetrics,
    ) -> list[Service]:
        """Return the controllers that run on the leader only; called for each term."""

    def views(self) -> list[tuple[Kind, IStorage]]:
        """Kinds that show stored objects of another kind, each with a store that converts them."""

    def add_to(
        self,
        routes: GatedRoutes,
        gate: Gate,
        strictness: Callable[[str, User], Strictness],
        queue: FairQueue,
    ) -> None:
        """
        Add further routes.

        :param strictness: returns that of the verbs of consoles in a namespace.
        :param queue: for the decoding of large bodies.
        """

    def add_probes(self, health: Health) -> None:
        """Add health checks besides the store's."""

    @property
    def client_cas(self) -> Sequence[str]:
        """Paths of the CAs of acceptable client certificates."""

    @property
    def published_cas(self) -> Callable[[], bytes] | None:
        """Further CAs as PEM that may change, if there are any."""

    def load(self) -> None:
        """
        Read the files now.

        :raises TLSConfigError: a file is unusable.
        """

    async def prepare(self, verbs: Verbs) -> None:
        """Create or read what serving depends on; the store is ready."""

    def when_prepared(self) -> Deferred[None]:
        """Fires when requests can be authenticated; the followers have started."""

    def close(self) -> Deferred[Any]:
        """Close connections; fires when all are closed.  The followers were stopped before."""
