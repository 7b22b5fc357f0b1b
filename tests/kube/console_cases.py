"""An API server for consoles only, on a loopback port."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import TestCase

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.status import APIError, NotFound, Unauthorized
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.routes import not_found
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.remotecommand.serving import serve

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: test}
clusters:
- name: test
  cluster: {server: "%s"}
users:
- name: test
  user: {}
"""


class Consoles(Dispatcher):
    """
    :ivar dialects: the dialects of the server; initially only the default one.
    :ivar machines: the attachment factory, or the error, of each ``NAMESPACE/NAME``, or for each
        ``PLURAL.GROUP/NAMESPACE/NAME`` where it is no machine of the default dialect.  A list has all of them.
    :ivar observers: the same for the observers' path.
    :ivar namespaces: names of namespaces; ``None`` for a server without them.  The machines of one that is not
        ``default`` are not listed.
    :ivar allowed: verbs of consoles that SelfSubjectAccessReviews allow.
    :ivar heads: the headers of every request.
    :ivar tokens: the ``Authorization`` headers that are accepted; ``None`` accepts anyone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dialects: tuple[Dialect, ...] = (DEFAULT,)
        self.machines: dict[str, Callable[[], IAttachment] | APIError] = {}
        self.observers: dict[str, Callable[[], IAttachment] | APIError] = {}
        self.namespaces: set[str] | None = None
        self.allowed: set[str] = set()
        self.heads: list[Any] = []
        self.queries: list[bytes] = []
        self.tokens: set[str] | None = None

    async def dispatch(self, request: Request) -> None:
        self.heads.append(request.requestHeaders)
        self.queries.append(request.uri.partition(b"?")[2])
        shown = request.requestHeaders.getRawHeaders("authorization", [""])[0]
        if self.tokens is not None and shown not in self.tokens:
            raise Unauthorized()
        path = request.path.decode()
        if path in (documents := self._discovery()):
            respond_json(request, 200, documents[path])
            return
        if path == REVIEWS:
            asked = json.loads(request.content.read())["spec"]["resourceAttributes"]
            may = asked["subresource"] == "console" and asked["verb"] in self.allowed
            respond_json(request, 201, {"status": {"allowed": may}})
            return
        if path.endswith(f"/namespaces/default/{DEFAULT.workload.plural}"):
            names = [key.rpartition("/")[2] for key in self.machines]
            items = [{"metadata": {"name": name}} for name in names]
            respond_json(request, 200, {"metadata": {}, "items": items})
            return
        if self.namespaces is not None:
            _, _, namespace = path.partition("/namespaces/")
            if path == f"/api/v1/namespaces/{namespace}" and namespace not in self.namespaces:
                raise NotFound("namespaces", namespace)
            if path.endswith(f"/{DEFAULT.workload.plural}"):
                respond_json(request, 200, {"metadata": {}, "items": []})
                return
        found = self._machine(path)
        if isinstance(found, APIError):
            raise found
        serve(request, found(), session="s-1", user="test", clock=reactor)  # type: ignore[arg-type]

    def _discovery(self) -> dict[str, Any]:
        """Return the discovery documents by path."""
        groups = dict.fromkeys(each.group for each in self.dialects)
        documents: dict[str, Any] = {"/apis": {"groups": [{"name": group} for group in groups]}}
        for each in self.dialects:
            path = f"/apis/{each.group}/{each.version}"
            resources = documents.setdefault(path, {"resources": []})["resources"]
            resources.append({"name": f"{each.workload.plural}/exec"})
        return documents

    def _machine(self, path: str) -> Callable[[], IAttachment] | APIError:
        _, _, group, _, _, namespace, plural, name, way, *_ = [*path.split("/"), *[""] * 9]
        served = [(each.group, each.workload.plural) for each in self.dialects]
        if (group, plural) not in served:
            return not_found()
        key = f"{namespace}/{name}"
        if (group, plural) != (DEFAULT.group, DEFAULT.workload.plural):
            key = f"{plural}.{group}/{key}"
        machines = self.observers if way == "console" else self.machines
        return machines.get(key, NotFound(plural, name, group))


class ConsolesCase(TestCase):
    """Serves ``self.consoles``; ``self.config`` points to it."""

    def setUp(self) -> Any:
        self.consoles = Consoles()
        self.site = Site(self.consoles, reactor)  # type: ignore[arg-type]
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        return endpoint.listen(self.site).addCallback(self._listening)

    def _listening(self, port: Any) -> None:
        self.addCleanup(self._settle)
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        self.addCleanup(self.site.drain)
        self.config = ClientConfig(f"http://127.0.0.1:{port.getHost().port}")

    def _settle(self) -> Deferred[None]:
        """Wait until both ends of a loopback connection have seen its end."""
        settled: Deferred[None] = Deferred()
        # wait: clients see the end of the server; nothing depends on it
        reactor.callLater(0.01, settled.callback, None)  # type: ignore[attr-defined]
        return settled

    def kubeconfig(self) -> str:
        """Write a kubeconfig for the server and return its path."""
        directory = self.mktemp()
        os.makedirs(directory)
        path = os.path.join(directory, "kubeconfig")
        with open(path, "w") as file:
            file.write(KUBECONFIG % self.config.server)
        return os.path.abspath(path)
