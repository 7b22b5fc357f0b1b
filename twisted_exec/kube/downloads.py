"""Downloads of an API server."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import naming_server
from twisted_exec.streaming.http.upgrade_client import (
    AskingFactory,
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect,
)
from twisted_exec.streaming.text.download import ANY_DOWNLOADS, Download


async def open_download(
    config: ClientConfig,
    head: UpgradeRequest,
    reactor: Any,
    timeout_seconds: float,
    *,
    server: IStreamClientEndpoint | None = None,
    factory: AskingFactory = ANY_DOWNLOADS,
) -> Download:
    """
    Send a request; fires when the answer begins.

    :param timeout_seconds: for the connection, and again for the head of the answer.
    :raises APIError: the server refuses, or cannot be reached.
    """
    server = server or endpoint(config, reactor, timeout_seconds=timeout_seconds)
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
