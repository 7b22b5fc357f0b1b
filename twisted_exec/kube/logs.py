"""
A machine's log, from the user's side.

A log that is cut off can continue at its offset (:mod:`twisted_exec.streaming.text.resumption`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.dialects import DEFAULT, DIALECTS, Dialect
from twisted_exec.api.kinds import DELETEDCONSOLES
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, BadGateway, NotFound
from twisted_exec.kube.downloads import open_download, receive
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS, opened_among
from twisted_exec.streaming.text.download import DOWNLOADS, Download
from twisted_exec.streaming.text.resumption import FramedText, ResumedLog
from twisted_exec.wire.log_frames import Framing


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
