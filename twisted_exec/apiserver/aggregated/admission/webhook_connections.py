"""
Connections to webhooks.

Redirects are not followed: they would send objects elsewhere.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, gatherResults

from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission.webhook_configurations import Callee
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.transport import HTTPTransport, Request

MAX_RESPONSE_BYTES = 4 << 20
"""Room for a patch of the largest object."""

_KEPT = 200
_AGENT = "exec-apiserver-admission"


class CallFailed(Exception):
    """A webhook could not be reached or gave no usable response."""


class WebhookConnections:
    """Connections to webhooks, reused."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._kept: OrderedDict[Callee, HTTPTransport] = OrderedDict()

    def close(self) -> Deferred[None]:
        """Close idle connections."""
        transports, self._kept = list(self._kept.values()), OrderedDict()
        closing = gatherResults([each.close() for each in transports])
        return closing.addCallback(lambda _: None)

    async def post(self, callee: Callee, body: bytes, seconds: float) -> bytes:
        """
        Send a review to a webhook.

        :param seconds: total time limit.
        :return: the body of the response.
        :raises CallFailed: there is no usable response.
        """
        target = f"{urlsplit(callee.url).path}?timeout={math.ceil(seconds)}s"
        try:
            code, _headers, answer = await self._to(callee).collect(
                Request("POST", target, body),
                timeout_seconds=seconds,
                limit_bytes=MAX_RESPONSE_BYTES,
            )
        except APIError as error:
            raise CallFailed(error.message) from None
        if 300 <= code < 400:
            raise CallFailed(f"{callee.url} answered {code}; redirects are not followed")
        if not 200 <= code < 300:
            raise CallFailed(f"{callee.url} answered {code}")
        return answer

    def _to(self, callee: Callee) -> HTTPTransport:
        transport = self._kept.get(callee)
        if transport is None:
            transport = self._kept[callee] = self._new(callee)
            if len(self._kept) > _KEPT:
                _, oldest = self._kept.popitem(last=False)
                oldest.close()
        self._kept.move_to_end(callee)
        return transport

    def _new(self, callee: Callee) -> HTTPTransport:
        server = urlsplit(callee.url)
        config = ClientConfig(
            f"https://{server.netloc}",
            ca=Material(callee.ca),
            tls_server_name=callee.server_name,
        )
        return HTTPTransport(config, self._reactor, agent=_AGENT, peer="the webhook")
