"""
The local web console in memory, with a scripted API server behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.raw import Raw
from twisted_exec.cli.web.server import LocalServer
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.testing.network import MemoryNetwork

PORT = 40123
HOST = f"127.0.0.1:{PORT}"
PAGES = "/apis/compute.ironcore.dev/v1alpha1/machines"


class Cluster(Dispatcher):
    """
    An API server.

    :ivar answer: answers each request; initially with the request's path.
    :ivar requests: method, target, headers and body of each request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[Request], Any] = _echo
        self.requests: list[tuple[str, str, dict[str, list[str]], bytes]] = []

    async def dispatch(self, request: Request) -> None:
        headers = {
            name.decode().lower(): [value.decode() for value in values]
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        method, target = request.method.decode(), request.uri.decode()
        self.requests.append((method, target, headers, request.content.read()))
        self.answer(request)


def _echo(request: Request) -> None:
    respond_json(request, 200, {"path": request.path.decode()})


class LocalCase(SynchronousTestCase):
    """
    :ivar config: the credentials; a test may replace them.
    """

    def setUp(self) -> None:
        self.clock, self.network, self.cluster = Clock(), MemoryNetwork(), Cluster()
        self.config = ClientConfig("http://127.0.0.1:6443", token="of-the-kubeconfig")
        self.serve()

    def serve(self, timeout_seconds: float | None = None) -> None:
        """Start the server."""
        cluster = Site(self.cluster, self.clock)
        self.local = LocalServer(
            lambda: self.config,
            {"cluster": "lab"},
            self.clock,
            timeout_seconds=timeout_seconds,
            server=self.network.endpoint(cluster),
        )
        self.local.serve_at(PORT)

    def connect(self) -> Raw:
        """Connect a browser."""
        client = Raw()
        self.network.join(client, self.local.site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))
        return client

    def send(self, data: bytes) -> Raw:
        """Send bytes on a connection of its own; return it when nothing moves any more."""
        client = self.connect()
        client.transport.write(data)
        self.network.pump()
        return client

    def request(
        self, target: str, *lines: str, method: str = "GET", body: str = "", host: str = HOST
    ) -> Raw:
        """Send a request; ``lines`` are headers."""
        head = [f"{method} {target} HTTP/1.1", f"Host: {host}", *lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join([*head, "", body]).encode("latin-1"))

    def bearer(self) -> str:
        """Return the header of a page that has logged in."""
        return f"Authorization: Bearer {self.local.login.token}"

    def status(self, client: Raw) -> tuple[int, str]:
        """Return the code and the message of a Status."""
        status = json.loads(client.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", client.code))
        return client.code, status["message"]

    def headers(self, client: Raw) -> dict[str, str]:
        """Return the headers of an answer, by lower-case name."""
        lines = client.head.decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
