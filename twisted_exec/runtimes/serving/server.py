"""
A server with tokens in its URLs: its address, start and stop, and its common routes.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from twisted.application.service import Service
from twisted.internet import unix
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Protocol

from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.iri.server import IRIServer
from twisted_exec.iri.target import TargetError, parse_target
from twisted_exec.iri.unix_gate import prepare_directory, remove_stale
from twisted_exec.program.audit import Trail
from twisted_exec.program.health import Health, Probe
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.listening import LISTENING, listen_unix, stop_unix_port
from twisted_exec.program.metrics import CONTENT_TYPE, new_registry
from twisted_exec.program.service import AsyncService
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.session_metrics import SessionMetrics
from twisted_exec.runtimes.serving.options import Listening, unix_path
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_text
from twisted_exec.streaming.http.routes import Routes, respond_ready
from twisted_exec.streaming.http.session_requests import FurtherRequest
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.rejoinable_transport import RejoinableTransports
from twisted_exec.streaming.sessions.guard import STOPPING
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.tls.endpoints import server_endpoint, unix_client_endpoint
from twisted_exec.tls.fast.transport import accept_unbuffered
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.unix import peer_uid

STREAM_SOCKET = "stream.sock"

_MAX_BODY_BYTES = 64 << 10

REJOIN_SECONDS = 30
"""Default time that a stream waits when a hop before the runtime is lost."""

RESUME_SECONDS = 60
"""Default time that a session waits for its user after the loss of a connection."""


class SocketRoutes(Dispatcher):
    """The routes of a socket, for users who may use it."""

    def __init__(self, server: TokenServer, allowed_uids: Collection[int] = ()) -> None:
        super().__init__()
        self._server = server
        self._allowed = {0, os.getuid(), *allowed_uids}
        self._routes = Routes()

    async def dispatch(self, request: Request) -> None:
        self._check_peer(request)
        await self._routes.dispatch(request)

    def _check_peer(self, request: Request) -> None:
        transport = request.channel.transport
        plug = getattr(transport, "getHandle", lambda: None)()
        if getattr(plug, "family", None) == socket.AF_UNIX:
            uid = peer_uid(transport)
            if uid not in self._allowed:
                raise Forbidden(f"user {uid} may not open consoles on this socket")


class ServerRoutes(SocketRoutes):
    """The routes of every public server: probes and metrics."""

    def __init__(self, server: TokenServer) -> None:
        super().__init__(server, server.listening.allowed_uids)
        self._routes.add(["GET"], "/healthz", self._healthz)
        self._routes.add(["GET"], "/livez", self._healthz)
        self._routes.add(["GET"], "/readyz", self._readyz)
        self._routes.add(["GET"], "/metrics", self._metrics)

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _readyz(self, request: Request, names: Mapping[str, str]) -> None:
        await respond_ready(request, self._server.health)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        respond(request, 200, await self._server.registry.scrape(), CONTENT_TYPE)


def header_text(request: Request | FurtherRequest, header: bytes) -> str:
    """
    Decode a percent-encoded header; return an empty text if it is missing.

    :raises NotFound: the header occurs twice, or is not percent-encoded UTF-8.
    """
    values: Sequence[bytes] = request.requestHeaders.getRawHeaders(header, [])
    if not values:
        return ""
    try:
        (value,) = values
        return unquote(value.decode("ascii"), errors="strict")
    except ValueError:
        raise NotFound("exec", "", message=f"header {header.decode()} cannot be read") from None


class TokenServer(Service):
    """
    A server with tokens in its URLs; subclasses add the routes.

    :param hop: name of this hop in audit records.
    :param program: name of the program, for users whose sessions end because it stops.
    :param drain_seconds: longest time for the last messages to sessions.
    :param rejoin_seconds: how long the stream of a client that cannot resume its session waits when
        its connection is lost; 0 to end it.
    :ivar health: the probes of ``/readyz``; the owner adds them.
    """

    def __init__(
        self,
        listening: Listening,
        audit: IAuditSink,
        reactor: Any,
        *,
        hop: str,
        program: str,
        drain_seconds: float = 1.5,
        limits: SessionLimits | None = None,
        rejoin_seconds: int = REJOIN_SECONDS,
    ) -> None:
        self.listening = listening
        self.streams = RejoinableTransports(reactor, rejoin_seconds)
        self.health = Health(reactor)
        self.registry = new_registry(reactor)
        self.sessions = Sessions(Trail(audit, hop, reactor), SessionMetrics(self.registry), limits)
        RoundTripMetrics(self.registry, self.sessions)
        self._reactor, self._program, self._drain_seconds = reactor, program, drain_seconds
        self._site = Site(
            self.make_routes(),
            reactor,
            max_body_bytes=_MAX_BODY_BYTES,
            fitting=self.sessions.connections_beside,
            spare_seconds=lambda _: (
                0.0
            ),  # clients have no certificate: a poollet dials again after it
        )
        self._port: IListeningPort | None = None
        self._base_url = ""

    def make_routes(self) -> ServerRoutes:
        """Create the routes; called once, during construction."""
        return ServerRoutes(self)

    @property
    def clock(self) -> Any:
        return self._reactor

    def exec_url(self, token: str) -> str:
        return f"{self._base_url.rstrip('/')}/exec/{token}"

    def log_url(self, token: str) -> str:
        return f"{self._base_url.rstrip('/')}/log/{token}"

    def recording_url(self, token: str) -> str:
        return f"{self._base_url.rstrip('/')}/recording/{token}"

    async def listen(self) -> None:
        """
        Start to serve.

        :raises TargetError: the address needs a certificate or a base URL, or its path cannot be
            used.
        :raises TLSConfigError: the address is not valid, or its certificate cannot be loaded.
        :raises CannotListenError: the address is in use or not of this host.
        """
        listening = self.listening
        if listening.address.startswith("unix:"):
            path = unix_path(listening.address)
            self._port = await self._listen_unix(path)
            self._base_url = listening.base_url or f"http+unix://{quote(path, safe='')}"
        else:
            port = await self._listen_tcp()
            self._base_url = listening.base_url or await self._own_url(port)
            self._port = port

    async def _listen_unix(self, path: str) -> IListeningPort:
        uids = self.listening.allowed_uids
        shared = bool(set(uids) - {0, os.getuid()})
        prepare_directory(os.path.dirname(path), shared=shared)
        remove_stale(path)
        # Each user can connect to a shared socket; _check_peer refuses those who may not use it.
        mode = 0o666 if shared else 0o600
        port = listen_unix(self._reactor, path, self._site, mode)
        accept_unbuffered(port)
        return port

    async def _listen_tcp(self) -> IListeningPort:
        listening = self.listening
        tls = None
        if listening.certificate:
            tls = ServerTLS(listening.certificate, listening.key, clock=self._reactor)
        port = await server_endpoint(self._reactor, listening.address, tls, LISTENING).listen(
            self._site
        )
        if tls is None and not _is_loopback(port.getHost().host):  # type: ignore[attr-defined]
            await maybeDeferred(port.stopListening)
            raise TargetError(
                f"{listening.address}: without a certificate consoles are served on loopback only"
            )
        return port

    async def _own_url(self, port: Any) -> str:
        host, number = port.getHost().host, port.getHost().port
        if ipaddress.ip_address(host).is_unspecified:
            await maybeDeferred(port.stopListening)
            raise TargetError(
                f"{self.listening.address}: a server on all addresses needs a base URL for its clients"
            )
        scheme = "https" if self.listening.certificate else "http"
        return f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"

    def stopService(self) -> Deferred[None]:
        """:return: fires when no session is left."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self.sessions.close(STOPPING)
        port, self._port = self._port, None
        if isinstance(port, unix.Port):
            await stop_unix_port(port)
        elif port is not None:
            await maybeDeferred(port.stopListening)
        self._site.drain()
        await self.sessions.drain(self._reactor, self._drain_seconds, self._program)


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


