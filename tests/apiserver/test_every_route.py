"""
Every route refuses unauthenticated users, and every route of a stream is listed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor

from tests.apiserver.chain import ChainTestCase
from twisted_exec.auth.dispatcher import GatedEndpoint
from twisted_exec.kube.kubeconfig.client_config import Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.transport.http import HTTPTransport, Request

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
PAGE = {"/console", "/console/", "/console/{}", "/console/{}/{}", "/console/{}/{}/{}"}
"""The web console contains no data."""


def routes(node: Any, path: str = "") -> Iterator[tuple[str, str, GatedEndpoint]]:
    """Method, pattern and endpoint of each route beneath a node."""
    for method, (endpoint, _) in node.endpoints.items():
        if method != b"HEAD":
            yield method.decode(), path or "/", endpoint
    for name, below in node.literals.items():
        yield from routes(below, f"{path}/{name}")
    if node.variable is not None:
        yield from routes(node.variable, f"{path}/{{}}")


class EveryRouteTests(ChainTestCase):
    """All routes of a server that is alone."""

    async def test_nobody(self) -> None:
        """Without credentials every route answers 401, with every method."""
        config = load(self.kubeconfig("user-admin"))
        nobody = replace(config, certificate=Material(), key=Material())
        transport = HTTPTransport(nobody, reactor)
        self.addCleanup(transport.close)
        dispatcher: Any = self.server._parts.dispatcher
        asked = list(routes(dispatcher._routes._root))
        self.assertGreater(len(asked), 100)
        for method, pattern, _ in asked:
            if pattern in OPEN | PAGE:
                continue
            code, _, body = await transport.collect(
                Request(method, pattern.format(*["x"] * 9)), timeout_seconds=20, limit_bytes=10000
            )
            self.assertEqual((code, b'"Unauthorized"' in body), (401, True), (method, pattern))

    def test_streams(self) -> None:
        """The routes of streams are these, and each goes through a locator that asks."""
        dispatcher: Any = self.server._parts.dispatcher
        asked = [each for each in routes(dispatcher._routes._root) if each[1] not in PAGE]
        self.assertEqual({path for _, path, each in asked if each.session is not None}, STREAMS)
        self.assertEqual(
            {(method, path) for method, path, each in asked if each.is_open},
            {
                *(("GET", path) for path in OPEN),
                *((method, path) for method in ("DELETE", "PATCH") for path in ENDED),
            },
        )
