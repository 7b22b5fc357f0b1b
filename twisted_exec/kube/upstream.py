"""
Where a stream of an API server begins: what a hop in the middle needs to go there.

The stream itself is nobody's business here; see :mod:`twisted_exec.streaming.proxy` and
:mod:`twisted_exec.streaming.text.relay`, which take the :class:`~twisted_exec.streaming.interfaces.Location`
from here and carry it.

An API server whose connections are shared by all that ask it as the same client.

As the same client: with the same certificate, and with the same headers that say who we are.  Renewed
credentials are another client: what is asked with them goes over a connection of theirs, and what was
asked before goes on where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.kube.credentials.cache import settled
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Impersonation
from twisted_exec.kube.transport.connection import (
    Connecting,
    connection_stamp,
    endpoint,
    host_header,
    identity_headers,
)
from twisted_exec.streaming.interfaces import Location, Subject
from twisted_exec.streaming.text.shared_downloads import OFFERED, SharedDownloads
from twisted_exec.wire.channel import Channel


def sharing(shared: SharedDownloads) -> Connecting:
    """
    Makes endpoints for downloads: one connection carries many.

    Without TLS nothing can be chosen, and through a proxy each has a connection of its own.
    """

    def connecting(
        config: ClientConfig, reactor: Any, *, timeout_seconds: float
    ) -> IStreamClientEndpoint:
        if config.url.scheme != "https" or config.proxy_url:
            return endpoint(config, reactor, timeout_seconds=timeout_seconds)
        inner = endpoint(config, reactor, timeout_seconds=timeout_seconds, offered=OFFERED)
        return shared.endpoint((connection_stamp(config), _who(config)), inner)

    return connecting


def _who(config: ClientConfig) -> bytes:
    """Equal for the same headers; a key that is kept holds no credentials."""
    digest = hashlib.sha256()
    for pair in identity_headers(config):
        for part in pair:
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


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
