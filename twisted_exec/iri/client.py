"""
A client of machine runtimes over gRPC, which checks their answers.

It has the interface of a local runtime.  The runtime may use any revision of the interface
(:mod:`.revisions`).  Malformed answers and excessive lists become a ``BadGateway`` with the likely
cause; an unknown state becomes a condition.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError, Message
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import (
    APIError,
    BadGateway,
    InternalError,
    ServiceUnavailable,
    one_line,
)
from twisted_exec.iri.deadlines import CHANGE_SECONDS, DEADLINE_SECONDS
from twisted_exec.iri.errors import Metadata, attached_status, from_grpc
from twisted_exec.iri.exec_metadata import exec_metadata
from twisted_exec.iri.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revision import RevisedCall
from twisted_exec.iri.revisions import CONSOLE
from twisted_exec.iri.revisions import revision as revision_named
from twisted_exec.iri.target import (
    MutualTLS,
    ReloadingTLS,
    RuntimeAddress,
    TargetError,
    check_socket,
    parse_target,
)
from twisted_exec.program import grpc_calls
from twisted_exec.program.grpc_calls import CHANNEL_OPTIONS, Callers, Link
from twisted_exec.program.service import SUMMARY
from twisted_exec.tls.pem import validity_problem

MOST_MACHINES = 20_000
"""Limit of machines in one list."""

MOST_EVENTS = 100_000
MOST_CLASSES = 2_000

STATE_KNOWN = "StateKnown"
"""Type of the condition of a machine with an undefined state; its status is ``False``."""

MOST_MATCHES = 1_000
"""Limit of matches, and of recordings, in one list; ours lists 100."""

_LIMITS = {
    "matches": MOST_MATCHES,
    "recordings": MOST_MATCHES,
    "machines": MOST_MACHINES,
    "events": MOST_EVENTS,
    "machine_class_status": MOST_CLASSES,
}
_STATES = frozenset(pb.MachineState.values())
_MAX_MESSAGE_BYTES = 16 << 20
_TIMEOUTS_UNTIL_NEW_CONNECTION = 2
_AWAITED = frozenset(("exec",))
"""Calls that a user waits for: they are made in a thread of ours, which answers sooner."""
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES))


def read_answer(call: RevisedCall, raw: bytes) -> Message:
    """Decode an answer into a message of the current revision."""
    try:
        answer = call.decode_response(raw)
    except (DecodeError, APIError):
        raise BadGateway(
            f"the machine runtime's answer to {call.path} cannot be read: does it speak "
            f"another revision of the interface than {call.revision}?"
        ) from None
    for field, most in _LIMITS.items():
        count = len(getattr(answer, field, ()))
        if count > most:
            raise BadGateway(f"the machine runtime lists {count} {field}, more than {most}")
    _check_states(answer)
    return answer


def _check_states(answer: Message) -> None:
    if isinstance(answer, pb.ListMachinesResponse):
        for machine in answer.machines:
            _check_state(machine)
    elif isinstance(answer, pb.CreateMachineResponse):
        _check_state(answer.machine)


def _check_state(machine: pb.Machine) -> None:
    state = machine.status.state
    if state in _STATES:
        return
    machine.status.state = pb.MACHINE_PENDING
    machine.status.machine_conditions.add(
        type=STATE_KNOWN,
        status="False",
        reason="UnknownState",
        message=f"the machine runtime says that the machine is in state {int(state)}, "
        "which nobody defined",
    )


@implementer(IMachineRuntime, IMachineLogs, IConsoleAlerts, IConsoleRecordings)
class IRIClient(Service):
    """
    Client of the runtime at a gRPC target.

    :param target: in the form of :func:`~twisted_exec.iri.target.parse_target`.
    :param tls: required for TCP targets.
    :param trusted_uids: users besides root and this process's own that may own the runtime's UNIX
        socket.
    :param revision: name of the runtime's revision, one of
        :data:`~twisted_exec.iri.revisions.REVISIONS`.
    :param timeout_seconds: deadline of every call; by default that of its method.
    :ivar trouble: problem of the connection; empty while the runtime answers.
    :raises TargetError: the target is malformed or unusable.
    :raises ValueError: there is no such revision.
    """

    _log = Logger()

    def __init__(
        self,
        target: str | RuntimeAddress,
        reactor: IReactorFromThreads,
        *,
        tls: MutualTLS | None = None,
        trusted_uids: Collection[int] = (),
        revision: str = "ironcore",
        timeout_seconds: float | None = None,
    ) -> None:
        self.target = parse_target(target) if isinstance(target, str) else target
        if not self.target.is_unix and tls is None:
            raise TargetError(f"{self.target}: TCP needs mutual TLS (CA, certificate and key)")
        self.revision = revision_named(revision)
        self._reactor = reactor
        self._files = ReloadingTLS(tls) if tls is not None else None
        self._trusted = {os.getuid(), *trusted_uids}
        self._timeout_seconds = timeout_seconds
        self._link: Link | None = None
        self._stamp: tuple[object, ...] = ()
        self._timeouts = 0
        self._callers = Callers(reactor)
        self.trouble = ""

    def stopService(self) -> None:
        """
        Close the connection. Calls in flight on it are cancelled; a later call connects again.
        """
        super().stopService()
        self._callers.stop()
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return self._call("version", request)

    def list_events(self, request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        return self._call("list_events", request)

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        return self._call("list_machines", request)

    def create_machine(
        self, request: pb.CreateMachineRequest
    ) -> Deferred[pb.CreateMachineResponse]:
        return self._call("create_machine", request)

    def delete_machine(
        self, request: pb.DeleteMachineRequest
    ) -> Deferred[pb.DeleteMachineResponse]:
        return self._call("delete_machine", request)

    def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        return self._call("update_machine_annotations", request)

    def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        return self._call("update_machine_power", request)

    def attach_volume(self, request: pb.AttachVolumeRequest) -> Deferred[pb.AttachVolumeResponse]:
        return self._call("attach_volume", request)

    def detach_volume(self, request: pb.DetachVolumeRequest) -> Deferred[pb.DetachVolumeResponse]:
        return self._call("detach_volume", request)

    def update_volume(self, request: pb.UpdateVolumeRequest) -> Deferred[pb.UpdateVolumeResponse]:
        return self._call("update_volume", request)

    def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> Deferred[pb.AttachNetworkInterfaceResponse]:
        return self._call("attach_network_interface", request)

    def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> Deferred[pb.DetachNetworkInterfaceResponse]:
        return self._call("detach_network_interface", request)

    def status(self, request: pb.StatusRequest) -> Deferred[pb.StatusResponse]:
        return self._call("status", request)

    def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        metadata = exec_metadata(user=user, machine_uid=machine_uid, session=session)
        return self._call("exec", request, metadata)

    def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.LogResponse]:
        metadata = exec_metadata(user=user, machine_uid=machine_uid, session=session)
        return self._call("log", request, metadata)

    def set_alerts(
        self, request: console_pb2.SetAlertsRequest
    ) -> Deferred[console_pb2.SetAlertsResponse]:
        return self._call("set_alerts", request)

    def list_matches(
        self, request: console_pb2.ListMatchesRequest
    ) -> Deferred[console_pb2.ListMatchesResponse]:
        return self._call("list_matches", request)

    def set_recordings(
        self, request: console_pb2.SetRecordingsRequest
    ) -> Deferred[console_pb2.SetRecordingsResponse]:
        return self._call("set_recordings", request)

    def list_recordings(
        self, request: console_pb2.ListRecordingsRequest
    ) -> Deferred[console_pb2.ListRecordingsResponse]:
        return self._call("list_recordings", request)

    def recording(
        self,
        request: console_pb2.RecordingRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.RecordingResponse]:
        metadata = exec_metadata(user=user, machine_uid=machine_uid, session=session)
        return self._call("recording", request, metadata)

    def _call(self, attribute: str, request: Message, metadata: Metadata = ()) -> Deferred[Any]:
        try:
            call = CONSOLE.calls.get(attribute) or self.revision.call(attribute)
            raw = call.encode_request(request)
            link = self._open()
        except FileNotFoundError:
            return fail(self._unreachable("there is no such socket"))
        except TargetError as problem:
            return fail(self._unreachable(str(problem)))
        except APIError as refusal:
            return fail(refusal)
        # Decoded here and not in a deserializer, whose exceptions grpcio logs as tracebacks.
        stub, seconds = link.unary(call.path), self._deadline(attribute)
        machine_id = getattr(request, "machine_id", "")
        if attribute in _AWAITED and self._callers.free:
            begin = partial(_made, call, stub, raw, seconds, metadata)
            outcome = partial(self._outcome_of_made, machine_id=machine_id)
            return self._callers.call(link, begin, outcome)
        future = stub.future(raw, timeout=seconds, metadata=metadata)
        return grpc_calls.call(
            link,
            self._reactor,
            future,
            partial(_read, call),
            partial(self._outcome, machine_id=machine_id),
        )

    def _deadline(self, attribute: str) -> float:
        if self._timeout_seconds is not None:
            return self._timeout_seconds
        return DEADLINE_SECONDS.get(attribute, CHANGE_SECONDS)

    def _open(self) -> Link:
        if self.target.is_unix:
            check_socket(self.target.path, self._trusted)
        stamp = self._current_stamp()
        stale = bool(stamp) and stamp != self._stamp
        # A connection to a dead host fails only after many minutes.
        stuck = self._timeouts >= _TIMEOUTS_UNTIL_NEW_CONNECTION
        if self._link is not None and (stale or stuck):
            self._link.retire()
            self._link = None
        if self._link is None:
            self._link, self._stamp, self._timeouts = Link(self._channel()), stamp, 0
        return self._link

    def _current_stamp(self) -> tuple[object, ...]:
        if self.target.is_unix:
            entry = os.lstat(self.target.path)
            return entry.st_dev, entry.st_ino, entry.st_ctime_ns
        return self._files.current() if self._files is not None else ()

    def _channel(self) -> Any:
        if self._files is None or self.target.is_unix:
            return grpc.insecure_channel(str(self.target), options=_OPTIONS)
        ca, certificate, key = self._files.current()
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.secure_channel(str(self.target), credentials, options=_OPTIONS)

    def _outcome(
        self, future: Any, read: Message | APIError | None, machine_id: str
    ) -> Message | APIError:
        if future.cancelled():
            return ServiceUnavailable("the call to the machine runtime was cancelled")
        code = future.code()
        if code is grpc.StatusCode.OK:
            self._heard()
            return cast("Message | APIError", read)
        trailing = future.trailing_metadata() or ()
        # A runtime's own 502 or 503 is UNAVAILABLE, too, but brings its Status.
        if code is grpc.StatusCode.UNAVAILABLE and attached_status(trailing) is None:
            return self._unreachable(self._with_our_part(future.details() or ""))
        # The same of its 408 or 504, which shows that the connection works.
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and attached_status(trailing) is None:
            self._timeouts += 1
        else:
            self._heard()
        return from_grpc(code, future.details(), trailing, machine_id)

    def _outcome_of_made(
        self, made: tuple[Any, Message | APIError | None], machine_id: str
    ) -> Message | APIError:
        future, read = made
        if future is None:
            return cast(APIError, read)
        return self._outcome(future, read, machine_id)

    def _heard(self) -> None:
        self._timeouts = 0
        if self.trouble:
            self.trouble = ""
            self._log.info(
                "the machine runtime at {target} answers again",
                target=self.target,
                **{SUMMARY: True},
            )

    def _with_our_part(self, why: str) -> str:
        """Add that our certificate has expired, which grpcio does not report."""
        if self._files is None:
            return why
        problem = validity_problem(self._files.current()[1], "the client certificate")
        return f"{why} ({problem})" if problem else why

    def _unreachable(self, why: str) -> APIError:
        if not self.trouble:
            self._log.warn(
                "the machine runtime at {target} cannot be reached: {why}",
                target=self.target,
                why=why,
            )
        self.trouble = one_line(why) or "cannot be reached"
        return from_grpc(grpc.StatusCode.UNAVAILABLE, why)


def _made(
    call: RevisedCall, stub: Any, raw: bytes, seconds: float, metadata: Metadata
) -> tuple[Any, Message | APIError | None]:
    try:
        answer, finished = stub.with_call(raw, timeout=seconds, metadata=metadata)
    except grpc.RpcError as finished:
        return finished, None
    except ValueError:  # the channel was closed meanwhile
        return None, ServiceUnavailable("the call to the machine runtime was cancelled")
    return finished, _checked(call, answer)


def _read(call: RevisedCall, future: Any) -> Message | APIError | None:
    if future.cancelled() or future.code() is not grpc.StatusCode.OK:
        return None
    return _checked(call, future.result())


def _checked(call: RevisedCall, answer: bytes) -> Message | APIError:
    try:
        return read_answer(call, answer)
    except APIError as problem:
        return problem
    except Exception as problem:
        # Otherwise the caller would wait forever.
        return InternalError(f"the machine runtime's answer: {type(problem).__name__}")
