"""The node server as a Twisted service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.delegated import DelegatedAuthenticator, DelegatedAuthorizer
from twisted_exec.auth.gate import users_of
from twisted_exec.auth.interfaces import IAuthenticator, IAuthorizer
from twisted_exec.auth.permission_watch import PermissionWatch
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.certificate import NodeCertificate
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, IRootPods
from twisted_exec.nodeserver.kubelet_api.gate import NamedCertificateAuthenticator, NodeAccess
from twisted_exec.nodeserver.kubelet_api.routes import HOP, KubeletCollaborators, NodeRoutes, Route
from twisted_exec.nodeserver.recordings.options import MakeRecordings
from twisted_exec.nodeserver.settings import USERS_SHARE, Settings
from twisted_exec.program.audit import Trail
from twisted_exec.program.health import Health
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.routes import ProbeRoutes
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.interfaces import POOL_DELETED, Ending
from twisted_exec.streaming.sessions.endings import POD_ENDINGS, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import SessionGuard
from twisted_exec.streaming.sessions.idleness import Idleness
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.tls.endpoints import address_text, server_endpoint
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.server import ServerTLS

__all__ = ["NodeServer", "ServerPart", "Settings"]

MAX_BODY_BYTES = 64 << 10
"""Limit of a request's body."""

STOPPING = f"{PROGRAM} is restarting"

Make = Callable[[KubeletCollaborators], Iterable[Route]]
"""Creates routes from their collaborators."""


