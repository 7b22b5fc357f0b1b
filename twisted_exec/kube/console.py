"""A machine's console, from the user's side of an API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.display import display_name
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    MethodNotAllowed,
    NotFound,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import (
    endpoint,
    explain_refusal,
    host_header,
    identity_headers,
)
from twisted_exec.kube.kubeconfig.credentials import renewed, settled
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.remotecommand.client import (
    ATTEMPTS,
    SILENCE_SECONDS,
    ConsoleClient,
    connect,
)
from twisted_exec.streaming.remotecommand.first_user import FirstUser
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.resume import MARKS
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

if TYPE_CHECKING:
    from twisted_exec.kube.client import KubeClient
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser, MarkUser
    from twisted_exec.wire.resume import OpenRecording


async def served_dialects(client: KubeClient, among: Iterable[Dialect]) -> Sequence[Dialect]:
    """
    Return the dialects that an API server speaks.

    :raises APIError: discovery failed.
    """
    expected = list(among)
    matches = []
    for group in await client.groups():
        here = [dialect for dialect in expected if dialect.group == group]
        for version in dict.fromkeys(dialect.version for dialect in here):
            names = await _resources(client, group, version)
            matches += [
                dialect
                for dialect in here
                if dialect.version == version and f"{dialect.workload.plural}/exec" in names
            ]
    return matches


async def _resources(client: KubeClient, group: str, version: str) -> Sequence[str]:
    try:
        return await client.resources(group, version)
    except APIError as error:
        if error.code == 404:  # the server has the group in other versions
            return ()
        raise


AGENT = "kubectl-console (twisted-exec)"

TIMEOUT_SECONDS = 30.0
"""Time limit for the connection, and another for the answer."""
CONNECT_SECONDS = 8.0
"""
Time limit of the connection when a session is resumed: a kernel sends less and less the longer it
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
        from twisted_exec.kube.smaller_request import name_smaller_request

        options = self.options
        client = KubeClient(
            config, self.reactor, timeout_seconds=options.timeout_seconds, server=options.server
        )
        try:
            await name_smaller_request(refused, client, dialect, self.namespace, self.name)
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


T = TypeVar("T")


async def with_current_credentials(
    config: ClientConfig, reactor: Any, opened: Callable[[ClientConfig], Awaitable[T]]
) -> T:
    """Open something, after a 401 once more if there are other credentials then."""

    async def opened_with(current: ClientConfig) -> T:
        try:
            return await opened(current)
        except APIError as refused:
            raise explain_refusal(refused, current) from None

    settled_config = await settled(config, reactor)
    try:
        return await opened_with(settled_config)
    except APIError as refused:
        other = await renewed(config, reactor, settled_config) if refused.code == 401 else None
        if other is None:
            raise
    return await opened_with(other)


async def opened_among(
    opened: Callable[[ClientConfig, Dialect], Awaitable[T]],
    config: ClientConfig,
    reactor: Any,
    among: Sequence[Dialect],
    timeout_seconds: float,
    server: IStreamClientEndpoint | None,
) -> T:
    """Open a stream or a download of a machine, whose dialect may be one of several."""

    async def shown_again(dialect: Dialect) -> T:
        def opened_once(shown_config: ClientConfig) -> Awaitable[T]:
            return opened(shown_config, dialect)

        return await with_current_credentials(config, reactor, opened_once)

    first, *others = among
    try:
        return await shown_again(first)
    except APIError as error:
        refused = error
    served: Sequence[Dialect] = ()
    if others and refused.code in (Forbidden.code, NotFound.code):
        served = await _served(config, reactor, among, timeout_seconds, server)
    for dialect in served:
        if dialect == first:
            continue
        try:
            return await shown_again(dialect)
        except APIError as error:
            if first not in served and refused.code in (Forbidden.code, NotFound.code):
                refused, first = error, dialect
    if refused.code == NotFound.code and not refused.details.get("name"):
        # The server may lack the kind or the machine; its 404 does not say which.
        here = await _served(config, reactor, DIALECTS, timeout_seconds, server)
        if first not in here:
            raise _no_such_kind(config.server, first, here)
    raise refused


def _no_such_kind(server: str, expected: Dialect, served: Sequence[Dialect]) -> APIError:
    there = ", ".join(dialect.workload.qualified for dialect in served)
    hint = f"it has {there}" if there else "is it the right cluster?"
    message = f"{server} has no {expected.workload.qualified}; {hint}"
    return APIError(message, code=NotFound.code, reason=NotFound.reason)


async def _served(
    config: ClientConfig,
    reactor: Any,
    among: Sequence[Dialect],
    timeout_seconds: float,
    server: IStreamClientEndpoint | None,
) -> Sequence[Dialect]:
    # Imported here: most consoles need no discovery, and the program starts faster without it.
    from twisted_exec.kube.client import KubeClient

    client = KubeClient(config, reactor, timeout_seconds=timeout_seconds, server=server)
    try:
        return await served_dialects(client, among)
    except APIError:
        return ()
    finally:
        await client.close()


def request_head(config: ClientConfig, where: str, query: bytes, agent: str) -> UpgradeRequest:
    """Return the request for a stream or a download."""
    headers = [(b"User-Agent", agent.encode("ascii")), *identity_headers(config)]
    target = (config.url.path + where).encode("ascii") + (b"?" + query if query else b"")
    return UpgradeRequest(b"GET", target, host_header(config), headers)


@contextmanager
def naming_server(config: ClientConfig) -> Iterator[None]:
    """Name the server in the error if it cannot be reached."""
    try:
        yield
    except (BadGateway, GatewayTimeout) as error:
        # These two classes are raised locally; a 502 of the server is a plain APIError.
        raise type(error)(f"cannot reach {config.server}: {error.message}") from None


def recorded_for(recordings: Sequence[OpenRecording]) -> str:
    """Return for whom a console is recorded, and which input: `ann (input: masked), bob (input: all)`."""
    return ", ".join(f"{display_name(each.user)} (input: {each.input})" for each in recordings)


class RecordingNews:
    """
    The recordings of a console that the user of one session knows of.

    Messages are ends of a sentence, such as ``recorded for ann (input: masked)``.
    """

    def __init__(self) -> None:
        self.present = ""
        self._recorded = ""
        self._recordings: tuple[OpenRecording, ...] | None = None

    def begun(self, recorded: str) -> str:
        """
        Take note of the session's beginning.

        :param recorded: the input that this session wants recorded.
        :return: the message, or empty.
        """
        self._recorded = recorded
        self.present = f"recorded (input: {recorded})" if recorded else ""
        return self.present

    def changed(self, recordings: tuple[OpenRecording, ...] | None) -> str:
        """
        Take note of the recordings that go on.

        :param recordings: ``None`` if the server does not know them.
        :return: the message, or empty.
        """
        before = self._recordings
        if recordings == before or not (recordings or before):
            return ""
        self._recordings = recordings
        self.present = f"recorded for {recorded_for(recordings)}" if recordings else ""
        if before is None and [each.input for each in recordings or ()] == [self._recorded]:
            return ""  # the message at the beginning has said it
        return self.present or "not recorded any more"
