"""
A leaf whose API server accepts connections and does not answer, as a frozen process does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.protocol import Factory, Protocol

from tests.chain import reactor
from tests.nodeserver.stream_chain import SPDY_HEAD, ChainTestCase
from twisted_exec.nodeserver.kubelet_api.logs import log_routes
from twisted_exec.nodeserver.kubelet_api.run import run_routes
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.tls.endpoints import server_endpoint

LOG = "/containerLogs/default/web/main"


class FrozenTests(ChainTestCase):
    """Requests for a Pod in a frozen leaf."""

    connect_seconds = 0.2

    def routes(self) -> Any:
        return [
            *stream_routes(self.collaborators),
            *log_routes(self.collaborators),
            *run_routes(self.collaborators),
        ]

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        silent = Factory.forProtocol(Protocol)
        port: Any = await server_endpoint(reactor, "tcp:0:interface=127.0.0.1").listen(silent)
        self.addCleanup(port.stopListening)
        self.leaf.told = replace(self.config, server=f"https://127.0.0.1:{port.getHost().port}")

    async def test_same_limit(self) -> None:
        """Every request ends after the same time, and the message has that time."""
        for target, *more in (
            ("/exec/default/web/main?command=sh&output=1",),
            ("/attach/default/web/main?output=1",),
            ("/portForward/default/web",),
            (LOG, "GET"),
            (f"{LOG}?follow=true", "GET"),
            ("/run/default/web/main?cmd=ls", "POST"),
        ):
            lines = [b"Content-Length: 0"] if more else SPDY_HEAD
            code, body = await self.refused(target, *lines, method=(*more, "POST")[0])
            self.assertEqual(code, 504, target)
            self.assertIn('leaf "one": its program does not answer: no TLS handshake', body)
            self.assertIn(f"within {self.connect_seconds:g} s", body)
