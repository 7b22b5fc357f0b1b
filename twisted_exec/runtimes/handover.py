"""
Hand-over of a machine runtime: another process goes on with its machines and sessions.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from google.protobuf.message import DecodeError
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    FirstError,
    gatherResults,
)
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer, IReactorTime, IStreamClientEndpoint
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import BadRequest, NotFound
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.viewer import Viewer
from twisted_exec.iri.protos import event_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import RequestCache, TokenReservation
from twisted_exec.iri.unix_gate import remove_stale
from twisted_exec.program.handover.process import HandOverError
from twisted_exec.program.listening import stop_unix_port
from twisted_exec.program.tasks import each_alone
from twisted_exec.runtimes.machines import Inherited, MachineRecord
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.runtimes.serving.kept_sessions import (
    MOVING_SECONDS,
    Bridged,
    KeptSession,
    values_of,
)
from twisted_exec.runtimes.serving.rejoining import response_head
from twisted_exec.runtimes.serving.server import OrdinaryStream, SocketRoutes, header_text
from twisted_exec.runtimes.serving.stream_server import StreamServer, resumption_of
from twisted_exec.runtimes.viewer_export import export_viewer, restore_viewer
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.streaming.http.upgrade_server import is_upgrade, take_over
from twisted_exec.streaming.interfaces import (
    SHUTTING_DOWN,
    UID_HEADER,
    USER_HEADER,
    Break,
    Ending,
    IOperable,
    ITermsAttachment,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.interfaces import Position as StreamPosition
from twisted_exec.streaming.rejoinable_transport import StreamOwner
from twisted_exec.streaming.remotecommand.carriers import choose_protocol
from twisted_exec.streaming.remotecommand.client import ConsoleClient, Reopen, connect
from twisted_exec.streaming.remotecommand.resuming_client import ResumingClient
from twisted_exec.streaming.remotecommand.stream import ConsoleUser, MarkUser
from twisted_exec.streaming.sessions.guard import CONSOLE_SERVER, linger
from twisted_exec.streaming.sessions.hop_messages import (
    REJOIN,
    forwarded_session_id,
    rejoin_headers,
    requested_rejoin,
)
from twisted_exec.streaming.splice import Splice
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.tls.listening import BACKLOG
from twisted_exec.wire.channel import V5
from twisted_exec.wire.keys import digest, new_key
from twisted_exec.wire.resume import Position, Rejoin, Resumable
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms
from twisted_exec.wire.upgrade import switching_protocols

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.server import TokenServer
    from twisted_exec.runtimes.serving.stream_server import StreamServer


SOCKET = "sessions.sock"
"""
Name of the socket in the runtime's private directory, for predecessors that still serve streams.
"""

_OPEN_SECONDS = 5.0
_REPLACED = f"{CONSOLE_SERVER} was replaced a while ago: open the console again"
_OPENING = f"{CONSOLE_SERVER} was replaced at this moment: open the console again"
_NOT_MOVED = (
    f"{CONSOLE_SERVER} was replaced, and this session could not go on: open the console again"
)
_LOG_REPLACED = f"{CONSOLE_SERVER} is being replaced: read the log again"


Stop = Callable[[], Awaitable[None]]


def _listen_at(reactor: Any, path: str, site: Site) -> Stop:
    remove_stale(path)
    port = reactor.listenUNIX(path, site, backlog=BACKLOG, mode=0o600)
    return partial(stop_unix_port, port)


class SomeMachines(Protocol):
    """The machines of a runtime, as its sessions need them."""

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Return the viewers to hand over: the id of the machine, the viewer, and its state."""

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole | None:
        """See :meth:`MachinesHandOver.console`."""