class StreamHost(AsyncService):
    """
    Runs a stream server and the machine runtime interface.

    :ivar iri: serves the runtime interface; ``iri.target`` is its address, once it is ready.
    """

    streams: TokenServer
    iri: IRIServer

    def __init__(
        self, settings: Any, reactor: Any, checks: Sequence[Callable[[], object]] = ()
    ) -> None:
        super().__init__()
        self.settings, self._reactor, self._checks = settings, reactor, checks
        self._listening = replace(settings.streaming, allowed_uids=settings.allowed_uids)

    def _serve(self, runtime: Any, **probes: Probe) -> None:
        settings = self.settings
        self.iri = IRIServer(
            runtime,
            parse_target(settings.iri_target),
            self._reactor,
            tls=settings.iri_tls,
            revision=settings.iri_revision,
            allowed_uids=settings.allowed_uids,
        )
        for name, probe in {**probes, "iri": self._probe_iri}.items():
            self.streams.health.add(name, probe)

    def _check(self) -> None:
        for check in self._checks:
            check()

    async def _listen(self, directory: Callable[[], str]) -> None:
        if not self.streams.listening.address:
            path = os.path.join(directory(), STREAM_SOCKET).replace(":", "\\:")
            self.streams.listening = replace(self.streams.listening, address=f"unix:{path}")
        await self.streams.listen()

    def _serve_iri(self) -> None:
        self.iri.startService()
        self._log.info(
            "{label} at {target}, consoles at {streams}",
            label=self.label,
            target=self.iri.target,
            streams=self.streams.exec_url(""),
        )

    async def _stop_iri(self) -> None:
        if self.iri.running:
            await self.iri.stopService()

    async def _probe_iri(self) -> None:
        target = self.iri.target
        if target.is_unix:
            endpoint: Any = unix_client_endpoint(self._reactor, target.path)
        else:
            endpoint = HostnameEndpoint(self._reactor, _reachable(target.host), target.port)
        connection: Any = await connectProtocol(endpoint, Protocol())
        connection.transport.abortConnection()


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
