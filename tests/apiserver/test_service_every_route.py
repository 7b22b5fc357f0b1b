"""
Every route refuses unauthenticated users, and every route of a stream is listed here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor

from tests.apiserver.chain import ChainTestCase
from tests.chain import PATIENCE_SECONDS
from twisted_exec.apiserver.service import APIServer
from twisted_exec.auth.dispatcher import GatedEndpoint
from twisted_exec.kube.kubeconfig.client_config import Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.transport import HTTPTransport, Request

reactor: Any = _reactor

STREAMS = {
    "/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines/{}/console",
    "/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines/{}/exec",
    "/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines/{}/log",
    "/apis/compute.ironcore.dev/v1alpha1/namespaces/{}/machines/{}/screen",
    "/apis/console.twisted-exec.dev/v1alpha1/namespaces/{}/consolerecordings/{}/content",
    "/apis/console.twisted-exec.dev/v1alpha1/namespaces/{}/deletedconsoles/{}/log",
    "/api/v1/namespaces/{}/pods/{}/attach",
    "/api/v1/namespaces/{}/pods/{}/exec",
    "/api/v1/namespaces/{}/pods/{}/log",
}
"""To add a stream, list it here, and its authorization and audit in the table of threats."""


ENDED = {path for path in STREAMS if path.endswith(("machines/{}/console", "machines/{}/exec"))}
"""
``DELETE`` ends a session, and ``PATCH`` changes its terms, for the user that opened it; they
authenticate the sender themselves.
"""
OPEN = {"/healthz", "/livez", "/readyz"}
"""Unauthenticated users get a single word."""
PAGE = {"/console", "/console/", *("/console" + depth * "/{}" for depth in range(1, 5))}
"""The web console contains no data."""


def routes(server: APIServer) -> list[tuple[str, str, GatedEndpoint]]:
    """Method, pattern with ``{}``, and endpoint of each route of a server."""
    table = server._parts.dispatcher._routes  # A request shows one route, and these are to be all.
    return [
        (method, re.sub(r"{\w+}", "{}", pattern), endpoint)
        for method, pattern, endpoint in table
        if method != "HEAD"
    ]


class EveryRouteTests(ChainTestCase):
    """All routes of a server that is alone."""

    async def test_nobody(self) -> None:
        """Without credentials every route answers 401, with every method."""
        config = load(self.kubeconfig("user-admin"))
        nobody = replace(config, certificate=Material(), key=Material())
        transport = HTTPTransport(nobody, reactor)
        self.addCleanup(transport.close)
        asked = routes(self.server)
        self.assertGreater(len(asked), 100)
        for method, pattern, _ in asked:
            if pattern in OPEN | PAGE:
                continue
            code, _, body = await transport.collect(
                Request(method, pattern.format(*["x"] * 9)),
                timeout_seconds=PATIENCE_SECONDS,
                limit_bytes=10000,
            )
            self.assertEqual((code, b'"Unauthorized"' in body), (401, True), (method, pattern))

    def test_streams(self) -> None:
        """The routes of streams are these, and each goes through an admission that asks."""
        asked = [each for each in routes(self.server) if each[1] not in PAGE]
        self.assertEqual({path for _, path, each in asked if each.session is not None}, STREAMS)
        self.assertEqual(
            {(method, path) for method, path, each in asked if each.is_open},
            {
                *(("GET", path) for path in OPEN),
                *((method, path) for method in ("DELETE", "PATCH") for path in ENDED),
            },
        )
