"""A machine's console, from the user's side of an API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    MethodNotAllowed,
    NotFound,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import (
    AGENT,
    TIMEOUT_SECONDS,
    naming_server,
    opened_among,
    request_head,
    with_current_credentials,
)
from twisted_exec.streaming.remotecommand.client import ATTEMPTS, ConsoleClient, connect
from twisted_exec.streaming.remotecommand.first_user import FirstUser
from twisted_exec.streaming.remotecommand.pings import SILENCE_SECONDS
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.resume import MARKS
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

if TYPE_CHECKING:
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser, MarkUser


CONNECT_SECONDS = 8.0
"""
Time limit of the connection when a session is resumed: a kernel sends less often the longer it
tries.
"""


@dataclass(frozen=True, kw_only=True)
class ConsoleOptions:
    """
    Options for opening a console.

    :param timeout_seconds: time limit for the connection, and another for the answer.
    :param among: the possible dialects of the machine; the first is tried without discovery.
    :param record: the input to record, see :mod:`twisted_exec.api.kinds.consolerecordings`. No
        console is opened with a server that does not know this option.
    :param give_up_seconds: time to resume a session after a loss of the connection; ``None`` for as
        long as the server is not in reach.
    """

    timeout_seconds: float = TIMEOUT_SECONDS
    server: IStreamClientEndpoint | None = None
    protocols: Sequence[str] = ATTEMPTS
    stream: StreamOptions = CONSOLE
    among: Sequence[Dialect] = DIALECTS
    agent: str = AGENT
    reason: str = ""
    record: str = ""
    resume: bool = True
    silence_seconds: float = SILENCE_SECONDS
    give_up_seconds: float | None = None

    @property
    def query(self) -> bytes:
        query = self.stream.query()
        if self.reason:
            query += f"&reason={quote(self.reason, safe='')}".encode("ascii")
        if self.record:
            query += f"&record={self.record}".encode("ascii")
        return query


def open_console(
    config: ClientConfig,
    namespace: str,
    name: str,
    user: ConsoleUser,
    reactor: Any,
    options: ConsoleOptions = ConsoleOptions(),
    *,
    requested: Callable[[ClientConfig, Dialect], None] | None = None,
    connected: Callable[[], None] = lambda: None,
) -> Deferred[ConsoleStream]:
    """
    Open the console of one machine.

    :param user: receives the events of the session, ``attached`` first.
    :param requested: called for each attempt to begin the session.
    :return: fires with the stream once it is attached. Fails with an
        :class:`~twisted_exec.api.status.APIError`, or with
        :class:`~twisted_exec.kube.kubeconfig.client_config.KubeConfigError` without usable
        credentials. Cancelling closes the connection.
    """
    opening = _Opening(config, namespace, name, user, reactor, options, requested, connected)
    return Deferred.fromCoroutine(
        opened_among(
            opening.open, config, reactor, options.among, options.timeout_seconds, options.server
        )
    )


@dataclass(frozen=True)
class _Opening:
    config: ClientConfig
    namespace: str
    name: str
    user: ConsoleUser
    reactor: Any
    options: ConsoleOptions
    requested: Callable[[ClientConfig, Dialect], None] | None
    connected: Callable[[], None]

    async def open(self, config: ClientConfig, dialect: Dialect) -> ConsoleStream:
        try:
            return await self._open_at("exec", config, dialect)
        except APIError as refused:
            if not self.options.stream.read_only:
                # In the words of RBAC: User "eve" cannot get resource "machines/exec" in API group ...
                lacks_exec = f'"{dialect.workload.plural}/exec"' in refused.message
                upgrades = {V5, V4} & {*self.options.protocols}
                if refused.code == Forbidden.code and lacks_exec and upgrades:
                    await self._explain(config, dialect, refused)
                raise
            if refused.code != Forbidden.code:
                raise
            try:
                return await self._open_at("console", config, dialect)
            except APIError as error:
                # Older servers do not have this path, and it is a GET, which SPDY is not.
                unknown = error.code in (NotFound.code, MethodNotAllowed.code)
                raise refused if unknown else error from None

    async def _explain(self, config: ClientConfig, dialect: Dialect, refused: APIError) -> None:
        # Imported here: most consoles need no reviews, and the program starts faster without them.
        from twisted_exec.kube.client import KubeClient
        from twisted_exec.kube.read_only_hint import suggest_read_only

        options = self.options
        client = KubeClient(
            config, self.reactor, timeout_seconds=options.timeout_seconds, server=options.server
        )
        try:
            await suggest_read_only(refused, client, dialect, self.namespace, self.name)
        finally:
            await client.close()

    async def _open_at(
        self, subresource: str, config: ClientConfig, dialect: Dialect
    ) -> ConsoleStream:
        where = dialect.workload.path(self.namespace, self.name, subresource)
        if not self.options.resume:
            return await self._begin(self._connect(config, where, self.user), config, dialect)
        turns = count(1)

        def reopened(header: str, user: MarkUser, protocol: str) -> Deferred[ConsoleClient]:
            turn = next(turns)

            async def opened_again(current: ClientConfig) -> ConsoleClient:
                stream, observes = self.options.stream, self.user.is_observer
                if observes is not None:
                    stream = replace(stream, observe=observes)
                again = replace(self, options=replace(self.options, stream=stream))
                return await again._connect(current, where, user, [protocol], header, turn)

            return Deferred.fromCoroutine(_again(self.config, self.reactor, opened_again))

        first = FirstUser(self.user, reopened, self.reactor, self.options.give_up_seconds)
        await self._begin(self._connect(config, where, first, header=MARKS), config, dialect)
        return first.stream

    def _begin(
        self,
        connecting: Coroutine[Any, Any, ConsoleClient],
        config: ClientConfig,
        dialect: Dialect,
    ) -> Deferred[ConsoleClient]:
        begun = Deferred.fromCoroutine(connecting)
        if self.requested is not None:
            self.requested(config, dialect)
        return begun

    async def _connect(
        self,
        config: ClientConfig,
        where: str,
        user: ConsoleUser,
        protocols: Sequence[str] = (),
        header: str = "",
        first_address: int = 0,
    ) -> ConsoleClient:
        options = self.options
        seconds = options.timeout_seconds
        server = options.server or endpoint(
            config,
            self.reactor,
            timeout_seconds=min(seconds, CONNECT_SECONDS) if first_address else seconds,
            first_address=first_address,
        )
        with naming_server(self.config):
            return await connect(
                _Reporting(server, self.connected),
                request_head(config, where, options.query, options.agent),
                user,
                clock=self.reactor,
                timeout_seconds=seconds,
                protocols=protocols or options.protocols,
                resume=header,
                silence_seconds=options.silence_seconds,
                must_record=bool(options.record),
            )


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _Reporting:
    endpoint: IStreamClientEndpoint
    connected: Callable[[], None]

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        def report(protocol: IProtocol) -> IProtocol:
            self.connected()
            return protocol

        return self.endpoint.connect(protocolFactory).addCallback(report)


async def _again(
    config: ClientConfig, reactor: Any, opened: Callable[[ClientConfig], Awaitable[ConsoleClient]]
) -> ConsoleClient:
    try:
        return await with_current_credentials(config, reactor, opened)
    except KubeConfigError as problem:
        raise BadGateway(str(problem)) from None
