"""
Calls of an etcd cluster.

The client stays with one member until it fails. A write with an unknown outcome is not repeated, as
it might be executed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import grpc
from google.protobuf.message import DecodeError, Message
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.program import grpc_calls
from twisted_exec.program.grpc_calls import CHANNEL_OPTIONS, Callers, Link
from twisted_exec.storage.etcd.errors import EtcdError, error_of
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import Endpoint, EtcdTarget
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, read_file

READ_SECONDS = 3.0
"""Default time limit of a read, over all members."""
WRITE_SECONDS = 10.0
"""Time limit of a write, over all members."""

_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # Time limit of a connection.  A channel that is closed while it connects waits for it, too.
    ("grpc.min_reconnect_backoff_ms", 4_000),
    # Pings detect a dead member on connections that only carry a watch.  etcd closes connections that
    # ping more often than every 5 seconds (--grpc-keepalive-min-time).
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
# A member without a leader refuses such calls at once, instead of letting them wait
# (server/etcdserver/api/v3rpc/interceptor.go).
_WITH_LEADER = (("hasleader", "true"),)


@dataclass(frozen=True)
class Method:
    """One RPC of etcd: its path and the type of its answer."""

    path: str
    answer: Any


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


class EtcdClient:
    """
    Client of one cluster.

    :param reactor: Deferreds fire in its thread.
    """

    _log = Logger()

    def __init__(
        self,
        target: EtcdTarget,
        reactor: Any,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self.target = target
        self._read_seconds, self._write_seconds = read_seconds, write_seconds
        self._reactor = reactor
        self._links: dict[Endpoint, Link] = {}
        # Includes retired channels with calls in flight.
        self._open: WeakSet[Link] = WeakSet()
        self._is_closed = False
        self._first = 0
        self._token = ""
        self._logging_in: list[Deferred[None]] = []
        self._files = _files(target, reactor)
        self._callers = Callers(reactor)
        self._shown: object = None

    def load(self) -> None:
        """
        Read certificates and the password for the first time.

        :raises StorageError: they cannot be used.
        """
        self._is_closed = False
        try:
            if self._files is not None:
                self._files.load()
            if self.target.password_file:
                self._password()
        except TLSConfigError as problem:
            raise StorageError(f"etcd: {problem}") from None

    def close(self) -> None:
        """Cancel calls in flight; later calls fail."""
        self._is_closed = True
        self._links = {}
        for link in list(self._open):
            link.close()
        self._callers.stop()

    async def read(self, method: Method, request: Message, seconds: float | None = None) -> Any:
        """
        Call a method that changes nothing, at further members if one does not answer.

        :param seconds: time limit for all attempts together.
        :raises EtcdError: there is no answer in time, or a refusal.
        """
        return await self._over_members(
            method, request, seconds or self._read_seconds, lambda error: True
        )

    async def write(self, method: Method, request: Message) -> Any:
        """
        Call a method that writes; it is executed at most once.

        :raises EtcdError: it was not executed, or the outcome is unknown (see ``undone``).
        """
        return await self._over_members(
            method, request, self._write_seconds, lambda error: error.undone
        )

    async def _over_members(
        self,
        method: Method,
        request: Message,
        seconds: float,
        again: Callable[[EtcdError], bool],
    ) -> Any:
        until = self._reactor.seconds() + seconds
        left, logged_in = len(self.target.endpoints), False
        while True:
            if self.target.user:
                await self._log_in()
            endpoint = self.endpoint
            try:
                return await self._call(endpoint, method, request, until - self._reactor.seconds())
            except EtcdError as error:
                if error.is_token and self.target.user and not logged_in:
                    self._token, logged_in = "", True
                    continue
                if error.elsewhere:
                    self.leave(endpoint)
                left -= 1
                over = self._reactor.seconds() >= until
                if not left or over or not error.elsewhere or not again(error):
                    raise

    @property
    def endpoint(self) -> Endpoint:
        return self.target.endpoints[self._first]

    def leave(self, endpoint: Endpoint) -> None:
        """Switch to the next member."""
        if endpoint == self.endpoint and len(self.target.endpoints) > 1:
            self._first = (self._first + 1) % len(self.target.endpoints)
        link = self._links.pop(endpoint, None)
        if link is not None:
            link.retire()

    def _call(
        self, endpoint: Endpoint, method: Method, request: Message, seconds: float
    ) -> Deferred[Any]:
        # With several members, one must not use up the whole time limit.
        share = seconds if len(self.target.endpoints) == 1 else max(1.0, seconds / 2)
        link = self.link(endpoint)
        stub, raw = link.unary(method.path), request.SerializeToString()
        metadata = self.metadata(method)
        if self._callers.free:
            begin = partial(_made, method, stub, raw, share, metadata)
            return self._callers.call(link, begin, lambda answer: answer)
        future = stub.future(raw, timeout=share, metadata=metadata)
        return grpc_calls.call(link, self._reactor, future, partial(_read, method), _outcome)

    def metadata(self, method: Method) -> Sequence[tuple[str, str]]:
        if method is AUTHENTICATE or not self._token:
            return _WITH_LEADER
        return (*_WITH_LEADER, ("token", self._token))

    def link(self, endpoint: Endpoint) -> Link:
        """
        Return the channel to a member.

        :raises EtcdError: the client is closed.
        """
        if self._is_closed:  # otherwise a retry would open a channel that is never closed
            raise EtcdError(grpc.StatusCode.CANCELLED, "the client is closed")
        files = self._files.get() if self._files is not None else None
        if files is not self._shown:
            links, self._links, self._shown = self._links, {}, files
            for link in links.values():
                link.retire()
        current = self._links.get(endpoint)
        if current is None:
            current = self._links[endpoint] = Link(self._channel(endpoint, files))
            self._open.add(current)
        return current

    def _channel(self, endpoint: Endpoint, files: Any) -> Any:
        address = f"dns:///{endpoint}"
        if files is None:
            return grpc.insecure_channel(address, options=_OPTIONS)
        ca, certificate, key = files
        credentials = grpc.ssl_channel_credentials(ca, key or None, certificate or None)
        return grpc.secure_channel(address, credentials, options=_OPTIONS)

    async def authenticated(self) -> None:
        """
        Get a token if there is a user, for calls other than :meth:`read` and :meth:`write`.

        :raises EtcdError: that failed.
        """
        if self.target.user:
            await self._log_in()

    def forget_token(self) -> None:
        """Discard a refused token."""
        self._token = ""

    async def _log_in(self) -> None:
        """Log in once for all waiting calls, because etcd hashes passwords slowly on purpose."""
        if self._token:
            return
        waiting: Deferred[None] = Deferred()
        self._logging_in.append(waiting)
        if len(self._logging_in) == 1:
            Deferred.fromCoroutine(self._authenticate()).addBoth(self._logged_in)
        await waiting

    def _logged_in(self, outcome: Any) -> None:
        waiting_calls, self._logging_in = self._logging_in, []
        for waiting in waiting_calls:
            if not waiting.called:
                waiting.callback(outcome)

    async def _authenticate(self) -> None:
        try:
            password = self._password()
        except TLSConfigError as problem:  # valid before; the file is being replaced now
            raise EtcdError(grpc.StatusCode.UNAUTHENTICATED, str(problem)) from None
        request = pb.AuthenticateRequest(name=self.target.user, password=password)
        for left in reversed(range(len(self.target.endpoints))):
            endpoint = self.endpoint
            try:
                answer = await self._call(endpoint, AUTHENTICATE, request, self._read_seconds)
            except EtcdError as error:
                if error.elsewhere:
                    self.leave(endpoint)
                if not error.elsewhere or not left:
                    raise
            else:
                self._token = answer.token
                return

    def _password(self) -> str:
        try:
            raw = read_file(self.target.password_file, "the password of etcd's user")
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise TLSConfigError(
                f"the password of etcd's user {self.target.password_file!r} is no text"
            ) from None


def _files(target: EtcdTarget, reactor: Any) -> Reloading[tuple[bytes, bytes, bytes]] | None:
    if not target.secure:
        return None
    paths = [target.ca] + ([target.certificate, target.key] if target.certificate else [])

    def parse(ca: bytes, certificate: bytes = b"", key: bytes = b"") -> tuple[bytes, bytes, bytes]:
        pem.certificates(ca, f"CA {target.ca!r}")
        if certificate:
            names = f"certificate {target.certificate!r}", f"private key {target.key!r}"
            pem.use_certificate(pem.new_context(SSL.TLS_METHOD), certificate, key, *names)
        return ca, certificate, key

    return Reloading(paths, parse, reactor)


def _made(
    method: Method, stub: Any, raw: bytes, seconds: float, metadata: Sequence[tuple[str, str]]
) -> Any:
    try:
        return method.answer.FromString(stub(raw, timeout=seconds, metadata=metadata))
    except grpc.RpcError as error:
        return error_of(error)
    except Exception as problem:
        return _nonsense(problem)


def _read(method: Method, future: Any) -> Any:
    try:
        if future.cancelled() or future.code() is not grpc.StatusCode.OK:
            return None
        return method.answer.FromString(future.result())
    except Exception as problem:
        return _nonsense(problem)


def _nonsense(problem: Exception) -> EtcdError:
    """Turn an unexpected exception into an error, so that the caller does not wait forever."""
    if isinstance(problem, DecodeError):
        return EtcdError(grpc.StatusCode.INTERNAL, "this is no answer of etcd's")
    return EtcdError(grpc.StatusCode.INTERNAL, type(problem).__name__)


def _outcome(future: Any, read: Any) -> Any:
    if future.cancelled():
        return EtcdError(grpc.StatusCode.CANCELLED, "the call was cancelled")
    if future.code() is not grpc.StatusCode.OK:
        return error_of(future)
    return read
