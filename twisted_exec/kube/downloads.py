"""
Texts of an API server that are read as they arrive: a machine's log and screen, and recordings.

A log that is cut off can continue at its offset (:mod:`twisted_exec.streaming.text.resumption`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from twisted_exec.api.dialects import DEFAULT, DIALECTS, Dialect
from twisted_exec.api.kinds import DELETEDCONSOLES
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.resource import Resource
from twisted_exec.api.screens import ScreenForm, ScreenOptions, TerminalState, parse_state
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout, NotFound
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import (
    TIMEOUT_SECONDS,
    naming_server,
    opened_among,
    request_head,
)
from twisted_exec.streaming.http.upgrade_client import AskingFactory, UpgradeRefused, ask, connect
from twisted_exec.streaming.text.download import ANY_DOWNLOADS, DOWNLOADS, Download
from twisted_exec.streaming.text.resumption import FramedText, ResumedLog
from twisted_exec.wire.log_frames import Framing

_MAX_SCREEN_BYTES = 64 << 20


async def open_download(
    config: ClientConfig,
    where: str,
    query: bytes,
    reactor: Any,
    *,
    timeout_seconds: float,
    agent: str,
    server: IStreamClientEndpoint | None = None,
    factory: AskingFactory = ANY_DOWNLOADS,
) -> Download:
    """
    Send a GET; fires when the answer begins.

    :param timeout_seconds: for the connection, and again for the head of the answer.
    :raises APIError: the server refuses, or cannot be reached.
    """
    server = server or endpoint(config, reactor, timeout_seconds=timeout_seconds)
    head = request_head(config, where, query, agent)
    try:
        with naming_server(config):
            connection = await connect(
                server, clock=reactor, timeout_seconds=timeout_seconds, factory=factory
            )
            download: Download = await ask(
                connection, head, clock=reactor, timeout_seconds=timeout_seconds
            )
            return download
    except UpgradeRefused as refused:
        raise refused.as_api_error() from None


def receive(text: Download | ResumedLog, take: Callable[[bytes], object]) -> Deferred[bool]:
    """
    Pass a text on to its end.

    :param take: called with each piece; its exception ends the text.
    :return: fires with whether the text is complete; fails as ``take``.
    """
    ended: Deferred[bool] = Deferred(lambda _: text.abort())

    def received(data: bytes) -> None:
        try:
            take(data)
        except Exception:  # such as a broken pipe, or a full disk
            text.abort()
            ended.errback(Failure())

    text.deliver(received, ended.callback)
    return ended


async def read_screen(
    config: ClientConfig,
    namespace: str,
    name: str,
    options: ScreenOptions,
    reactor: Any,
    *,
    reason: str = "",
    among: Sequence[Dialect] = DIALECTS,
    timeout_seconds: float = TIMEOUT_SECONDS,
    agent: str = "twisted-exec",
) -> bytes:
    """
    Return the screen of a machine.

    :param reason: of the user, which a policy may require; empty for none.
    :param timeout_seconds: for each step.
    :raises APIError: the server refuses, cannot be reached, or does not send the whole screen in
        time.
    :raises KubeConfigError: there are no usable credentials.
    """

    async def read(config: ClientConfig, dialect: Dialect) -> bytes:
        where = dialect.workload.path(namespace, name, "screen")
        return await _read(config, where, options, reason, reactor, timeout_seconds, agent)

    return await opened_among(read, config, reactor, among, timeout_seconds, None)


async def read_state(
    config: ClientConfig,
    path: str,
    size: tuple[int, int],
    reactor: Any,
    *,
    reason: str,
    timeout_seconds: float,
    agent: str,
) -> TerminalState:
    """
    Return the state of a console for a terminal that takes over from there.

    :raises APIError: the server refuses, cannot be reached, or does not send the whole state in time.
    :raises KubeConfigError: there are no usable credentials.
    :raises ValueError: the answer is not valid.
    """
    options = ScreenOptions(form=ScreenForm.STATE, size=size)
    return parse_state(await _read(config, path, options, reason, reactor, timeout_seconds, agent))


async def _read(
    config: ClientConfig,
    where: str,
    options: ScreenOptions,
    reason: str,
    reactor: Any,
    seconds: float,
    agent: str,
) -> bytes:
    query = options.query()
    if reason:
        query += f"&reason={quote(reason, safe='')}".encode("ascii")
    download = await open_download(
        config, where, query, reactor, timeout_seconds=seconds, agent=agent
    )
    incomplete = BadGateway(
        "the screen is incomplete: the connection was lost, or it has more than "
        f"{_MAX_SCREEN_BYTES >> 20} MiB; try again"
    )
    body = bytearray()

    def take(data: bytes) -> None:
        body.extend(data)
        if len(body) > _MAX_SCREEN_BYTES:
            raise incomplete

    try:
        if not await receive(download, take).addTimeout(seconds, reactor):
            raise incomplete
    except TimeoutError:
        late = f"the screen did not arrive within {seconds:g} s; try again"
        raise GatewayTimeout(late) from None
    return bytes(body)


class MachineLog:
    """
    The log of one machine.

    :param resource: the object of the log, if it is not a machine.
    :param lost: called with the reason of an outage, and with ``None`` when the log continues.
    :param since_option: as of :class:`.ResumedLog`.
    :param has_frames: deliver frames, encoded as in :mod:`twisted_exec.wire.log_frames`, of a log with such.
    """

    def __init__(
        self,
        config: ClientConfig,
        namespace: str,
        name: str,
        reactor: Any,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        server: IStreamClientEndpoint | None = None,
        among: Sequence[Dialect] = DIALECTS,
        resource: Resource | None = None,
        agent: str = "twisted-exec",
        lost: Callable[[str | None], None] = lambda why: None,
        since_option: str = "",
        has_frames: bool = False,
    ) -> None:
        self._config, self._namespace, self._name = config, namespace, name
        self._reactor, self._timeout_seconds = reactor, timeout_seconds
        self._server, self._among, self._agent, self._lost = server, among, agent, lost
        self._resource, self._since_option = resource, since_option
        self._has_frames = has_frames

    async def read(
        self,
        options: LogOptions,
        data: Callable[[bytes], None],
        opened: Callable[[Download | ResumedLog], None] = lambda log: None,
    ) -> None:
        """
        Read the log to its end.

        :param options: with ``frames`` if the log is to continue after a loss.
        :param data: called with each piece of text; its exception ends the log, and is raised here.
        :param opened: called before the first text with the log, which can be paused.
        :raises APIError: the server refuses, cannot be reached, or the log was cut off.
        :raises KubeConfigError: there are no usable credentials.
        """
        download = await self._open(options)
        framing = Framing.of(download.headers) if options.frames else None
        log: Download | ResumedLog = download
        if framing is not None:
            log = ResumedLog(
                FramedText(download, framing),
                options,
                self._again,
                self._reactor,
                has_frames=self._has_frames,
                lost=self._lost,
                since_option=self._since_option,
            )
        opened(log)
        if await receive(log, data):
            return
        if isinstance(log, ResumedLog) and log.ending is not None:
            raise BadGateway(f"the log was cut off: {log.ending.message}")
        raise BadGateway("the log was cut off")

    async def _again(self, options: LogOptions) -> FramedText:
        try:
            download = await self._open(options)
        except KubeConfigError as problem:  # such as a file that is being written
            raise BadGateway(str(problem)) from None
        framing = Framing.of(download.headers)
        if framing is None:
            download.abort()
            raise APIError("this server cannot continue the log", code=501)
        return FramedText(download, framing)

    async def _open(self, options: LogOptions) -> Download:
        async def opened(config: ClientConfig, dialect: Dialect) -> Download:
            return await self._opened(options, config, dialect)

        return await opened_among(
            opened, self._config, self._reactor, self._among, self._timeout_seconds, self._server
        )

    async def _opened(
        self, options: LogOptions, config: ClientConfig, dialect: Dialect
    ) -> Download:
        resource = self._resource or dialect.workload
        download = await open_download(
            config,
            resource.path(self._namespace, self._name, "log"),
            options.query(),
            self._reactor,
            timeout_seconds=self._timeout_seconds,
            agent=self._agent,
            server=self._server,
            factory=DOWNLOADS,
        )
        self._among = (dialect,)
        return download


async def deleted_log(
    config: ClientConfig, namespace: str, machine: str, reactor: Any, **more: Any
) -> MachineLog:
    """
    Return the log of a deleted machine, the newest of that name.

    :raises APIError: the server knows of no such machine, or refuses.
    :raises KubeConfigError: there are no usable credentials.
    """
    # Imported here: other logs need no client, and the program starts faster without it.
    from twisted_exec.kube.client import KubeClient

    client = KubeClient(config, reactor)
    resource = DELETEDCONSOLES.resource
    try:
        listed = await client.list(resource, namespace, field_selector=f"spec.machine={machine}")
    finally:
        await client.close()
    if not listed["items"]:
        message = f'there is no console of a deleted machine "{machine}"'
        raise NotFound(resource.plural, machine, resource.group, message)
    newest = max(listed["items"], key=lambda each: str(each["spec"]["deletionTime"]))
    name = newest["metadata"]["name"]
    return MachineLog(config, namespace, name, reactor, among=(DEFAULT,), resource=resource, **more)
