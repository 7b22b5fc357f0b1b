"""
A machine runtime behind gRPC, used as if it were in this process.

grpcio has its own threads; they meet the reactor in one place, the done callback
of a call's future.  Channels are opened by the first call, not before: a program is made
before its daemon forks.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import APIError, ServiceUnavailable

from .interfaces import IMachineLogs, IMachineRuntime
from .methods import CONSOLE_METHODS, METHODS, Metadata, exec_metadata, from_grpc
from .protos import console_pb2
from .protos import machine_pb2 as pb
from .target import MutualTLS, Target, TargetError, check_socket, parse_target

_Answer = TypeVar("_Answer", bound=Message)

_MAX_MESSAGE_BYTES = 16 << 20
_TIMEOUTS_UNTIL_NEW_CONNECTION = 2
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # Subchannels shared by the process would also share their back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class _Link:
    """One channel, closed when it is retired and its last call has ended."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.calls = 0
        self.retired = False

    def ended(self) -> None:
        self.calls -= 1
        self._close_if_done()

    def retire(self) -> None:
        self.retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.retired and not self.calls:
            self.channel.close()


@implementer(IMachineRuntime, IMachineLogs)
class IRIClient(Service):
    """
    Calls the runtime at a gRPC target.

    :param target: as :func:`~twisted_exec.iri.target.parse_target` reads it.
    :param tls: for TCP targets, required there; certificates that change on
        disk are used by the next call.
    :param trusted_uids: users besides root and this process's own that may own
        the runtime's UNIX socket.
    :param timeout_seconds: the deadline of every call.
    :raises TargetError: the target cannot be used as given.
    """

    _log = Logger()

    def __init__(
        self,
        target: str | Target,
        reactor: IReactorFromThreads,
        *,
        tls: MutualTLS | None = None,
        trusted_uids: Collection[int] = (),
        timeout_seconds: float = 10.0,
    ) -> None:
        self.target = parse_target(target) if isinstance(target, str) else target
        if not self.target.is_unix and tls is None:
            raise TargetError(f"{self.target}: TCP needs mutual TLS (CA, certificate and key)")
        self._reactor = reactor
        self._tls = tls
        self._trusted = {os.getuid(), *trusted_uids}
        self._timeout_seconds = timeout_seconds
        self._link: _Link | None = None
        self._stamp: tuple[object, ...] = ()
        self._timeouts = 0
        self._reachable = True

    def stopService(self) -> None:
        """Close the connection.  Calls under way fail as cancelled; a later call opens anew."""
        super().stopService()
        link, self._link = self._link, None
        if link is not None:
            link.channel.close()

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return self._call("Version", request, pb.VersionResponse)

    def list_events(self, request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        return self._call("ListEvents", request, pb.ListEventsResponse)

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        return self._call("ListMachines", request, pb.ListMachinesResponse)

    def create_machine(
        self, request: pb.CreateMachineRequest
    ) -> Deferred[pb.CreateMachineResponse]:
        return self._call("CreateMachine", request, pb.CreateMachineResponse)

    def delete_machine(
        self, request: pb.DeleteMachineRequest
    ) -> Deferred[pb.DeleteMachineResponse]:
        return self._call("DeleteMachine", request, pb.DeleteMachineResponse)

    def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        return self._call("UpdateMachineAnnotations", request, pb.UpdateMachineAnnotationsResponse)

    def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        return self._call("UpdateMachinePower", request, pb.UpdateMachinePowerResponse)

    def attach_volume(self, request: pb.AttachVolumeRequest) -> Deferred[pb.AttachVolumeResponse]:
        return self._call("AttachVolume", request, pb.AttachVolumeResponse)

    def detach_volume(self, request: pb.DetachVolumeRequest) -> Deferred[pb.DetachVolumeResponse]:
        return self._call("DetachVolume", request, pb.DetachVolumeResponse)

    def update_volume(self, request: pb.UpdateVolumeRequest) -> Deferred[pb.UpdateVolumeResponse]:
        return self._call("UpdateVolume", request, pb.UpdateVolumeResponse)

    def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> Deferred[pb.AttachNetworkInterfaceResponse]:
        return self._call("AttachNetworkInterface", request, pb.AttachNetworkInterfaceResponse)

    def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> Deferred[pb.DetachNetworkInterfaceResponse]:
        return self._call("DetachNetworkInterface", request, pb.DetachNetworkInterfaceResponse)

    def status(self, request: pb.StatusRequest) -> Deferred[pb.StatusResponse]:
        return self._call("Status", request, pb.StatusResponse)

    def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        metadata = exec_metadata(user=user, machine_uid=machine_uid, session=session)
        return self._call("Exec", request, pb.ExecResponse, metadata)

    def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.LogResponse]:
        """A runtime of foreign make fails it with ``NotImplementedByBackend``."""
        metadata = exec_metadata(user=user, machine_uid=machine_uid, session=session)
        return self._call("Log", request, console_pb2.LogResponse, metadata)

    def _call(
        self, name: str, request: Message, _answer: type[_Answer], metadata: Metadata = ()
    ) -> Deferred[_Answer]:
        """One unary call; fails with an :class:`APIError`.  Cancelling ends the call."""
        method = METHODS.get(name) or CONSOLE_METHODS[name]
        try:
            link = self._open()
        except (TargetError, FileNotFoundError) as problem:
            return fail(self._unreachable(str(problem)))
        stub = link.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        future = stub.future(request, timeout=self._timeout_seconds, metadata=metadata)
        link.calls += 1
        answer: Deferred[_Answer] = Deferred(lambda _: future.cancel())

        def done() -> None:
            link.ended()
            outcome = self._outcome(future, getattr(request, "machine_id", ""))
            if answer.called:
                return
            if isinstance(outcome, APIError):
                answer.errback(outcome)
            else:
                answer.callback(cast(_Answer, outcome))

        future.add_done_callback(lambda _: self._reactor.callFromThread(done))
        return answer

    def _open(self) -> _Link:
        """The channel to use now; a new one when certificates changed or the old one is stuck."""
        if self.target.is_unix:
            check_socket(self.target.path, self._trusted)
        stamp = self._tls.stamp() if self._tls is not None else ()
        stale = bool(stamp) and stamp != self._stamp
        # A connection whose peer vanished without a word answers nothing for many minutes.
        stuck = self._timeouts >= _TIMEOUTS_UNTIL_NEW_CONNECTION
        if self._link is not None and (stale or stuck):
            self._link.retire()
            self._link = None
        if self._link is None:
            self._link, self._stamp, self._timeouts = _Link(self._channel()), stamp, 0
        return self._link

    def _channel(self) -> Any:
        if self._tls is None or self.target.is_unix:
            return grpc.insecure_channel(str(self.target), options=_OPTIONS)
        ca, certificate, key = self._tls.read()
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.secure_channel(str(self.target), credentials, options=_OPTIONS)

    def _outcome(self, future: Any, machine_id: str) -> Message | APIError:
        """The answer or the error of a call that has ended."""
        if future.cancelled():
            return ServiceUnavailable("the call to the machine runtime was cancelled")
        code = future.code()
        if code is grpc.StatusCode.OK:
            self._heard()
            return cast(Message, future.result())
        if code is grpc.StatusCode.UNAVAILABLE:
            return self._unreachable(future.details())
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self._timeouts += 1
        else:
            self._heard()
        return from_grpc(code, future.details(), future.trailing_metadata() or (), machine_id)

    def _heard(self) -> None:
        self._timeouts = 0
        if not self._reachable:
            self._reachable = True
            self._log.info("the machine runtime at {target} answers again", target=self.target)

    def _unreachable(self, why: str) -> APIError:
        """Told to operators with the address, once; to users without."""
        if self._reachable:
            self._reachable = False
            self._log.warn(
                "the machine runtime at {target} cannot be reached: {why}",
                target=self.target,
                why=why,
            )
        return from_grpc(grpc.StatusCode.UNAVAILABLE, why)
