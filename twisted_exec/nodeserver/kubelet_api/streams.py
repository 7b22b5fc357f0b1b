"""
Streams, logs and ``/run``: routed to the Pod in its leaf.

The bytes are spliced, unless the leaf lacks the client's protocol or the session is recorded
(:mod:`twisted_exec.streaming.remotecommand.translate`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.fields import forbidden
from twisted_exec.api.logs import Args, LogOptions, check, decode, follows
from twisted_exec.api.reasons import reason_of_command
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
)
from twisted_exec.nodeserver.kubelet_api.routes import (
    HOP,
    Hop,
    KubeletTarget,
    Route,
    attach_query,
    exec_query,
    find,
    forward_query,
    of_pod,
    run_query,
    to_leaf,
)
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.hop import HopSettings
from twisted_exec.streaming.http.responses import outcome, respond
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.location import IStreamLocator, Location
from twisted_exec.streaming.passage import require_upgrade
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier
from twisted_exec.streaming.remotecommand.carriers import (
    OVER_SPDY,
    Attempt,
    OtherProtocol,
    of_the_protocol,
    over,
)
from twisted_exec.streaming.remotecommand.translate import requested_channels
from twisted_exec.streaming.remotecommand.tunnel import tunnelled
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.text.relay import Relay
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.control_messages import STATUS_LIMIT_BYTES, decode_ending
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.upgrade import WEBSOCKET

ANSWER_SECONDS = 30.0
"""Timeout: a leaf's API server asks its kubelet, and that its runtime, before it answers."""

LEAVE_SECONDS = 1.0
"""How long a leaf may take to close its side after the root's client has left."""


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PodLocator:
    """Finds the stream of a Pod in its leaf."""

    hop: Hop

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        is_sent = bool(context.subject.reason)
        if not is_sent:
            context.learn(reason=reason_of_command(_command(context.request)))
        target, pod = await find(self.hop, context)
        self.hop.check_reason(context)
        query, subject = _query(context.request, target), context.subject
        if is_sent:  # a reason in the command reaches the leaf with the command
            query = query + b"&reason=" + quote(subject.reason, safe="").encode("ascii")
        if target.what == "portForward":
            return await to_leaf(self.hop, pod, subject.subresource, query)
        options = StreamOptions.of(parse_qs(query))
        location = await to_leaf(
            self.hop, pod, subject.subresource, query, requested_channels(options)
        )
        if self.hop.recordings is None:
            return location
        command = _command(context.request)
        recorder = self.hop.recordings.recorder(
            subject, pod.root, target.container, command, has_terminal=options.tty
        )
        if recorder is None:
            return location
        context.learn(recording=recorder.name)
        return replace(location, recorder=recorder)  # texts, and sessions without one, have none


def _query(request: Request, target: KubeletTarget) -> bytes:
    upgrade = require_upgrade(request)
    raw = request.uri.partition(b"?")[2]
    if target.what == "exec":
        return exec_query(raw, target.container)
    if target.what == "attach":
        return attach_query(raw, target.container)
    needs_ports = upgrade == WEBSOCKET and not tunnelled(request)
    return forward_query(raw, needs_ports=needs_ports)


def _command(request: Request) -> list[str]:
    words = (request.args or {}).get(b"command", [])
    return [word.decode("utf-8", "replace") for word in words]


def stream_routes(hop: Hop) -> list[Route]:
    """Return the kubelet's routes that open a stream, except ``/run``."""
    proxy = Proxy(
        PodLocator(hop),
        HopSettings(
            HOP,
            connect_seconds=hop.connect_seconds,
            answer_seconds=ANSWER_SECONDS,
            leave_seconds=LEAVE_SECONDS,
            credential_headers=hop.access.gate.credential_headers.current,
        ),
        sessions=hop.sessions,
        clock=hop.clock,
    )
    answer, methods = proxy.handle, ("GET", "POST")
    return [
        *of_pod("exec", answer, methods, "exec"),
        *of_pod("attach", answer, methods, "attach"),
        *of_pod("portForward", answer, methods, "portforward", container=False),
    ]


ALL_STREAMS = "All"
STREAMS = (ALL_STREAMS, "Stdout", "Stderr")


def options_of(args: Args, pod: str) -> LogOptions:
    """
    Return the log options of a request to a kubelet.

    :param args: as ``request.args``; ``tail`` is an older name of ``tailLines``.
    :raises BadRequest: a value cannot be parsed.
    :raises Invalid: a value is not supported, or two of them contradict each other.
    """
    renamed = dict(args)
    tail = renamed.get(b"tail", [b""])[0]
    if tail == b"all":
        renamed.pop(b"tailLines", None)
    elif tail:
        renamed[b"tailLines"] = [tail]
    options = decode(renamed)
    check(options, pod, STREAMS)
    if options.since_seconds is not None and b"sinceTime" in renamed:  # even an empty one
        problem = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        raise Invalid("PodLogOptions", pod, [forbidden("[]", problem)], group="")
    # A leaf returns both streams by default; an older one refuses the parameter.
    return replace(options, stream=None) if options.stream == ALL_STREAMS else options


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PodLogLocator:
    """
    Finds the log of a Pod's container in its leaf.

    The options are parsed and rebuilt, without those that a client must not set (such as skipping
    TLS verification).

    Sources: ``getContainerLogs`` of ``pkg/kubelet/server/server.go``, ``ValidatePodLogOptions`` of
    ``pkg/apis/core/validation`` and ``GenericHttpResponseChecker`` of ``k8s.io/apiserver``.
    """

    hop: Hop

    @as_deferred
    async def locate(self, context: RequestContext) -> Location:
        target, pod = await find(self.hop, context)
        options = options_of(context.request.args, target.pod).query()
        query = b"container=" + quote_plus(target.container).encode("ascii")
        query += b"&" + options if options else b""
        return await to_leaf(self.hop, pod, "log", query)


def log_routes(hop: Hop) -> list[Route]:
    """Return the routes of ``/containerLogs``."""
    about: dict[str, Any] = {
        "sessions": hop.sessions,
        "clock": hop.clock,
        "connect_seconds": hop.connect_seconds,
        "tells_loss": True,
    }
    locator = PodLogLocator(hop)
    reading = Relay(locator, **about, answer_seconds=ANSWER_SECONDS)
    following = Relay(locator, **about, answer_seconds=None, keeps_connections=False)

    async def answer(context: RequestContext) -> None:
        relay = following if follows(context.request.args) else reading
        await relay.handle(context)

    return list(of_pod("containerLogs", answer, ("GET",), "log", plain=True))


MAX_OUTPUT_BYTES = 4 << 20
"""Limit of stdout and stderr together; a kubelet's runtime gives up at 16 MiB."""

LINGER_SECONDS = 1.0
"""How long the leaf may take to close the connection after the last byte."""

_WAYS = (V5, OVER_SPDY, V4)
_STREAMS = frozenset({Channel.ERROR, Channel.STDOUT, Channel.STDERR})


def run_routes(hop: Hop) -> list[Route]:
    """
    Return the routes of ``/run``.

    ``/run`` runs a command without terminal and input, and returns its output, up to a limit. A
    failed command is a 500 with the details.

    Sources: ``getRun`` of ``pkg/kubelet/server/server.go``, ``RunInContainer`` of
    ``pkg/kubelet/kuberuntime`` and ``ExecSync`` of ``k8s.io/cri-client`` (the message of a failed
    command).
    """

    async def answer(context: RequestContext) -> None:
        await _run(hop, context)

    return list(of_pod("run", answer, ("POST",), "run", plain=True))


async def _run(hop: Hop, context: RequestContext) -> None:
    location = await _locate(hop, context)
    context.has_session = True
    session = hop.sessions.open(context.subject, context.evidence)
    command = LeafCommand(hop.clock, hop.connect_seconds)
    try:
        await command.start(location, context.subject.session)
        session.carry(command)
        ending = await command.over
    except BaseException as problem:
        command.cut()
        _record(session, command, problem)
        raise
    session.over("backend closed", bytes_to_user=command.printed_bytes)
    if not ending.ok:
        raise InternalError(_failure_message(location, command, ending))
    respond(context.request, 200, command.output, "text/plain; charset=utf-8")


def _record(session: Session, command: LeafCommand, problem: BaseException) -> None:
    code, reason = outcome(problem)
    session.over(reason, code=code, bytes_to_user=command.printed_bytes)


async def _locate(hop: Hop, context: RequestContext) -> Location:
    target, pod = await find(hop, context)
    hop.check_reason(context)
    if hop.recordings is not None and hop.recordings.selects(pod.root):
        raise Forbidden(f'sessions in pod "{target.pod}" are recorded, and run is not: use exec')
    request = context.request
    if is_upgrade(request):
        raise BadRequest("what is run has no stream; ask for exec")
    query = run_query(request.uri.partition(b"?")[2], target.container)
    return await to_leaf(hop, pod, "exec", query)


def _failure_message(location: Location, command: LeafCommand, ending: Ending) -> str:
    if ending.exit_code is None:
        return ending.message or ending.reason
    words = parse_qs(location.path.partition(b"?")[2], keep_blank_values=True)[b"command"]
    command_line = b" ".join(words).decode("utf-8", "replace")
    errors = command.errors.decode("utf-8", "replace")
    return f"command '{command_line}' exited with {ending.exit_code}: {errors}"


class LeafCommand(SessionStream):
    """
    A command that runs in a leaf.

    :ivar over: fires with its ending; fails with an :class:`APIError` if that is unknown.
    """

    _carrier: ClientCarrier

    def __init__(self, clock: IReactorTime, connect_seconds: float) -> None:
        self._clock, self._connect_seconds = clock, connect_seconds
        self.over: Deferred[Ending] = Deferred(lambda _: self.cut())
        self._output, self._errors = bytearray(), bytearray()
        self._status, self._upgraded = b"", False

    @property
    def output(self) -> bytes:
        return bytes(self._output + self._errors)

    @property
    def errors(self) -> bytes:
        return bytes(self._errors)

    def counts(self) -> tuple[int, int]:
        return 0, self.printed_bytes

    @property
    def printed_bytes(self) -> int:
        return len(self._output) + len(self._errors)

    async def start(self, location: Location, session_id: str) -> None:
        """
        Request the command.

        :raises APIError: the leaf refuses, or is unreachable.
        """
        audit_id = (b"Audit-Id", session_id.encode("ascii"))
        head = UpgradeRequest(b"GET", location.path, location.host, [*location.headers, audit_id])
        refused: APIError = BadGateway("the leaf speaks no protocol that is known here")
        for way in _WAYS:
            attempt = Attempt.over(way)
            try:
                _, upgraded = await ask_first(
                    location.endpoints,
                    attempt.head(head),
                    clock=self._clock,
                    connect_seconds=self._connect_seconds,
                    answer_seconds=ANSWER_SECONDS,
                )
                chosen = attempt.chosen(upgraded)
            except UpgradeRefused as answer:
                error = answer.as_api_error()
                refused = location.refusal(error) if location.refusal else error
                if not of_the_protocol(answer):
                    raise refused from None
            except OtherProtocol as problem:
                refused = BadGateway(str(problem))
            else:
                self._begin(upgraded, way, chosen)
                return
        raise refused

    def _begin(self, upgraded: Upgraded, way: str, protocol: str) -> None:
        self._carrier, holder = over(
            way,
            protocol,
            self,
            clock=self._clock,
            open_seconds=ANSWER_SECONDS,
            linger_seconds=LINGER_SECONDS,
            channels=_STREAMS,
        )
        self._upgraded = True
        upgraded.hand_over(holder)

    def end(self, ending: Ending) -> None:
        """End the session."""
        self._fail(InternalError(ending.message or ending.reason))

    def cut(self) -> None:
        if self._upgraded:
            self._carrier.abort()

    # CarrierUser

    def connected(self) -> None:
        """Nothing to do."""

    def opened(self) -> None:
        """Nothing to do."""

    def received(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.ERROR:
            self._status += data
            if len(self._status) > STATUS_LIMIT_BYTES:
                self._fail(BadGateway("the command's status is too large"))
        elif channel in _STREAMS:
            if self.printed_bytes + len(data) > MAX_OUTPUT_BYTES:
                limit = MAX_OUTPUT_BYTES >> 20
                self._fail(InternalError(f"the command printed more than {limit} MiB; use exec"))
            else:
                (self._output if channel is Channel.STDOUT else self._errors).extend(data)

    def ended(self, channel: Channel) -> None:
        """Nothing to do: the status tells the end."""

    def pong_received(self) -> None:
        """Nothing to do."""

    def failing(self, reason: str) -> None:
        self._fail(BadGateway(f"the leaf broke the protocol: {reason}"))

    def close_received(self, code: int | None = None) -> None:
        self._finish("the leaf closed the connection before the command's status")
        self._carrier.close()
        self._carrier.hang_up()

    def lost(self, reason: str) -> None:
        self._upgraded = False
        self._finish(f"{reason} before the command's status")

    def _finish(self, otherwise: str) -> None:
        if self.over.called:
            return
        if not self._status:
            self._fail(BadGateway(otherwise))
            return
        try:
            self.over.callback(decode_ending(self._status, self._carrier.protocol))
        except RemoteProtocolError as problem:
            self._fail(BadGateway(f"the command's status cannot be read: {problem}"))

    def _fail(self, error: APIError) -> None:
        if not self.over.called:
            self.over.errback(error)
        self.cut()
