"""
Where consoles are opened: ``/exec/TOKEN``, one WebSocket for one token.

The token is all that is needed to open a console here, so it is looked at last: a request that is
no complete handshake (a probe, a link preview, a client with other protocols) is answered without it.
Whoever opened a console may have it ended with a reason, by ``DELETE`` of the same path; that
is how a reason travels from an API server to the user.

:class:`StreamServer` serves any attachment for a token; a runtime of one's own needs no more than
that and :class:`~twisted_exec.iri.server.IRIServer`.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from twisted.application.service import Service
from twisted.internet import unix
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import UNIXServerEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IListeningPort
from zope.interface import implementer

from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.iri.gate import prepare_directory, remove_stale, stop_unix_port
from twisted_exec.iri.request_cache import Grant, RequestCache, Reservation
from twisted_exec.iri.target import TargetError
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.health import Health
from twisted_exec.observe.interfaces import IAuditSink
from twisted_exec.observe.metrics import CONTENT_TYPE, SessionMetrics, metrics_text, new_registry
from twisted_exec.streaming.interfaces import (
    SHUTTING_DOWN,
    Ending,
    IAttachment,
    IAttachmentTransport,
    Subject,
    TerminalSize,
)
from twisted_exec.streaming.negotiation import choose_protocol
from twisted_exec.streaming.remotecommand import serve
from twisted_exec.streaming.routes import Routes
from twisted_exec.streaming.sessions import Session as LiveSession
from twisted_exec.streaming.sessions import Sessions, forwarded_session_id, parse_ending
from twisted_exec.streaming.site import (
    Dispatcher,
    Request,
    Site,
    respond,
    respond_json,
    respond_text,
)
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS
from twisted_exec.tls.transport import accept_at_once
from twisted_exec.tls.unix import checked_socket_path, peer_uid

USER_HEADER = b"X-Twisted-Exec-User"
UID_HEADER = b"X-Twisted-Exec-Machine-Uid"

_CLIENT_LEFT = 499
_MAX_BODY_BYTES = 64 << 10

Attach = Callable[[Grant], "tuple[Subject, IAttachment]"]
"""
What a token leads to: what is known of the machine (namespace, machine, uid) and a fresh
attachment.  Raises :class:`~twisted_exec.api.status.APIError` when there is none.
"""


@dataclass(frozen=True)
class Listening:
    """
    Where a stream server listens.

    :param address: ``unix:PATH``, or a Twisted endpoint string for TCP.
    :param base_url: how others reach it, for exec URLs; empty means as it listens.
    :param certificate: PEM file; TCP needs one, but for a loopback address.
    :param key: its private key.
    :param allowed_uids: users besides root and our own that may use a UNIX socket.
    """

    address: str
    base_url: str = ""
    certificate: str = ""
    key: str = ""
    allowed_uids: Sequence[int] = ()


class StreamServer(Service):
    """
    Serves consoles for tokens.

    :param attach: see :data:`Attach`.
    :param cache: the tokens; whoever answers Exec puts them there.
    :param drain_seconds: how long sessions may take to end when it stops.
    :ivar sessions: those that are live.
    :ivar health: ``/readyz`` asks it; probes are its user's business.
    """

    def __init__(
        self,
        listening: Listening,
        attach: Attach,
        cache: RequestCache,
        audit: IAuditSink,
        reactor: Any,
        *,
        drain_seconds: float = 5.0,
    ) -> None:
        self.listening, self.cache = listening, cache
        self.health = Health(reactor)
        self.registry = new_registry()
        trail = Trail(audit, "runtime", reactor)
        self.sessions = Sessions(trail, SessionMetrics(self.registry))
        self._reactor, self._drain_seconds = reactor, drain_seconds
        self._site = Site(StreamRoutes(self, attach), reactor, max_body_bytes=_MAX_BODY_BYTES)
        self._port: IListeningPort | None = None
        self._base_url = ""

    @property
    def clock(self) -> Any:
        return self._reactor

    def exec_url(self, token: str) -> str:
        """The URL of a console, once the server listens."""
        return f"{self._base_url.rstrip('/')}/exec/{token}"

    async def listen(self) -> None:
        """
        Begin to serve.

        :raises TargetError: the address cannot be used as given.
        :raises TLSConfigError: it is none, or its certificate cannot be loaded.
        :raises CannotListenError: it cannot be had.
        """
        listening = self.listening
        if listening.address.startswith("unix:"):
            path = unix_path(listening.address)
            self._port = await self._listen_unix(path)
            self._base_url = listening.base_url or f"http+unix://{quote(path, safe='')}"
        else:
            self._port = await self._listen_tcp()
            self._base_url = listening.base_url or self._own_url(self._port)

    async def _listen_unix(self, path: str) -> IListeningPort:
        uids = self.listening.allowed_uids
        shared = bool(set(uids) - {0, os.getuid()})
        prepare_directory(os.path.dirname(path), shared=shared)
        remove_stale(path)
        mode = 0o666 if shared else 0o600
        endpoint = UNIXServerEndpoint(self._reactor, path, mode=mode, wantPID=0)
        port: IListeningPort = await endpoint.listen(self._site)
        accept_at_once(port)
        return port

    async def _listen_tcp(self) -> IListeningPort:
        listening = self.listening
        tls = None
        if listening.certificate:
            tls = ServerTLS(listening.certificate, listening.key, clock=self._reactor)
        port = await server_endpoint(self._reactor, listening.address, tls).listen(self._site)
        if tls is None and not _is_loopback(port.getHost().host):  # type: ignore[attr-defined]
            await maybeDeferred(port.stopListening)
            raise TargetError(
                f"{listening.address}: without a certificate consoles are served on loopback only"
            )
        return port

    def _own_url(self, port: Any) -> str:
        """
        :raises TargetError: it listens on all addresses, so none is *the* address.
        """
        host, number = port.getHost().host, port.getHost().port
        if ipaddress.ip_address(host).is_unspecified:
            port.stopListening()
            raise TargetError(
                f"{self.listening.address}: which address others reach must be told (the base URL)"
            )
        scheme = "https" if self.listening.certificate else "http"
        return f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"

    def stopService(self) -> Deferred[None]:
        """End the sessions, saying so; fires when nothing is left."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        port, self._port = self._port, None
        if isinstance(port, unix.Port):
            await stop_unix_port(port)
        elif port is not None:
            await maybeDeferred(port.stopListening)
        self._site.drain()
        ending = Ending(SHUTTING_DOWN, "the machine runtime is shutting down")
        await self.sessions.drain(self._reactor, self._drain_seconds, ending)


