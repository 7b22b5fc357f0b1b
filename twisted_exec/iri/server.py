"""
A gRPC server for an ``IMachineRuntime``.

One address has several services: ``machine.v1alpha1.MachineRuntime`` in one of its revisions,
spheric's ``runtime.v1alpha1.RuntimeService``, and our ``Console`` if the runtime has logs.

grpcio calls handlers in its own threads, and the runtime runs in the reactor's thread only. A
change that has begun is completed even if the client disconnects.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Forbidden,
    InternalError,
    NotImplementedByBackend,
    TooManyRequests,
)
from twisted_exec.iri.deadlines import DEADLINE_SECONDS
from twisted_exec.iri.errors import to_grpc
from twisted_exec.iri.exec_metadata import TOKENS, read_exec_metadata
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.revision import RevisedCall, Revision
from twisted_exec.iri.revisions import CONSOLE, IRONCORE, SPHERIC
from twisted_exec.iri.revisions import revision as revision_named
from twisted_exec.iri.target import (
    MutualTLS,
    ReloadingTLS,
    RuntimeAddress,
    TargetError,
    parse_target,
)
from twisted_exec.iri.unix_gate import (
    MOST_CONNECTIONS,
    UnixGate,
    listen_gate,
    prepare_directory,
    remove_stale,
    stop_gate,
)

# Threads are started when needed.
_THREADS = 256
_LONGEST_CALL_SECONDS = 60.0
_MAX_MESSAGE_BYTES = 4 << 20
_GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class CallLimits:
    """
    Limits of the connections and calls that one server has at the same time.

    :ivar calls: more of them fail with ``RESOURCE_EXHAUSTED``.
    :ivar changes: calls that change something and may take long; more of them fail with 429. It is
        lower than the number of threads, so that read-only calls never wait for them.
    """

    connections: int = MOST_CONNECTIONS
    calls: int = 512
    changes: int = 224


DEFAULT_LIMITS = CallLimits()


class IRIServer(Service):
    """
    Serves a runtime at a gRPC target.

    :param runtime: provides :class:`~twisted_exec.iri.interfaces.IMachineRuntime`. If it has alerts
        or recordings, it also provides their interfaces and
        :class:`~twisted_exec.iri.interfaces.IMachineLogs`.
    :param target: in the form of :func:`~twisted_exec.iri.target.parse_target`; TCP port 0 listens
        on any free port, which :attr:`target` has afterwards.
    :param allowed_uids: users besides root and this process's own that may use a UNIX socket.
    :raises TargetError: the target is malformed or unusable.
    :raises ValueError: there is no such revision.
    """

    _log = Logger()

    def __init__(
        self,
        runtime: object,
        target: str | RuntimeAddress,
        reactor: Any,
        *,
        tls: MutualTLS | None = None,
        allowed_uids: Collection[int] = (),
        revision: str = IRONCORE.name,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self.target = parse_target(target) if isinstance(target, str) else target
        if not self.target.is_unix and tls is None:
            raise TargetError(f"{self.target}: TCP needs mutual TLS (CA, certificate and key)")
        self._runtime = IMachineRuntime(runtime)
        self._served = _served(revision_named(revision))
        self._reactor = reactor
        self._tls = tls
        self._allowed = {0, os.getuid(), *allowed_uids}
        self._shared = bool(set(allowed_uids) - {0, os.getuid()})
        self._server: Any = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._gate: tuple[IListeningPort, UnixGate] | None = None
        self._inner_directory = ""
        self._changes = threading.Semaphore(limits.changes)

    def startService(self) -> None:
        """
        Listen.

        :raises CannotListenError: the socket or port is in use, or not this host's.
        :raises TargetError: the directory of the socket, or a file for TLS, cannot be used.
        """
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, "iri")
        self._server = grpc.server(
            self._pool,
            options=(
                # gRPC's default would let a second runtime listen at the same port and get some of
                # the calls.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ),
            maximum_concurrent_rpcs=self._limits.calls,
        )
        served = [*self._served]
        if IMachineLogs.providedBy(self._runtime):
            served.append(CONSOLE)
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(call.service, self._handlers(call))
                for call in served
            ]
        )
        try:
            if self.target.is_unix:
                self._listen_unix()
            else:
                self._listen_tcp()
        except (CannotListenError, TargetError):
            self._server.stop(None)
            self._pool.shutdown(wait=False)
            self._remove_inner()
            raise
        super().startService()

    def stopService(self) -> Deferred[None]:
        """Finish calls in progress, with a time limit; fires when nothing listens any more."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await self._drained(server.stop(_GRACE_SECONDS))
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._remove_inner()
        if self._gate is not None:
            await stop_gate(*self._gate)
            self._gate = None

    def _drained(self, event: threading.Event) -> Deferred[None]:
        fired: Deferred[None] = Deferred()

        def wait() -> None:
            event.wait(2 * _GRACE_SECONDS)
            self._reactor.callFromThread(fired.callback, None)

        threading.Thread(target=wait, name="iri-stop", daemon=True).start()
        return fired

    def _listen_unix(self) -> None:
        prepare_directory(os.path.dirname(self.target.path), shared=self._shared)
        if self._gate is None:
            # Before anything else, so that files of another, running runtime are not touched.
            remove_stale(self.target.path)
        self._inner_directory = f"{self.target.path}.d"
        inner = parse_target(f"unix://{self._inner_directory}/s").path
        prepare_directory(self._inner_directory, shared=False)
        remove_stale(inner)
        try:
            self._server.add_insecure_port(f"unix://{inner}")
        except RuntimeError as error:
            raise TargetError(f"cannot listen on {inner}: {error}") from None
        self._server.start()
        if self._gate is None:
            path, allowed, limit = self.target.path, self._allowed, self._limits.connections
            self._gate = listen_gate(self._reactor, path, inner, allowed, limit)

    def _listen_tcp(self) -> None:
        credentials = self._credentials()
        try:
            port = self._server.add_secure_port(self.target.address, credentials)
        except RuntimeError:
            why = "the address is in use or not this host's"
            raise CannotListenError(self.target.host, self.target.port, why) from None
        self.target = RuntimeAddress(host=self.target.host, port=port)
        self._server.start()

    def _credentials(self) -> Any:
        assert self._tls is not None
        files = ReloadingTLS(self._tls)
        served = files.current()

        def configuration() -> Any:
            ca, certificate, key = served
            return grpc.ssl_server_certificate_configuration([(key, certificate)], ca)

        def current() -> Any:
            """Called by grpcio for every handshake; ``None`` keeps the current files."""
            nonlocal served
            latest = files.current()
            if latest is served:
                return None
            served = latest
            return configuration()

        return grpc.dynamic_ssl_server_credentials(configuration(), current, True)

    def _remove_inner(self) -> None:
        if self._inner_directory:
            shutil.rmtree(self._inner_directory, ignore_errors=True)
            self._inner_directory = ""

    def _handlers(self, revision: Revision) -> dict[str, Any]:
        def handler(call: RevisedCall) -> Any:
            # No (de)serializers: grpcio logs their exceptions as tracebacks.
            return grpc.unary_unary_rpc_method_handler(
                lambda raw, context: self._answer(call, raw, context)
            )

        handlers = {call.path: handler(call) for call in revision.calls.values()}
        nothing = grpc.unary_unary_rpc_method_handler(self._nothing)
        handlers |= dict.fromkeys(revision.nothing, nothing)
        return {path.rpartition("/")[2]: handler for path, handler in handlers.items()}

    def _nothing(self, raw: bytes, context: Any) -> bytes:
        try:
            self._check_client(context)
        except APIError as error:
            code, message, _ = to_grpc(error)
            context.abort(code, message)
        return b""

    def _answer(self, call: RevisedCall, raw: bytes, context: Any) -> bytes:
        try:
            self._check_client(context)
            with self._room(call):
                return call.encode_response(self._outcome(call, raw, context))
        except APIError as error:
            code, message, trailing = to_grpc(error)
            context.set_trailing_metadata(trailing)
            context.abort(code, message)
        except (concurrent.futures.CancelledError, TimeoutError):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call was given up")
        raise AssertionError("abort always raises")

    @contextlib.contextmanager
    def _room(self, call: RevisedCall) -> Iterator[None]:
        if call.attribute in DEADLINE_SECONDS:
            yield
            return
        if not self._changes.acquire(blocking=False):
            most = self._limits.changes
            raise TooManyRequests(f"{most} changes are under way on this runtime, its limit", 1)
        try:
            yield
        finally:
            self._changes.release()

    def _outcome(self, call: RevisedCall, raw: bytes, context: Any) -> Message:
        outcome: concurrent.futures.Future[Message] = concurrent.futures.Future()
        request, facts = self._read(call, raw, context)
        context.add_callback(outcome.cancel)  # the client has gone
        self._reactor.callFromThread(self._perform, call, request, facts, outcome)
        remaining = context.time_remaining() or _LONGEST_CALL_SECONDS
        return outcome.result(min(remaining, _LONGEST_CALL_SECONDS))

    def _check_client(self, context: Any) -> None:
        if self._tls is None or not self._tls.client_names:
            return
        common_names = context.auth_context().get("x509_common_name", [])
        if not self._tls.client_names.intersection(
            name.decode("utf-8", "replace") for name in common_names
        ):
            raise Forbidden("this client certificate may not use the machine runtime")

    def _read(self, call: RevisedCall, raw: bytes, context: Any) -> tuple[Message, dict[str, str]]:
        try:
            request = call.decode_request(raw)
        except DecodeError:
            raise BadRequest(f"not a {call.request.DESCRIPTOR.name}") from None
        facts = (
            read_exec_metadata(context.invocation_metadata()) if call.attribute in TOKENS else {}
        )
        return request, facts

    def _perform(
        self,
        call: RevisedCall,
        request: Message,
        facts: dict[str, str],
        outcome: concurrent.futures.Future[Message],
    ) -> None:
        if outcome.cancelled():
            return

        def succeeded(answer: Message) -> None:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # the client has left
                outcome.set_result(answer)

        def failed(failure: Failure) -> None:
            error = failure.value
            if not isinstance(error, APIError):
                self._log.failure("call of {path}", failure=failure, path=call.path)
                error = InternalError("internal error of the machine runtime")
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                outcome.set_exception(error)

        answering = maybeDeferred(self._method(call.attribute), request, **facts)
        answering.addCallbacks(succeeded, failed)

    def _method(self, attribute: str) -> Callable[..., Any]:

        def missing(request: Message, **facts: str) -> None:
            raise NotImplementedByBackend(f"this machine runtime has no {attribute}")

        method: Callable[..., Any] = getattr(self._runtime, attribute, missing)
        return method


def _served(revision: Revision) -> list[Revision]:
    return [IRONCORE, SPHERIC] if revision is SPHERIC else [revision, SPHERIC]
