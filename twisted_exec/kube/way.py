"""
Where a stream of an API server begins: what a hop in the middle needs to go there.

The stream itself is nobody's business here; see :mod:`twisted_exec.streaming.proxy` and
:mod:`twisted_exec.streaming.relay`, which take the :class:`~twisted_exec.streaming.interfaces.Location`
from here and carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.kube.config import ClientConfig, Impersonation
from twisted_exec.kube.connection import Connecting, endpoint, host_header, identity_headers
from twisted_exec.kube.credentials import settled
from twisted_exec.streaming.interfaces import Location, Subject
from twisted_exec.wire.channel import Channel

CONNECT_SECONDS = 3.0
"""The hop in front waits for us as well: it is to hear what is wrong, not to guess."""


@dataclass(frozen=True)
class Way:
    """
    How an API server is reached, and as whom.

    :param config: its kubeconfig as it is now.
    :param label: what it is called in messages, such as ``the target cluster``.
    :param connecting: makes the endpoint, such as one whose connections are shared.
    """

    config: Callable[[], ClientConfig]
    label: str
    reactor: Any
    connect_seconds: float = CONNECT_SECONDS
    connecting: Connecting = endpoint

    async def to(
        self,
        subject: Subject,
        path: str,
        *,
        query: bytes = b"",
        acting: Impersonation | None = None,
        streams: Collection[Channel] | None = None,
    ) -> Location:
        """
        Where a path of that server is.

        :param path: percent-encoded, from ``/api`` or ``/apis`` on.
        :param query: percent-encoded, without its question mark.
        :param acting: whom we act as; without it, whom the configuration says.
        :param streams: see :class:`~twisted_exec.streaming.interfaces.Location`.
        :raises KubeConfigError: our credentials cannot be had.
        """
        config = await settled(self.config(), self.reactor)
        if acting is not None:
            config = replace(config, impersonate=acting)
        again = partial(self.to, subject, path, query=query, acting=acting, streams=streams)
        whole = (config.url.path.rstrip("/") + path).encode("ascii")
        return Location(
            subject=subject,
            endpoints=[
                (
                    self.label,
                    self.connecting(config, self.reactor, timeout_seconds=self.connect_seconds),
                )
            ],
            path=whole + (b"?" + query if query else b""),
            host=host_header(config),
            headers=identity_headers(config),
            streams=streams,
            later=lambda: Deferred.fromCoroutine(again()),
        )
