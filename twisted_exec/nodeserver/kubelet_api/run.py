"""``/run``: a command in a Pod of a leaf, with its output as the answer."""

from __future__ import annotations

from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError, BadGateway, InternalError
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route, of_pod
from twisted_exec.nodeserver.kubelet_api.streams import ANSWER_SECONDS, admit_run
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import outcome, respond
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    ask_first,
)
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.location import Location
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier
from twisted_exec.streaming.remotecommand.carriers import (
    OVER_SPDY,
    Attempt,
    OtherProtocol,
    create_carrier,
    is_protocol_refusal,
)
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.endings import STATUS_LIMIT_BYTES, decode_ending
from twisted_exec.wire.errors import RemoteProtocolError

MAX_OUTPUT_BYTES = 4 << 20
"""Limit of stdout and stderr together; a kubelet's runtime gives up at 16 MiB."""

LINGER_SECONDS = 1.0
"""How long the leaf may take to close the connection after the last byte."""

_WAYS = (V5, OVER_SPDY, V4)
_STREAMS = frozenset({Channel.ERROR, Channel.STDOUT, Channel.STDERR})


def run_routes(collaborators: KubeletCollaborators) -> list[Route]:
    """
    Return the routes of ``/run``.

    ``/run`` runs a command without terminal and input, and returns its output, up to a limit. A
    failed command is a 500 with the details.

    Sources: ``getRun`` of ``pkg/kubelet/server/server.go``, ``RunInContainer`` of
    ``pkg/kubelet/kuberuntime`` and ``ExecSync`` of ``k8s.io/cri-client`` (the message of a failed
    command).
    """

    async def answer(context: RequestContext) -> None:
        await _run(collaborators, context)

    return list(of_pod("run", answer, ("POST",), "run", plain=True))


async def _run(collaborators: KubeletCollaborators, context: RequestContext) -> None:
    location = await admit_run(collaborators, context)
    session = context.open_session(collaborators.sessions)
    command = LeafCommand(collaborators.clock, collaborators.connect_seconds)
    try:
        await command.start(location, context.subject.session)
        session.carry(command)
        ending = await command.ending
    except BaseException as problem:
        command.cut()
        _record(session, command, problem)
        raise
    session.over("backend closed", bytes_to_user=command.printed_bytes)
    if not ending.is_success:
        raise InternalError(_failure_message(location, command, ending))
    respond(context.request, 200, command.output, "text/plain; charset=utf-8")


def _record(session: Session, command: LeafCommand, problem: BaseException) -> None:
    code, reason = outcome(problem)
    session.over(reason, code=code, bytes_to_user=command.printed_bytes)


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

    :ivar ending: fires with the ending of the command; fails with an :class:`APIError` if that is unknown.
    """

    _carrier: ClientCarrier

    def __init__(self, clock: IReactorTime, connect_seconds: float) -> None:
        self._clock, self._connect_seconds = clock, connect_seconds
        self.ending: Deferred[Ending] = Deferred(lambda _: self.cut())
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
            attempt = Attempt.for_protocol(way)
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
                refused = location.upstream.error_of(answer)
                if not is_protocol_refusal(answer):
                    raise refused from None
            except OtherProtocol as problem:
                refused = BadGateway(str(problem))
            else:
                self._begin(upgraded, way, chosen)
                return
        raise refused

    def _begin(self, upgraded: Upgraded, way: str, protocol: str) -> None:
        self._carrier, holder = create_carrier(
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
        """Do nothing: a command without input sends nothing when it starts."""

    def opened(self) -> None:
        """Do nothing: a command without input sends nothing on its channels."""

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
        """Do nothing: the status says how the command ended."""

    def pong_received(self) -> None:
        """Do nothing: no pings are sent."""

    def failing(self, reason: str) -> None:
        self._fail(BadGateway(f"the leaf broke the protocol: {reason}"))

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        self._finish("the leaf closed the connection before the command's status")
        self._carrier.close()
        self._carrier.hang_up()

    def lost(self, reason: str) -> None:
        self._upgraded = False
        self._finish(f"{reason} before the command's status")

    def _finish(self, otherwise: str) -> None:
        if self.ending.called:
            return
        if not self._status:
            self._fail(BadGateway(otherwise))
            return
        try:
            self.ending.callback(decode_ending(self._status, self._carrier.protocol))
        except RemoteProtocolError as problem:
            self._fail(BadGateway(f"the command's status cannot be read: {problem}"))

    def _fail(self, error: APIError) -> None:
        if not self.ending.called:
            self.ending.errback(error)
        self.cut()
