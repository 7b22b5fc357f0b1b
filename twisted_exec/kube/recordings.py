"""The content of a recording."""

from __future__ import annotations

from typing import Any, BinaryIO

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import CONTENT
from twisted_exec.api.status import BadGateway
from twisted_exec.kube.downloads import open_download
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import (
    TIMEOUT_SECONDS,
    request_head,
    with_current_credentials,
)
from twisted_exec.streaming.text.download import Download


async def read_recording(
    config: ClientConfig,
    namespace: str,
    name: str,
    file: BinaryIO,
    reactor: Any,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    agent: str = "twisted-exec",
) -> None:
    """
    Write the content of a recording to a file.

    :raises APIError: the server refuses, cannot be reached, or sends a part only.
    :raises KubeConfigError: there are no usable credentials.
    :raises OSError: the file cannot be written.
    """

    async def opened(config: ClientConfig) -> Download:
        where = CONSOLERECORDINGS.resource.path(namespace, name, CONTENT)
        head = request_head(config, where, b"", agent)
        return await open_download(config, head, reactor, timeout_seconds)

    download = await with_current_credentials(config, reactor, opened)
    ended: Deferred[bool] = Deferred(lambda _: download.abort())

    def take(data: bytes) -> None:
        try:
            file.write(data)
        except OSError:  # such as a full disk
            download.abort()
            ended.errback(Failure())

    download.deliver(take, ended.callback)
    if not await ended:
        raise BadGateway(f'recording "{name}" is incomplete: the connection was lost; try again')
