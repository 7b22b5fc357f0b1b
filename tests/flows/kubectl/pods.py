"""
An API server with one Pod and nothing else: enough for a stock ``kubectl exec``.

Our console server serves each stream with the test's attachment, to test it with real clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint

from twisted_exec.api.status import NotFound
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.remotecommand.server import ConsoleServer
from twisted_exec.streaming.remotecommand.serving import serve

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p1", "namespace": "default", "uid": "u-1"},
    "spec": {"nodeName": "n", "containers": [{"name": "main", "stdin": True, "tty": True}]},
    "status": {"phase": "Running"},
}

_DOCUMENTS: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get"],
            }
        ],
    },
    "/api/v1/namespaces/default/pods/p1": POD,
}


class Pods(Dispatcher):
    """
    :ivar attach: creates the attachment of each stream.
    :ivar served: the streams, each with its requested upgrade.
    """

    def __init__(self, attach: Callable[[], IAttachment]) -> None:
        super().__init__()
        self.attach = attach
        self.served: list[tuple[str, ConsoleServer]] = []

    async def dispatch(self, request: Request) -> None:
        path = request.path.decode()
        if path in _DOCUMENTS:
            respond_json(request, 200, _DOCUMENTS[path])
        elif path.startswith("/api/v1/namespaces/default/pods/p1/"):
            await self.stream(request)
        else:
            raise NotFound("", path, message=f"there is no {json.dumps(path)} here")

    async def stream(self, request: Request) -> None:
        """Answer a request for a console."""
        wanted = request.requestHeaders.getRawHeaders(b"upgrade", [b""])[0].decode()
        server = serve(request, self.attach(), session="s-1", user="u", clock=reactor)  # type: ignore[arg-type]
        self.served.append((wanted, server))


class PodServer:
    """Serves :class:`Pods` on a loopback port."""

    def __init__(self, attach: Callable[[], IAttachment]) -> None:
        self.pods = Pods(attach)
        self._site = Site(self.pods, reactor)  # type: ignore[arg-type]
        self._port: Any = None

    async def start(self) -> None:
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        self._port = await endpoint.listen(self._site)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.getHost().port}"

    async def stop(self) -> None:
        self._site.drain()
        await maybeDeferred(self._port.stopListening)