class StreamRoutes(Dispatcher):
    """The resource of a stream server."""

    def __init__(self, server: StreamServer, attach: Attach) -> None:
        super().__init__()
        self._server, self._attach = server, attach
        self._cache, self._sessions = server.cache, server.sessions
        self._allowed = {0, os.getuid(), *server.listening.allowed_uids}
        self._routes = Routes()
        self._routes.add(["GET", "POST"], "/exec/{token}", self._exec)
        self._routes.add(["DELETE"], "/exec/{token}", self._end)
        self._routes.add(["GET"], "/healthz", self._healthz)
        self._routes.add(["GET"], "/livez", self._healthz)
        self._routes.add(["GET"], "/readyz", self._readyz)
        self._routes.add(["GET"], "/metrics", self._metrics)

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        self._check_peer(request)
        await self._routes.dispatch(request)

    def _check_peer(self, request: Request) -> None:
        """
        :raises Forbidden: the other end of a UNIX socket is a user that may not come here.
        """
        transport = request.channel.transport
        plug = getattr(transport, "getHandle", lambda: None)()
        if getattr(plug, "family", None) == socket.AF_UNIX:
            uid = peer_uid(transport)
            if uid not in self._allowed:
                raise Forbidden(f"user {uid} may not open consoles on this socket")

    async def _exec(self, request: Request, names: Mapping[str, str]) -> None:
        session = forwarded_session_id(request) or request.subject.session
        request.subject = replace(request.subject, session=session)
        try:
            choose_protocol(request)
            user, uid = _told(request, USER_HEADER), _told(request, UID_HEADER)
            request.subject = replace(request.subject, user=user, uid=uid)
            reservation = self._cache.reserve(names["token"], user=user, machine_uid=uid)
        except APIError as error:
            self._sessions.refused(request.subject, error.code, error.message)
            raise
        self._open(request, reservation)

    def _open(self, request: Request, reservation: Reservation) -> None:
        """Serve the console; the token is given back when that is not possible."""
        try:
            machine, attachment = self._attach(reservation.grant)
        except APIError as error:
            reservation.release()
            self._sessions.refused(request.subject, error.code, error.message)
            raise
        subject = request.subject = _subject(request.subject, reservation.grant, machine)
        try:
            live = self._sessions.open(subject)
        except APIError:
            reservation.release()
            raise
        self._serve(request, reservation, _Watched(attachment, reservation.ended), live)

    def _serve(
        self,
        request: Request,
        reservation: Reservation,
        attachment: IAttachment,
        live: LiveSession,
    ) -> None:
        # First: what is attached may be gone again before serve returns.
        reservation.commit(live.end)
        try:
            serve(
                request,
                attachment,
                session=live.subject.session,
                user=live.subject.user,
                clock=self._server.clock,
                record=live,
            )
        except APIError as error:
            reservation.release()
            live.over(error.message, code=error.code)
            raise
        except ConnectionDone:
            reservation.release()
            live.over("client closed", code=_CLIENT_LEFT)

    async def _end(self, request: Request, names: Mapping[str, str]) -> None:
        session, ending = parse_ending(request.args)
        self._cache.end(
            names["token"],
            ending,
            session=session,
            user=_told(request, USER_HEADER),
            machine_uid=_told(request, UID_HEADER),
        )
        respond_json(request, 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _readyz(self, request: Request, names: Mapping[str, str]) -> None:
        ready, listing = await self._server.health.ready()
        respond_text(request, 200 if ready else 503, listing)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        respond(request, 200, metrics_text(self._server.registry), CONTENT_TYPE)


def _told(request: Request, header: bytes) -> str:
    """
    A percent-encoded header's text, or nothing.

    :raises NotFound: it is sent twice or is no text: no token was made for that.
    """
    values: Sequence[bytes] = request.requestHeaders.getRawHeaders(header, [])
    if not values:
        return ""
    try:
        (value,) = values
        return unquote(value.decode("ascii"), errors="strict")
    except ValueError:
        raise NotFound("exec", "", message=f"header {header.decode()} cannot be read") from None


def _subject(told: Subject, grant: Grant, machine: Subject) -> Subject:
    """Who reaches what: what the token was made for goes before what the request says."""
    return replace(
        told,
        session=grant.session or told.session,
        user=grant.user or told.user,
        namespace=machine.namespace,
        machine=machine.machine,
        uid=machine.uid,
    )


@implementer(IAttachment)
class _Watched:
    """An attachment whose end somebody else wants to know as well."""

    def __init__(self, inner: IAttachment, ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended

    def attached(self, transport: IAttachmentTransport) -> None:
        self._inner.attached(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def window_changed(self, size: TerminalSize) -> None:
        self._inner.window_changed(size)

    def input_ended(self) -> None:
        self._inner.input_ended()

    def detached(self, reason: str) -> None:
        self._ended()
        self._inner.detached(reason)


def unix_path(address: str) -> str:
    """
    The path in ``unix:PATH``, where a colon in the path may be escaped.

    :raises TargetError: it holds options, or is no path for a socket.
    """
    path = address.removeprefix("unix:").replace("\\:", "\0")
    if ":" in path:
        raise TargetError(f"{address!r}: unix:PATH takes no options here")
    path = path.replace("\0", ":")
    if not path.startswith("/"):
        raise TargetError(f"{address!r}: the path of a UNIX socket must be absolute")
    return checked_socket_path(path)


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback
