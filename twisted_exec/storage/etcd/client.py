"""
Calls of one etcd cluster: any of its members, TLS, tokens, deadlines.

One member is asked as long as it answers.  When it does not, another one is; a read is
then asked of that again, and so is a write that has certainly not been done.  A write of which
nobody knows is not made again: it fails with an :class:`APIError` that says so.

A member without
a leader refuses at once what says ``hasleader`` in its metadata
(``server/etcdserver/api/v3rpc/interceptor.go``).
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

from twisted_exec.storage.etcd.errors import EtcdError, error_of
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import Endpoint, EtcdTarget
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.streaming import grpc_calls
from twisted_exec.streaming.grpc_calls import CHANNEL_OPTIONS, Callers, Link
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, read_file

READ_SECONDS = 3.0
"""How long a question may take in all, unless told otherwise."""
WRITE_SECONDS = 10.0
"""A write; more than etcd itself takes to give up: 5 seconds, and two elections."""

_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # How long a member may take to be connected to; a channel that is closed meanwhile waits, too.
    ("grpc.min_reconnect_backoff_ms", 4_000),
    # A member that is gone without a word is noticed by who only listens, too.  etcd takes
    # a ping each 5 seconds (its --grpc-keepalive-min-time).
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_WITH_LEADER = (("hasleader", "true"),)


@dataclass(frozen=True)
class Method:
    """One of etcd's, by its path, and what it answers."""

    path: str
    answer: Any


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse)


class EtcdClient:
    """
    Calls a cluster.

    :param target: which one.
    :param reactor: where answers arrive.
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
        # Also those that are retired, but still called.
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
        Read certificates and passwords for the first time.

        :raises StorageError: with one line; they cannot be used.
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
        """Calls under way fail as cancelled, and so do those to come."""
        self._is_closed = True
        self._links = {}
        for link in list(self._open):
            link.close()
        self._callers.stop()

    async def read(self, method: Method, request: Message, seconds: float | None = None) -> Any:
        """
        Ask; another member when one does not answer.

        :param seconds: how long all of them may take together.
        :raises EtcdError: none did.
        """
        return await self._over_members(
            method, request, seconds or self._read_seconds, lambda error: True
        )

    async def write(self, method: Method, request: Message) -> Any:
        """
        Change something, once.

        :raises EtcdError: it was not done, or nobody knows.
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
        """The member to ask."""
        return self.target.endpoints[self._first]

    def leave(self, endpoint: Endpoint) -> None:
        """A member did not answer: ask the next one from now on."""
        if endpoint == self.endpoint and len(self.target.endpoints) > 1:
            self._first = (self._first + 1) % len(self.target.endpoints)
        link = self._links.pop(endpoint, None)
        if link is not None:
            link.retire()

    def _call(
        self, endpoint: Endpoint, method: Method, request: Message, seconds: float
    ) -> Deferred[Any]:
        # With others to ask, none may keep us waiting for all of the time.
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
        """What goes with a call."""
        if method is AUTHENTICATE or not self._token:
            return _WITH_LEADER
        return (*_WITH_LEADER, ("token", self._token))

    def link(self, endpoint: Endpoint) -> Link:
        """
        The channel to a member; new ones when certificates have changed.

        :raises EtcdError: the client is closed.
        """
        if self._is_closed:  # or who asks again would open another one, that nobody closes
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
        Have a token, where one is needed, for what is not called by :meth:`read`.

        :raises EtcdError: there is none to be had.
        """
        if self.target.user:
            await self._log_in()

    def forget_token(self) -> None:
        """It was refused."""
        self._token = ""

    async def _log_in(self) -> None:
        """
        Once for all who wait: etcd makes its hash of a password slow on purpose, and when it does
        not answer, none of them waits for the others.
        """
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
        except TLSConfigError as problem:  # it was read once, and is being exchanged now
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
            pem.present(pem.new_context(SSL.TLS_METHOD), certificate, key, *names)
        return ca, certificate, key

    return Reloading(paths, parse, reactor)


def _made(
    method: Method, stub: Any, raw: bytes, seconds: float, metadata: Sequence[tuple[str, str]]
) -> Any:
    """A call that is waited for, in a thread: the answer, or why there is none."""
    try:
        return method.answer.FromString(stub(raw, timeout=seconds, metadata=metadata))
    except grpc.RpcError as error:
        return error_of(error)
    except Exception as problem:
        return _nonsense(problem)


def _read(method: Method, future: Any) -> Any:
    """In one of grpcio's threads."""
    try:
        if future.cancelled() or future.code() is not grpc.StatusCode.OK:
            return None
        return method.answer.FromString(future.result())
    except Exception as problem:
        return _nonsense(problem)


def _nonsense(problem: Exception) -> EtcdError:
    """Nothing may keep the caller waiting for ever."""
    if isinstance(problem, DecodeError):
        return EtcdError(grpc.StatusCode.INTERNAL, "this is no answer of etcd's")
    return EtcdError(grpc.StatusCode.INTERNAL, type(problem).__name__)


def _outcome(future: Any, read: Any) -> Any:
    if future.cancelled():
        return EtcdError(grpc.StatusCode.CANCELLED, "the call was cancelled")
    if future.code() is not grpc.StatusCode.OK:
        return error_of(future)
    return read
