"""
A machine's screen, from the user's side of an API server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.screens import ScreenOptions
from twisted_exec.api.status import BadGateway
from twisted_exec.kube.consoles.exec import (
    TIMEOUT_SECONDS,
    naming_server,
    opened_among,
    request_head,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport.connection import endpoint
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, connect
from twisted_exec.streaming.text.download import ANY_DOWNLOADS, Download, fetch

_LARGEST = 64 << 20


async def read_screen(
    config: ClientConfig,
    namespace: str,
    name: str,
    options: ScreenOptions,
    reactor: Any,
    *,
    among: Sequence[Dialect] = DIALECTS,
    timeout_seconds: float = TIMEOUT_SECONDS,
    agent: str = "twisted-exec",
) -> bytes:
    """
    Return the screen of a machine.

    :param among: as of :func:`~twisted_exec.kube.consoles.exec.open_console`.
    :raises APIError: the server refuses, or cannot be reached.
    :raises KubeConfigError: there are no usable credentials.
    """

    async def opened(config: ClientConfig, dialect: Dialect) -> Download:
        where = dialect.workload.path(namespace, name, "screen")
        head = request_head(config, where, options.query(), agent)
        server = endpoint(config, reactor, timeout_seconds=timeout_seconds)
        try:
            with naming_server(config):
                connection = await connect(
                    server, clock=reactor, timeout_seconds=timeout_seconds, factory=ANY_DOWNLOADS
                )
                return await fetch(connection, head, clock=reactor, timeout_seconds=timeout_seconds)
        except UpgradeRefused as refused:
            raise refused.as_api_error() from None

    download = await opened_among(opened, config, reactor, among, timeout_seconds, None)
    ended: Deferred[bool] = Deferred(lambda _: download.abort())
    body = bytearray()

    def take(data: bytes) -> None:
        body.extend(data)
        if len(body) > _LARGEST:
            download.abort()
            ended.callback(False)

    download.deliver(take, ended.callback)
    if not await ended:
        raise BadGateway(
            f"the screen is incomplete: the connection was lost, or it has more than {_LARGEST >> 20} MiB; "
            "try again"
        )
    return bytes(body)
