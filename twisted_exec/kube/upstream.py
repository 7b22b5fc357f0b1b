"""API servers as upstreams of proxied streams."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.kubeconfig.headers import host_header, identity_headers
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.tls.deadlines import LONGEST_SECONDS
from twisted_exec.wire.channel import Channel

CONNECT_SECONDS = 3.0
"""Time limit of a connection, shorter than that of the hop before us."""


@dataclass(frozen=True)
class Upstream:
    """An API server as an upstream, with our credentials for it."""

    config: Callable[[], ClientConfig]
    label: str
    reactor: Any
    connect_seconds: float = LONGEST_SECONDS

    async def to(
        self,
        path: str,
        *,
        query: bytes = b"",
        acting: ImpersonatedUser | None = None,
        streams: Collection[Channel] | None = None,
    ) -> Location:
        """
        Return the location of a path of that server.

        :param acting: the user to impersonate; by default the configuration's.
        :param path: percent-encoded, starting with ``/api`` or ``/apis``.
        :param query: percent-encoded, without its question mark.
        :raises KubeConfigError: there are no usable credentials.
        """
        config = await settled(self.config(), self.reactor)
        if acting is not None:
            config = replace(config, impersonate=acting)
        to = partial(self.to, path, query=query, acting=acting, streams=streams)

        async def renew(reason: Renewal) -> Location | None:
            return None if reason is Renewal.FORM else await to()

        whole = (config.url.path.rstrip("/") + path).encode("ascii")
        return Location(
            endpoints=[
                (self.label, endpoint(config, self.reactor, timeout_seconds=self.connect_seconds))
            ],
            path=whole + (b"?" + query if query else b""),
            host=host_header(config),
            headers=identity_headers(config),
            streams=streams,
            renew=lambda reason: Deferred.fromCoroutine(renew(reason)),
        )
