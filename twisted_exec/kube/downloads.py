"""Texts of an API server that are read as they arrive, such as a machine's screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.screens import ScreenForm, ScreenOptions, TerminalState, parse_state
from twisted_exec.api.status import BadGateway, GatewayTimeout
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import (
    TIMEOUT_SECONDS,
    naming_server,
    opened_among,
    request_head,
)
from twisted_exec.streaming.http.upgrade_client import AskingFactory, UpgradeRefused, ask, connect
from twisted_exec.streaming.text.download import ANY_DOWNLOADS, Download

if TYPE_CHECKING:
    from twisted_exec.streaming.text.resumption import ResumedLog

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
