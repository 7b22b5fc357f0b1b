"""
Asking a webhook: one POST over verified TLS, bounded in time and size.

The server is believed for its name and the CA that its configuration brings, and nothing is
shown to it but the review.  A redirect is not followed: it would take the objects elsewhere.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, gatherResults

from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission.hooks import Callee
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.transport.http import HTTPTransport, Request

MAX_ANSWER_BYTES = 4 << 20
"""More than a patch of the largest object there may be."""

_KEPT = 200
_AGENT = "exec-apiserver-admission"


class CallFailed(Exception):
    """A webhook could not be asked, or gave no answer; the message is one line."""


class Calls:
    """
    Connections to webhooks, kept for as long as they are used.

    :param reactor: a real reactor (sockets and time).
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._kept: OrderedDict[Callee, HTTPTransport] = OrderedDict()

    def close(self) -> Deferred[None]:
        """Close idle connections; fires when they are closed."""
        kept, self._kept = list(self._kept.values()), OrderedDict()
        closing = gatherResults([each.close() for each in kept])
        return closing.addCallback(lambda _: None)

    async def ask(self, callee: Callee, body: bytes, seconds: float) -> bytes:
        """
        :param seconds: for all of it.
        :return: the body of the answer.
        :raises CallFailed: there was none, or it was no success.
        """
        target = f"{urlsplit(callee.url).path}?timeout={math.ceil(seconds)}s"
        try:
            code, _headers, answer = await self._to(callee).collect(
                Request("POST", target, body),
                timeout_seconds=seconds,
                limit_bytes=MAX_ANSWER_BYTES,
            )
        except APIError as error:
            raise CallFailed(error.message) from None
        if 300 <= code < 400:
            raise CallFailed(f"{callee.url} answered {code}; redirects are not followed")
        if not 200 <= code < 300:
            raise CallFailed(f"{callee.url} answered {code}")
        return answer

    def _to(self, callee: Callee) -> HTTPTransport:
        found = self._kept.get(callee)
        if found is None:
            found = self._kept[callee] = self._new(callee)
            if len(self._kept) > _KEPT:
                _, oldest = self._kept.popitem(last=False)
                oldest.close()
        self._kept.move_to_end(callee)
        return found

    def _new(self, callee: Callee) -> HTTPTransport:
        server = urlsplit(callee.url)
        config = ClientConfig(
            f"https://{server.netloc}",
            ca=Material(callee.ca),
            tls_server_name=callee.server_name,
        )
        return HTTPTransport(config, self._reactor, agent=_AGENT, peer="the webhook")
