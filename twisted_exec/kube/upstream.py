"""API servers as upstreams of proxied streams."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.credentials import settled
from twisted_exec.kube.kubeconfig.headers import host_header, identity_headers
from twisted_exec.streaming.location import Location, Renewal, Upstream
from twisted_exec.tls.deadlines import LONGEST_SECONDS
from twisted_exec.wire.channel import Channel

CONNECT_SECONDS = 3.0
"""Time limit of a connection, shorter than that of the hop before us."""


class ServerUpstream(Upstream):
    """
    An API server as the next hop, with our credentials for it.

    :param path: percent-encoded, starting with ``/api`` or ``/apis``.
    :param query: percent-encoded, without its question mark.
    :param impersonate: the user to impersonate; by default the configuration's.
    """

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        label: str,
        reactor: Any,
        path: str,
        *,
        query: bytes = b"",
        impersonate: ImpersonatedUser | None = None,
        streams: Collection[Channel] | None = None,
        connect_seconds: float = LONGEST_SECONDS,
    ) -> None:
        super().__init__()
        self._config, self._label, self._reactor = config, label, reactor
        self._path, self._query, self._streams = path, query, streams
        self._impersonate, self._connect_seconds = impersonate, connect_seconds

    async def locate(self) -> Location:
        """
        Return the location, with the current credentials.

        :raises KubeConfigError: there are no usable credentials.
        """
        config = await settled(self._config(), self._reactor)
        if self._impersonate is not None:
            config = replace(config, impersonate=self._impersonate)
        whole = (config.url.path.rstrip("/") + self._path).encode("ascii")
        to = endpoint(config, self._reactor, timeout_seconds=self._connect_seconds)
        return Location(
            endpoints=[(self._label, to)],
            path=whole + (b"?" + self._query if self._query else b""),
            host=host_header(config),
            upstream=self,
            headers=identity_headers(config),
            streams=self._streams,
        )

    async def renew(self, location: Location, reason: Renewal) -> Location:
        return location if reason is Renewal.FORM else await self.locate()
