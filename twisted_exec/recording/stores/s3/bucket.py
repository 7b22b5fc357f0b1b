"""
Signed requests to one bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred

from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport.http import HTTPTransport, Request
from twisted_exec.recording.stores.interfaces import StoreError

from .signing import Credentials, Signer, query
from .target import Target

_ANSWER_BYTES = 4 << 20
_SECONDS = 60.0
_BODY_SECONDS = 600.0
"""Time limit of a request with a body."""
_EMPTY_DIGEST = sha256(b"").hexdigest()


class Transport(Protocol):
    """The methods of :class:`HTTPTransport` that a bucket needs."""

    async def collect(
        self, request: Request, *, timeout_seconds: float, limit_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """See :meth:`HTTPTransport.collect`."""

    def close(self) -> Deferred[None]:
        """See :meth:`HTTPTransport.close`."""


@dataclass(frozen=True)
class Call:
    """
    A request.

    :param key: of the object; empty for the bucket.
    :param payload: SHA-256 of the body in hexadecimal digits; empty if the caller does not know it.
    """

    method: str
    key: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    payload: str = ""
    limit_bytes: int = _ANSWER_BYTES


class Bucket:
    """
    Sends requests to a bucket.

    :param credentials: returns the present credentials, or raises :class:`StoreError`.
    :param now: returns the time of day in UTC.
    """

    def __init__(
        self,
        target: Target,
        credentials: Callable[[], Credentials],
        transport: Transport,
        now: Callable[[], datetime],
    ) -> None:
        self.target = target
        self._credentials, self._transport, self._now = credentials, transport, now

    async def send(self, call: Call) -> tuple[int, bytes]:
        """
        Send a request; return code and body of the answer, which may be a refusal.

        :raises StoreError: the bucket does not answer, or there are no credentials.
        """
        path = self.target.root + call.key
        payload = call.payload or (sha256(call.body).hexdigest() if call.body else _EMPTY_DIGEST)
        signed = Signer(self._credentials(), self.target.region).sign(
            call.method,
            path,
            call.parameters,
            {"host": self.target.host, **call.headers},
            payload,
            self._now(),
        )
        request = Request(
            call.method,
            f"{path}?{query(call.parameters)}" if call.parameters else path,
            call.body,
            "application/octet-stream",
            headers=signed,
        )
        try:
            code, _, body = await self._transport.collect(
                request,
                timeout_seconds=_BODY_SECONDS if call.body else _SECONDS,
                limit_bytes=call.limit_bytes,
            )
        except CancelledError:
            raise
        except (APIError, KubeConfigError) as problem:
            raise StoreError("unreachable", str(problem)) from None
        return code, body

    def close(self) -> Deferred[None]:
        """Close connections."""
        return self._transport.close()


def transport_of(target: Target, reactor: Any) -> HTTPTransport:
    """
    Return the connections to a bucket.

    :raises KubeConfigError: the proxy in the environment is not the URL of a proxy.
    """
    config = ClientConfig(
        server=target.server,
        ca=Material(path=target.ca),
        proxy_url=proxy_for(target.endpoint, os.environ),
    )
    return HTTPTransport(config, reactor, peer="the bucket")
