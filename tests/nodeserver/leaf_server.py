"""
A leaf's API server on a real socket, as far as logs and figures go: the test says what it answers,
and when.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.web import resource, server
from twisted.web.http import Request

from tests.chain import LISTEN, reactor
from tests.nodeserver.chain import SERVER, SERVING, ServerCase
from tests.nodeserver.support import put_leaf_pod, put_pod
from tests.streaming.readers import Reader, read
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS

Answer = Callable[[Request], bytes | int]


def text(request: Request, *pieces: bytes) -> int:
    """Begin a log that goes on."""
    request.setHeader(b"Content-Type", b"text/plain")
    for piece in pieces:
        request.write(piece)
    return server.NOT_DONE_YET


def status(request: Request, code: int, message: str, reason: str = "") -> bytes:
    """Refuse, as an API server does."""
    request.setResponseCode(code)
    request.setHeader(b"Content-Type", b"application/json")
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
    return json.dumps({**document, "message": message, "reason": reason, "code": code}).encode()


class LeafServer(resource.Resource):
    """
    :ivar answer: handles each request.
    :ivar asked: the requests so far.
    :ivar left: requests whose client left before the answer was complete.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.answer: Answer = lambda request: text(request, b"one\n")
        self.asked: list[Request] = []
        self.left: list[Request] = []

    def render(self, request: Request) -> bytes | int:
        self.asked.append(request)
        request.notifyFinish().addErrback(lambda _: self.left.append(request))
        return self.answer(request)


class LeafServerCase(ServerCase):
    """
    A node server before such a leaf, which has the Pod ``web`` with the container ``main``.

    :cvar leaf_tls: TLS of the leaf.
    """

    leaf_tls: type[ServerTLS] = ServerTLS

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.leaf_server = LeafServer()
        tls = self.leaf_tls_settings = self.leaf_tls(
            self.write("leaf.crt", SERVER.certificate_pem),
            self.write("leaf.key", SERVER.key_pem),
            clock=reactor,
        )
        self.leaf_port: Any = await server_endpoint(reactor, LISTEN, tls).listen(
            server.Site(self.leaf_server)
        )
        self.addCleanup(self.leaf_port.stopListening)
        self.leaves.leaves[0].told = self.credentials("of-the-leaf")
        self.root_pod = put_pod(self.root, "web", "leaf-one", containers=["main", "two"])
        self.leaf_pod = put_leaf_pod(self.leaf, self.root_pod)

    def credentials(self, token: str) -> ClientConfig:
        return ClientConfig(
            f"https://127.0.0.1:{self.leaf_port.getHost().port}",
            ca=Material(SERVING.certificate_pem),
            token=token,
        )

    async def read(self, path: str) -> Reader:
        """A reader whose answer has begun."""
        reader = await read(self.endpoint(), UpgradeRequest(b"GET", path.encode(), b"node"))
        self.addCleanup(reader.download.abort)
        return reader