class SessionsHandOver:
    """The sessions of one runtime, in the old process or in the new one."""

    _log = Logger()

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
        :raises ValueError: the values are not valid.
        """
        try:
            self._cache.restore(values["tokens"])
            self._server.kept_sessions.restore(values["kept"])
            for each in values["sessions"]:
                self._restore(each)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"these are no sessions of a runtime: {problem!r}") from None

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
            viewer.has_plain_client = True
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
        reservation: TokenReservation,
        terms: Terms,
    ) -> bool:
        key = digest(rejoin.key)
        bridged = self._elsewhere.get(key)
        owner = StreamOwner(subject.session, subject.user, subject.uid)
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
        """Accept connections of predecessors that still serve streams."""
        self._directory = directory
        site = Site(BridgeRoutes(self._server), self._reactor, max_body_bytes=0)
        self._stop = self._listen_at(os.path.join(directory, SOCKET), site)

    async def stop_listening(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            await stop()

    # The old process.

    def export(self) -> dict[str, Any]:
        """Return the sessions as JSON values; suspend the machines first."""
        resumable = {id(each.attachment): each for each in self._server.kept_sessions.all}
        ordinary = {id(each.attachment.inner): each for each in self._server.ordinary.values()}
        self._moving = []
        sessions: list[dict[str, Any]] = []

        def add(exported: tuple[str, Any, dict[str, Any]]) -> None:
            machine_id, viewer, state = exported
            values: dict[str, Any] = {"machine": machine_id, "viewer": state}
            if session := resumable.get(id(viewer)):
                values |= _resumable_values(session)
            elif stream := ordinary.get(id(viewer)):
                values |= self._moved(stream, state)
            else:
                return
            sessions.append(values)

        each_alone(self._machines.viewers(), add, lambda exported: self._not_exported(exported[1]))
        return {
            "tokens": self._cache.export(),
            "kept": self._server.kept_sessions.export(),
            "sessions": sessions,
        }

    def _not_exported(self, viewer: Viewer) -> None:
        self._log.failure("session {id} stays behind", id=viewer.session)

    def _moved(self, stream: OrdinaryStream, state: dict[str, Any]) -> dict[str, Any]:
        key = new_key()
        self._moving.append((stream, key, state))
        live = stream.live
        tokens = self._cache.tokens_of(live)
        rejoin = "" if stream.offer is None else digest(stream.offer.answer.key).hex()
        return {
            "subject": asdict(live.subject),
            "bound": live.subject.uid or state["session"],
            "keys": {digest(key).hex(): live.id},
            "settled": 0,
            "stream": values_of(live.subject, tokens, live.terms, rejoin, self._own_socket),
        }

    @property
    def _own_socket(self) -> str:
        return os.path.join(self._directory, self._name)

    async def retire(self, seconds: float) -> None:
        """
        Leave the sessions to a successor that is ready; serve the streams that remain here for a
        while.
        """
        sessions = self._server.sessions
        moving, self._moving = self._moving, []
        each_alone(moving, lambda each: self._bridge(*each), lambda each: self._not_moved(each[0]))
        opening = [
            each.live
            for each in self._server.ordinary.values()
            if isinstance(each.attachment.inner, Viewer)
        ]
        sessions.each(opening, lambda live: live.end(Ending(SHUTTING_DOWN, _OPENING)))
        each_alone(self._server.kept_sessions.all, _cut, self._not_cut)
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

    def _not_moved(self, stream: OrdinaryStream) -> None:
        id = stream.live.id
        self._log.failure("session {id} was not left to the successor", id=id)
        self._server.sessions.each(
            [stream.live], lambda live: live.end(Ending(SHUTTING_DOWN, _NOT_MOVED))
        )

    def _not_cut(self, session: KeptSession) -> None:
        self._log.failure("session {id} was not cut", id=session.subject.session)

    def _bridge(self, stream: OrdinaryStream, key: str, state: Mapping[str, Any]) -> None:
        subject, viewer = stream.live.subject, stream.attachment.inner
        assert isinstance(viewer, Viewer)
        transport = viewer.take_stream()
        if transport is None:
            return  # the user has left meanwhile
        reopen = partial(self._open, subject, transport.options.query())
        bridge = SessionBridge(reopen, self._reactor, viewer.bytes_to_machine)
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


def _resumable_values(session: KeptSession) -> dict[str, Any]:
    return {
        "subject": asdict(session.subject),
        "bound": session.machine,
        "keys": {key.hex(): name for key, name in session.keys.items()},
        "settled": session.settled,
        "stream": None if session.bridged is None else session.bridged.export(),
    }


def _cut(session: KeptSession) -> None:
    if session.connection is not None:
        session.connection.cut(SHUTTING_DOWN)


class CannotHandOver(HandOverError):
    """Another process cannot continue this runtime now; the message says why."""


class MachinesHandOver:
    """The machines of one runtime, in the old process or in the new one."""

    _log = Logger()

    def __init__(self, runtime: MachineRuntime) -> None:
        self._runtime, self._machines = runtime, runtime.machines
        self._unsent: dict[str, bytes] = {}

    # The old process.

    def check(self) -> None:
        """:raises CannotHandOver: another process cannot continue a machine now."""
        for record in self._machines.records:
            if record.id in self._machines.deleting:
                raise CannotHandOver(f'machine "{record.label}" is being deleted; try again')
            if why := self._machines.supervisors[record.id].obstacle:
                raise CannotHandOver(
                    f'machine "{record.label}" of class {record.class_name} cannot be handed over:'
                    f" {why}"
                )

    async def settle(self) -> None:
        supervisors = self._machines.supervisors.values()
        await gatherResults([each.when_settled() for each in supervisors])

    def stop_alerts(self) -> None:
        self._machines.stop_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.stop()

    def start_alerts(self) -> None:
        self._machines.start_alerts()
        if self._machines.recordings is not None:
            self._machines.recordings.statuses.go_on()

    async def suspend(self) -> dict[str, Any]:
        """
        Let go of the machines and of the state directory; return the machines as JSON values.

        :raises CannotHandOver: as of :meth:`check`, or the disk does not take the last output.
        """
        self.check()
        machines = self._machines
        self.stop_alerts()
        # All at once, because a line whose peer is gone takes seconds to close.
        self._unsent = {record.id: b"" for record in machines.records}
        suspending = [Deferred.fromCoroutine(self._suspend(each)) for each in self._unsent]
        try:
            await gatherResults(suspending, consumeErrors=True)
        except FirstError as first:
            first.subFailure.raiseException()
        await machines.stop_recordings()
        values = {
            "machines": [self._export(record) for record in machines.records],
            "events": [_encode(each) for each in machines.records.events],
        }
        if not await machines.state.close(gives_up=False):
            raise CannotHandOver(
                "the disk does not take the last output of the consoles: try again"
            )
        return values

    async def _suspend(self, id: str) -> None:
        self._unsent[id] = await self._machines.supervisors[id].suspend()

    def _export(self, record: MachineRecord) -> dict[str, Any]:
        console = self._machines.supervisors[record.id].console
        size = None if console is None else console.size
        return {
            "machine": _encode(record.export()),
            "state": record.state,
            "conditions": [_encode(each) for each in record.conditions],
            "unsent": base64.b64encode(self._unsent[record.id]).decode("ascii"),
            "size": None if size is None else [size.columns, size.rows],
        }

    def viewers(self) -> list[tuple[str, Any, dict[str, Any]]]:
        viewers = []
        for record in self._machines.records:
            console = self._machines.supervisors[record.id].console

            def add(viewer: Viewer, id: str = record.id) -> None:
                state = export_viewer(viewer)
                if state is not None:
                    viewers.append((id, viewer, state))

            each_alone(() if console is None else console.viewers, add, self._not_exported)
        return viewers

    def _not_exported(self, viewer: Viewer) -> None:
        self._log.failure("session {id} stays behind", id=viewer.session)

    async def unsuspend(self) -> None:
        """
        Go on after :meth:`suspend`, also if it has failed half way, or a machine does not go on.

        :raises StateInUse: another process uses the state directory.
        :raises TLSConfigError: a directory is not private or cannot be created.
        :raises FormatError: a later release wrote the journals meanwhile.
        """
        machines = self._machines
        if not machines.state.is_open:
            machines.state.open()
            self._runtime.journals.open()
        machines.start_recordings()
        self.start_alerts()
        leaders = await machines.state.read_leaders()
        # All at once, because a line may take long to open.
        going_on = [
            Deferred.fromCoroutine(self._unsuspend(record, leaders))
            for record in machines.records
            if machines.supervisors[record.id].is_suspended
        ]
        await DeferredList(going_on, consumeErrors=True)

    async def _unsuspend(self, record: MachineRecord, leaders: Mapping[str, Any]) -> None:
        machines = self._machines
        left = machines.state.adoptable(record.id, leaders)
        unsent = self._unsent.pop(record.id, b"")
        try:
            await machines.supervisors[record.id].unsuspend(left, unsent)
        except CancelledError:
            raise  # this process stops
        except Exception:
            self._log.failure("machine {label} does not go on", label=record.label)

    # The new process.

    async def prepare(self, values: Mapping[str, Any]) -> None:
        """
        Prepare the runtime with the machines of another process.

        Fails as :meth:`.MachineRuntime.prepare`, or if the values are not valid.
        """
        records = self._machines.records
        machines: Sequence[Mapping[str, Any]] = values["machines"]
        await self._runtime.prepare([_inherited(each) for each in machines])
        for text in reversed(values["events"]):
            records.events.appendleft(_decode(event_pb2.Event, text))
        for each in machines:
            record = records.get(_decode(pb.Machine, each["machine"]).metadata.id)
            if record.state == pb.MACHINE_PENDING:  # not running yet
                record.state = each["state"]
                record.conditions = [
                    _decode(pb.MachineCondition, text) for text in each["conditions"]
                ]
            console = self.console(record.id)
            if console is not None and each["size"] is not None:
                console.restore_size(TerminalSize(*each["size"]))

    def console(self, machine_id: str, *, waits: bool = False) -> SharedConsole | None:
        """
        Return the console of a machine; ``None`` if the machine is unknown, or off without
        ``waits``.
        """
        supervisor = self._machines.supervisors.get(machine_id)
        if supervisor is None:
            return None
        return supervisor.waiting_console() if waits else supervisor.console


def _inherited(values: Mapping[str, Any]) -> Inherited:
    machine = _decode(pb.Machine, values["machine"])
    return Inherited(machine, base64.b64decode(values["unsent"], validate=True))


def _encode(message: Any) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _decode(kind: Any, text: str) -> Any:
    try:
        return kind.FromString(base64.b64decode(text, validate=True))
    except DecodeError as problem:
        raise ValueError(f"this is no {kind.DESCRIPTOR.full_name}: {problem}") from None


_LOST_SECONDS = 30.0
"""Longest time that the stream waits for the other process, which may be replaced meanwhile."""


@implementer(IOperable, ITermsAttachment, IPushProducer)
class SessionBridge:
    """
    Attaches the stream of a stock client in this process to its session in another process.

    :param sent: bytes of input that the machine got before, for audit.
    """

    def __init__(self, reopen: Reopen, clock: IReactorTime, sent: int = 0) -> None:
        self.bytes_to_machine = sent
        self._client = ResumingClient(_Far(self), reopen, clock, limit_seconds=_LOST_SECONDS)
        self._transport: Any = None
        self._ending: Ending | None = None

    def start(
        self,
        transport: Any,
        key: Resumable,
        session: str,
        position: StreamPosition,
        size: TerminalSize | None,
    ) -> None:
        """
        Take over a stream.

        :param transport: the stream, whose terms the other process enforces from now on.
        """
        self._transport = transport
        transport.hold_to(FULL)
        # First, because a stream that is full pauses its producer at once.
        self._client.resume(key, session, position)
        transport.registerProducer(self, True)
        if size is not None:
            self._client.resize(size)
        transport.resume_input()

    # From the other process

    def far_attached(self) -> None:
        self._client.registerProducer(_Input(self._transport), True)

    def far_data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def far_ended(self, ending: Ending) -> None:
        self._ending = ending

    def far_detached(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.unregisterProducer()
            lost = Ending(SHUTTING_DOWN, f"{CONSOLE_SERVER} was replaced, and {reason}")
            transport.end(self._ending or lost)

    # IAttachment, from the stream

    def attached(self, transport: object) -> None:
        """Never called: the stream is already attached to the console."""

    def data_received(self, data: bytes) -> None:
        self.bytes_to_machine += len(data)
        self._client.write(data)

    def window_changed(self, size: TerminalSize) -> None:
        self._client.resize(size)

    def input_ended(self) -> None:
        self._client.end_input()

    def wished(self, wish: Break | Role) -> None:
        self._client.wish(wish)

    def admit(self, terms: Terms) -> None:
        """Do nothing: the session was admitted before."""

    def input_refused(self) -> None:
        """Never called: the other process refuses input."""

    def terms_changed(self, terms: Terms) -> None:
        """Do nothing: the other process enforces the terms."""

    def detached(self, reason: str) -> None:
        if self._transport is not None:
            self._transport = None
            self._client.leave()

    # IPushProducer, from the stream

    def pauseProducing(self) -> None:
        self._client.pause_output()

    def resumeProducing(self) -> None:
        self._client.resume_output()

    def stopProducing(self) -> None:
        """The stream is dying; :meth:`detached` follows."""


@implementer(IPushProducer)
class _Input:
    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def pauseProducing(self) -> None:
        self._transport.pause_input()

    def resumeProducing(self) -> None:
        self._transport.resume_input()

    def stopProducing(self) -> None:
        """Do nothing: the stream ends by itself."""


class _Far(ConsoleUser):
    def __init__(self, bridge: SessionBridge) -> None:
        self._bridge = bridge

    def attached(self, stream: object) -> None:
        self._bridge.far_attached()

    def data_received(self, data: bytes) -> None:
        self._bridge.far_data_received(data)

    def ended(self, ending: Ending) -> None:
        self._bridge.far_ended(ending)

    def detached(self, reason: str) -> None:
        self._bridge.far_detached(reason)


class BridgeRoutes(SocketRoutes):
    """
    The routes of the socket at which predecessors of this process reach the sessions of their
    streams.

    The socket is in the runtime's private directory: only root and the runtime's own account reach
    it.
    """

    _server: StreamServer

    def __init__(self, server: StreamServer) -> None:
        super().__init__(server)
        self._routes.add(["GET"], "/sessions/{session}", self._resume)

    async def _resume(self, request: Request, names: Mapping[str, str]) -> None:
        protocol = choose_protocol(request)
        resumption = resumption_of(request, protocol)
        if resumption is None or resumption.resume is None:
            raise BadRequest("a predecessor resumes a session")
        user, bound = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        session = self._server.kept_sessions.find(resumption.resume, user, bound)
        bridged = None if session is None else session.bridged
        if session is None or bridged is None:
            raise NotFound("exec", "", message="the session is over")
        session.attachment.check(resumption.resume.position)
        request.subject = (
            bridged.subject
        )  # all of it: the process before this one knows the session
        live = self._server.sessions.open(bridged.subject, ceiling=bridged.terms)
        connection: Any
        connection, beginning = session.connect(
            bridged.subject.session, live, partial(bridged.closed, live), resumption.resume
        )
        if self._serve(request, connection, live, beginning):
            bridged.opened(live)


_PATH = b"/streams"
_TIMEOUT_SECONDS = 60.0
"""Longest wait for the process that serves the stream; long, because this host may be busy."""
_DRAIN_SECONDS = 1.0
_PASSED = frozenset({b"connection", b"upgrade", b"x-stream-protocol-version", REJOIN.lower()})
_WEBSOCKET = b"sec-websocket-"
_MADE_HERE = frozenset({b"connection", b"upgrade", TERMS_HEADER.lower().encode("ascii")})


async def pass_on(
    request: Request, bridged: Bridged, endpoint: IStreamClientEndpoint, clock: IReactorTime
) -> None:
    """
    Pass a request that rejoins a stream on to the process that serves it.

    :raises APIError: that process refuses, or cannot be reached.
    :raises ConnectionDone: the hop has left.
    """
    subject = bridged.subject
    headers = [
        (name, value)
        for name, values in request.requestHeaders.getAllRawHeaders()
        if name.lower() in _PASSED or name.lower().startswith(_WEBSOCKET)
        for value in values
    ]
    headers += [
        (USER_HEADER, quote(subject.user, safe="").encode("ascii")),
        (UID_HEADER, quote(subject.uid, safe="").encode("ascii")),
        (b"Audit-Id", subject.session.encode("ascii")),
    ]
    head = UpgradeRequest(request.method, _PATH, b"localhost", headers)
    try:
        upgraded = await upgrade(endpoint, head, clock=clock, timeout_seconds=_TIMEOUT_SECONDS)
    except UpgradeRefused as refusal:
        raise refusal.as_api_error() from None
    answer = [each for each in upgraded.headers if each[0].lower() not in _MADE_HERE]
    if text := bridged.terms.text():
        answer.append((TERMS_HEADER.encode("ascii"), text.encode("ascii")))
    splice = Splice(clock, lambda _: None, drain_seconds=_DRAIN_SECONDS)
    try:
        take_over(request, splice.user, switching_protocols(is_upgrade(request), answer))
    except ConnectionDone:
        upgraded.abort()
        raise
    upgraded.hand_over(splice.machine)


class LeftStreamRoutes(SocketRoutes):
    """
    The routes of the socket where successors pass on requests that rejoin streams of this process.
    """

    serves_while_frozen = True

    def __init__(self, server: TokenServer) -> None:
        super().__init__(server)
        self._routes.add(["GET", "POST"], _PATH.decode("ascii"), self._rejoin)

    async def _rejoin(self, request: Request, names: Mapping[str, str]) -> None:
        _, rejoin = requested_rejoin(rejoin_headers(request))
        if rejoin is None:
            raise BadRequest("a successor rejoins a stream")
        session: Any = forwarded_session_id(request)
        user, uid = header_text(request, USER_HEADER), header_text(request, UID_HEADER)
        stream = self._server.streams.find(StreamOwner(session, user, uid), rejoin)
        if not self._server.sessions.has(session):
            raise NotFound("exec", "", message="there is no stream to rejoin: its session is over")
        response = response_head(request, session, stream.received, FULL)
        take_over(request, stream.rejoin(rejoin.received), response)
