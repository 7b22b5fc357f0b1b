"""
The sessions of a runtime that another process continues.

The new process creates each session of the old one before it accepts any request.  Our own clients
resume there with the keys that they have.  For a stream of a stock client the old process makes a key
itself, and becomes the client of the session (:mod:`.bridge`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.console.viewer_state import restore_viewer
from twisted_exec.iri.request_cache import RequestCache, Reservation
from twisted_exec.iri.unix_gate import remove_stale
from twisted_exec.program.listening import stop_unix_port
from twisted_exec.runtimes.handover.bridge import Bridge
from twisted_exec.runtimes.handover.bridge_routes import BridgeRoutes
from twisted_exec.runtimes.handover.bridged import Bridged, values_of
from twisted_exec.runtimes.handover.left_streams import LeftStreamRoutes, pass_on
from twisted_exec.runtimes.serving.kept_sessions import MOVING_SECONDS
from twisted_exec.runtimes.serving.resume_keys import digest
from twisted_exec.runtimes.serving.routes import OrdinaryStream
from twisted_exec.runtimes.serving.server import StreamServer
from twisted_exec.streaming.enduring_streams import Owner
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import (
    SHUTTING_DOWN,
    UID_HEADER,
    USER_HEADER,
    Ending,
    Subject,
)
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.remotecommand.interfaces import MarkUser
from twisted_exec.streaming.sessions.lingering import linger
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.tls.listening import BACKLOG
from twisted_exec.wire.channel import V5
from twisted_exec.wire.rejoin import Rejoin
from twisted_exec.wire.resume import Position, Resumable
from twisted_exec.wire.session_terms import Terms

SOCKET = "sessions.sock"
"""Name of the socket in the runtime's private directory, for predecessors that still serve streams."""

_KEY_BYTES = 32
_OPEN_SECONDS = 5.0
_REPLACED = "the machine runtime was replaced a while ago: open the console again"
_OPENING = "the machine runtime was replaced at this moment: open the console again"
_LOG_REPLACED = "the machine runtime is being replaced: read the log again"


Stop = Callable[[], Awaitable[None]]


def _listen_at(reactor: Any, path: str, site: Site) -> Stop:
    """
    Listen at a socket in the private directory.

    :raises TargetError: another process listens there.
    """
    remove_stale(path)
    port = reactor.listenUNIX(path, site, backlog=BACKLOG, mode=0o600)
    return partial(stop_unix_port, port)