class Endings:
    """
    Ends the sessions of Pods that are gone in the root, and of Nodes that no longer stand for their
    leaf.
    """

    def __init__(self, guard: SessionGuard, root_pods: IRootPods, leaves: ILeaves) -> None:
        self._guard, self._root_pods, self._leaves = guard, root_pods, leaves
        self._leaf_of: dict[str, ILeaf] = {}
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        self._leaf_of = self._current()
        self._ends = [
            self._root_pods.follow(self._pod_changed),
            self._leaves.follow(self._leaves_changed),
        ]

    def stop(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _current(self) -> dict[str, ILeaf]:
        return {name: self._leaves.get(node.leaf) for name, node in self._leaves.nodes().items()}

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        ending = POD_ENDINGS.machine_ending(before, after)
        if ending is not None and before is not None:
            self._guard.end(MachineKey(before["metadata"]["uid"]), ending)

    def _leaves_changed(self) -> None:
        before, self._leaf_of = self._leaf_of, self._current()
        for node, leaf in before.items():
            if self._leaf_of.get(node) is not leaf:
                why = f": {leaf.gone}" if leaf.gone else ""
                message = f'node "{node}" does not stand for leaf "{leaf.name}" now{why}'
                self._guard.end(PoolKey(node), Ending(POOL_DELETED, message))


class ServerPart(Protocol):
    """A service beside the server, such as the registry of leaves."""

    def start(self) -> object:
        """Start."""

    def stop(self) -> object:
        """Stop; the server waits for the Deferred, if there is one."""


class NodeServer(AsyncService):
    """
    Answers the API server of a root as a kubelet does.

    :param parts: started once the server listens, and stopped in reverse order after the sessions.
    :param authorizer: replaces SubjectAccessReviews to the root.
    :param checks: called at the start; an exception prevents it.
    """

    label = "the node server"
    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        client: IKubeClient,
        leaves: ILeaves,
        root_pods: IRootPods,
        audit: IAuditSink,
        reactor: Any,
        *,
        make: Sequence[Make] = (),
        parts: Sequence[ServerPart] = (),
        authorizer: IAuthorizer | None = None,
        recordings: MakeRecordings | None = None,
        checks: Sequence[Callable[[], object]] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.settings, self.address = settings, None
        self._client, self._leaves, self._root_pods = client, leaves, root_pods
        self._reactor, self._checks = reactor, checks
        self._parts = parts
        self._ports: list[IListeningPort] = []
        self._is_stopping = False
        self._certified = X509Authenticator(settings.client_ca, reactor)
        self.registry = new_registry(reactor)
        self.sessions = Sessions(
            Trail(audit, HOP, reactor),
            SessionMetrics(self.registry),
            settings.sessions or SessionLimits.fitting(users_share=USERS_SHARE),
        )
        RoundTripMetrics(self.registry, self.sessions)
        self._recordings = recordings and recordings(reactor, self.registry)
        if self._recordings is not None:
            self._parts = [*parts, self._recordings]
            self._checks = [*checks, self._recordings.check]
        rights = authorizer or DelegatedAuthorizer(client, reactor)
        access = NodeAccess(self._authenticator(), rights)
        self.collaborators = KubeletCollaborators(
            access,
            root_pods,
            leaves,
            self.sessions,
            reactor,
            requires_reason=settings.requires_reason,
            recordings=self._recordings,
        )
        routes = NodeRoutes(
            self.collaborators,
            self.registry,
            [route for make_routes in make for route in make_routes(self.collaborators)],
        )
        self.site = Site(
            routes,
            reactor,
            max_body_bytes=MAX_BODY_BYTES,
            fitting=self.sessions.connections_beside,
        )
        self.permissions = PermissionWatch(
            client, reactor, self.registry, partial(users_of, self.sessions)
        )
        self.guard = SessionGuard(
            self.sessions,
            access.gate,
            reactor,
            files=access.gate.files,
            on_review=self.permissions.want,
        )
        self.permissions.changed = self.guard.review_soon
        if isinstance(rights, DelegatedAuthorizer):
            self.permissions.forget = rights.forget
        self._idleness = Idleness(self.sessions, reactor, settings.stream_idle_seconds)
        self._endings = Endings(self.guard, root_pods, leaves)
        self.serving = self._certificate(now) if settings.certificate_directory else None
        self._make_health()

    address: IAddress | None
    """The listening address, once known."""
    health_address: IAddress | None = None

    def _authenticator(self) -> IAuthenticator:
        certified: IAuthenticator = self._certified
        if self.settings.client_names:
            certified = NamedCertificateAuthenticator(certified, self.settings.client_names)
        return UnionAuthenticator([certified, DelegatedAuthenticator(self._client, self._reactor)])

    def _certificate(self, now: Callable[[], float]) -> NodeCertificate:
        return NodeCertificate(
            self._client,
            self._reactor,
            directory=self.settings.certificate_directory,
            node=lambda: min(self._leaves.nodes(), default=""),
            now=now,
        )

    def _make_health(self) -> None:
        self.health = Health(self._reactor)
        self.health.add("serving", self._probe_serving)
        self.health.add("root", lambda: Deferred.fromCoroutine(self._probe_root()))
        self.health.add("leaves", lambda: _known(self._leaves, "the leaf clusters"))
        self.health.add("pods", lambda: _known(self._root_pods, "the root's Pods"))
        if self.serving is not None:
            self.health.add("certificate", self._probe_certificate)

    def _probe_serving(self) -> None:
        if self._is_stopping or self.address is None:
            raise ServiceUnavailable(STOPPING if self._is_stopping else "not listening yet")

    async def _probe_root(self) -> None:
        try:
            await self._client.get(NODES.resource, min(self._leaves.nodes(), default=HOP))
        except APIError as error:
            if error.code not in (NotFound.code, Forbidden.code):  # any answer shows it works
                raise

    def _probe_certificate(self) -> None:
        if self.serving is not None and self.serving.problem:
            raise ServiceUnavailable(self.serving.problem)

    async def start(self) -> None:
        for check in self._checks:
            check()
        self._is_stopping = False
        try:
            self._certified.load()
        except TLSConfigError as problem:
            raise TLSConfigError(f"--client-ca-file: {problem}") from None
        settings, tls = self.settings, self._tls()
        if settings.health_listen:
            health = ProbeRoutes(self.health)
            self.health_address = await self._listen(settings.health_listen, health)
        self.address = await self._listen(settings.listen, self.site, tls)
        self._log.info("serving Nodes at {place}", place=address_text(self.address))
        for part in self._parts:
            part.start()
        self.guard.startService()
        self._idleness.start()
        self._endings.start()
        if self.serving is not None:
            self.serving.start(settings.names)

    def _tls(self) -> ServerTLS:
        settings = self.settings
        certificate, key = settings.certificate, settings.key
        if self.serving is not None:
            self.serving.prepare()
            certificate, key = self.serving.certificate, self.serving.key
        tls = ServerTLS(certificate, key, client_cas=[settings.client_ca], clock=self._reactor)
        try:
            tls.load()
        except TLSConfigError as problem:
            raise TLSConfigError(f"no serving certificate: {problem}") from None
        return tls

    async def _listen(
        self, place: str, served: Site | Dispatcher, tls: ServerTLS | None = None
    ) -> IAddress:
        if isinstance(served, Dispatcher):
            served = Site(served, self._reactor, max_body_bytes=MAX_BODY_BYTES)
        port = await server_endpoint(self._reactor, place, tls, LISTENING).listen(served)
        self._ports.append(port)
        return port.getHost()

    async def stop(self) -> None:
        """End all sessions with a message, then stop everything else."""
        self._is_stopping = True
        if self.address is not None and self.settings.shutdown_delay_seconds:
            await deferLater(self._reactor, self.settings.shutdown_delay_seconds)
        self.sessions.close(STOPPING)
        ports, self._ports = self._ports, []
        for port in reversed(ports):
            await maybeDeferred(port.stopListening)
        self.site.drain()
        await self.sessions.drain(self._reactor, self.settings.drain_seconds, PROGRAM)
        self._endings.stop()
        await self.guard.stopService()
        await self.permissions.stop()
        await self._idleness.stop()
        if self.serving is not None:
            await self.serving.stop()
        for part in reversed(self._parts):
            await maybeDeferred(part.stop)
        self.address = self.health_address = None


def _known(copy: ILeaves | IRootPods, what: str) -> None:
    if not copy.synced:
        raise ServiceUnavailable(f"{what} are not known yet")
