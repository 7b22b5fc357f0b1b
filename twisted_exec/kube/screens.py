"""A machine's screen, from the user's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.screens import ScreenForm, ScreenOptions, TerminalState, parse_state
from twisted_exec.api.status import BadGateway, GatewayTimeout
from twisted_exec.kube.downloads import open_download
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS, opened_among, request_head
from twisted_exec.streaming.text.download import Download

_LARGEST = 64 << 20


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

    async def opened(config: ClientConfig, dialect: Dialect) -> Download:
        where = dialect.workload.path(namespace, name, "screen")
        head = request_head(config, where, _query(options, reason), agent)
        return await open_download(config, head, reactor, timeout_seconds)

    download = await opened_among(opened, config, reactor, among, timeout_seconds, None)
    return await _read(download, reactor, timeout_seconds)


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
    query = _query(ScreenOptions(form=ScreenForm.STATE, size=size), reason)
    head = request_head(config, path, query, agent)
    download = await open_download(config, head, reactor, timeout_seconds)
    return parse_state(await _read(download, reactor, timeout_seconds))


def _query(options: ScreenOptions, reason: str) -> bytes:
    query = options.query()
    return query + f"&reason={quote(reason, safe='')}".encode("ascii") if reason else query


async def _read(download: Download, clock: IReactorTime, timeout_seconds: float) -> bytes:
    ended: Deferred[bool] = Deferred(lambda _: download.abort())
    body = bytearray()

    def take(data: bytes) -> None:
        body.extend(data)
        if len(body) > _LARGEST:
            download.abort()
            ended.callback(False)

    download.deliver(take, ended.callback)
    try:
        is_complete = await ended.addTimeout(timeout_seconds, clock)
    except TimeoutError:
        raise GatewayTimeout(
            f"the screen did not arrive within {timeout_seconds:g} s; try again"
        ) from None
    if not is_complete:
        raise BadGateway(
            f"the screen is incomplete: the connection was lost, or it has more than {_LARGEST >> 20} MiB; "
            "try again"
        )
    return bytes(body)