class SomeMachines(Protocol):
    """The machines of a runtime, as its sessions need them."""

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Return all viewers in order: the id of the machine, the viewer, and its state."""

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole | None:
        """
        Return the console of a machine; ``None`` if it is off, or unknown.

        :param waits: for a session that waits until the machine is on.
        """


class SessionsHandOver:
    """
    The sessions of one runtime, in the old process or in the new one.

    :param machines: the machines of the runtime.
    :param endpoint: leads to a socket of another process of this runtime.
    :param listen_at: listens at such a socket, and returns how to stop that.
    """

    def __init__(
        self,
        server: StreamServer,
        cache: RequestCache,
        machines: SomeMachines,
        reactor: Any,
        endpoint: Callable[[str], IStreamClientEndpoint] | None = None,
        listen_at: Callable[[str, Site], Stop] | None = None,
    ) -> None:
        self._endpoint = endpoint or partial(unix_client_endpoint, reactor)
        self._listen_at = listen_at or partial(_listen_at, reactor)
        self._stop: Stop | None = None
        self._server, self._cache, self._machines = server, cache, machines
        self._reactor = reactor
        self._directory = ""
        # Not the id of the process, which another process may have later.
        self._name = f"streams-{secrets.token_hex(4)}.sock"
        self._elsewhere: dict[bytes, Bridged] = {}
        self._moving: list[tuple[OrdinaryStream, str, dict[str, Any]]] = []

    # The new process.

    def restore(self, values: Mapping[str, Any]) -> None:
        """
        Create the sessions of another process, after its machines.

        :param values: see :meth:`export`.
        :raises ValueError: they are not valid.
        """
        self._cache.restore(values["tokens"])
        self._server.kept_sessions.restore(values["kept"])
        for each in values["sessions"]:
            self._restore(each)

    def _restore(self, values: Mapping[str, Any]) -> None:
        waits = values["viewer"]["waitsAfter"] is not None
        console = self._machines.console(values["machine"], waits=waits)
        viewer = None if console is None else restore_viewer(console, values["viewer"])
        if viewer is None:
            return  # its machine has ended meanwhile
        session = self._server.kept_sessions.new(
            values["viewer"]["user"], values["bound"], Subject(**values["subject"]), viewer
        )
        if values["stream"] is not None:
            bridged = session.bridged = Bridged.restore(self._cache, values["stream"])
            if bridged.rejoin:
                self._elsewhere[bytes.fromhex(bridged.rejoin)] = bridged
                self._server.elsewhere = self._rejoin
        keys = {bytes.fromhex(key): name for key, name in values["keys"].items()}
        session.restore(keys, values["settled"], is_away=values["viewer"]["isAway"])

    async def _rejoin(
        self,
        request: Request,
        subject: Subject,
        rejoin: Rejoin,
        reservation: Reservation,
        terms: Terms,
    ) -> bool:
        """See :data:`.RejoinElsewhere`."""
        key = digest(rejoin.key)
        bridged = self._elsewhere.get(key)
        owner = Owner(subject.session, subject.user, subject.uid)
        if bridged is None or bridged.owner != owner:
            return False
        if bridged.is_over:
            del self._elsewhere[key]
            return False
        bridged.limit_to(terms)
        await pass_on(request, bridged, self._endpoint(bridged.socket), self._reactor)
        reservation.commit(bridged)
        bridged.add_token(reservation.digest, reservation.grant)
        return True

    def listen(self, directory: str) -> None:
        """
        Accept connections of predecessors that still serve streams.

        :param directory: private, with a short path; the same for all processes of the runtime.
        """
        self._directory = directory
        site = Site(BridgeRoutes(self._server), self._reactor, max_body_bytes=0)
        self._stop = self._listen_at(os.path.join(directory, SOCKET), site)

    async def stop_listening(self) -> None:
        """Leave the socket to a successor, or stop."""
        stop, self._stop = self._stop, None
        if stop is not None:
            await stop()

    # The old process.

    def export(self) -> dict[str, Any]:
        """Return the sessions as JSON values; the machines are suspended."""
        resumable = {id(each.attachment): each for each in self._server.kept_sessions.all}
        ordinary = {id(each.attachment.inner): each for each in self._server.ordinary.values()}
        self._moving = []
        sessions = []
        for machine_id, viewer, state in self._machines.viewers():
            values: dict[str, Any] = {"machine": machine_id, "viewer": state}
            if session := resumable.get(id(viewer)):
                values |= {
                    "subject": asdict(session.subject),
                    "bound": session.machine,
                    "keys": {key.hex(): name for key, name in session.keys.items()},
                    "settled": session.settled,
                    "stream": None if session.bridged is None else session.bridged.export(),
                }
            elif stream := ordinary.get(id(viewer)):
                values |= self._moved(stream, state)
            else:
                continue
            sessions.append(values)
        return {
            "tokens": self._cache.export(),
            "kept": self._server.kept_sessions.export(),
            "sessions": sessions,
        }

    def _moved(self, stream: OrdinaryStream, state: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a session whose stream stays here."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        self._moving.append((stream, key, state))
        live = stream.live
        tokens = self._cache.tokens_of(live)
        rejoin = "" if stream.offer is None else digest(stream.offer.answer.key).hex()
        return {
            "subject": asdict(live.subject),
            "bound": live.subject.uid or state["session"],
            "keys": {digest(key).hex(): live.subject.session},
            "settled": 0,
            "stream": values_of(live.subject, tokens, live.terms, rejoin, self._own_socket),
        }

    @property
    def _own_socket(self) -> str:
        """Path of the socket at which this process lets hops rejoin the streams that it serves."""
        return os.path.join(self._directory, self._name)

    async def retire(self, seconds: float) -> None:
        """
        Leave the sessions to a successor, which is ready; serve the streams that cannot move.

        :param seconds: how long.
        """
        sessions = self._server.sessions
        moving, self._moving = self._moving, []
        for stream, key, state in moving:
            self._bridge(stream, key, state)
        for each in list(self._server.ordinary.values()):
            if isinstance(each.attachment.inner, Viewer):  # a client that is opening its streams
                each.live.end(Ending(SHUTTING_DOWN, _OPENING))
        for session in self._server.kept_sessions.all:
            if session.connection is not None:
                session.connection.cut(SHUTTING_DOWN)
        self._server.kept_sessions.close(_REPLACED)
        ending = Ending(SHUTTING_DOWN, _LOG_REPLACED)
        sessions.end(lambda subject: subject.subresource == "log", ending)
        if not self._server.ordinary:
            await linger(sessions, self._reactor, seconds, _REPLACED)
            return
        # Successors pass on requests of hops that rejoin the streams that are left here.
        site = Site(LeftStreamRoutes(self._server), self._reactor, max_body_bytes=0)
        stop = self._listen_at(self._own_socket, site)
        try:
            await linger(sessions, self._reactor, seconds, _REPLACED)
        finally:
            await stop()

    def _bridge(self, stream: OrdinaryStream, key: str, state: Mapping[str, Any]) -> None:
        subject, viewer = stream.live.subject, stream.attachment.inner
        assert isinstance(viewer, Viewer)
        transport = viewer.take_stream()
        if transport is None:
            return  # the user has left meanwhile
        reopen = partial(self._open, subject, transport.options.query())
        bridge = Bridge(reopen, self._reactor, viewer.bytes_to_machine)
        stream.attachment.continue_with(bridge)
        bridge.start(
            transport,
            Resumable(key, MOVING_SECONDS),
            subject.session,
            Position(state["epoch"], state["offset"]),
            viewer.size,
        )

    def _open(
        self, subject: Subject, query: bytes, resume: str, user: MarkUser, protocol: str
    ) -> Deferred[ConsoleClient]:
        """Open a connection to a session in the successor."""
        path = f"/sessions/{quote(subject.session, safe='')}?".encode("ascii") + query
        headers = [
            (USER_HEADER, quote(subject.user, safe="").encode("ascii")),
            (UID_HEADER, quote(subject.uid or subject.session, safe="").encode("ascii")),
        ]
        return connect(
            self._endpoint(os.path.join(self._directory, SOCKET)),
            UpgradeRequest(b"GET", path, b"localhost", headers),
            user,
            clock=self._reactor,
            timeout_seconds=_OPEN_SECONDS,
            protocols=[V5],
            resume=resume,
        )
