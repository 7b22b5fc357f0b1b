"""
A whole node server for tests: TLS and sockets are real, root and leaf are in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests.poollet.chain import Records, until
from twisted_exec.api import kinds
from twisted_exec.auth.delegated import DelegatedAuthorizer
from twisted_exec.nodeserver.service import Make, NodeServer, Settings
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.pki.authority import Authority, Issued

from .support import simple

__all__ = ["NODE", "ROOT", "ServerCase", "until"]

reactor: Any = _reactor

SERVING, USERS = (Authority.create(name) for name in ("serving", "root"))
"""Made once: keys cost time."""

ROOT = USERS.issue_client("kube-apiserver-kubelet-client", ["system:masters"])
JANE = USERS.issue_client("jane", ["dev"])
STRANGER = Authority.create("another").issue_client("kube-apiserver-kubelet-client")
SERVER = SERVING.issue_server(["127.0.0.1", "localhost"], common_name="node")
NODE = "leaf-one"

UPGRADE = [(b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")]


class ServerCase(TestCase):
    """A node server for one Node, where the root's API server may do everything, and jane nothing."""

    timeout = 120

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        self.directory = Path(tempfile.mkdtemp(dir=directory))
        self.root_pods, self.leaves = simple(node=NODE)
        self.root, self.leaf = self.root_pods.cluster, self.leaves.leaves[0].cluster
        self.audit = Records()
        self.asked: list[tuple[str, str, str, str]] = []
        self.allowed: dict[str, set[tuple[str, str]]] = {}
        self.root.reviews[kinds.SUBJECTACCESSREVIEWS.resource] = self.review
        self.tokens = {"good": "prometheus"}
        self.root.reviews[kinds.TOKENREVIEWS.resource] = lambda review: {
            "authenticated": review["spec"]["token"] in self.tokens,
            "user": {"username": self.tokens.get(review["spec"]["token"])},
        }

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        """
        Answer a SubjectAccessReview: masters may everything, others what ``allowed`` says, as
        pairs of verb and subresource.
        """
        spec = review["spec"]
        attributes = spec["resourceAttributes"]
        verb, subresource = attributes["verb"], attributes["subresource"]
        self.asked.append(
            (
                spec["user"],
                verb,
                f"{attributes['resource']}/{subresource}",
                attributes.get("name", ""),
            )
        )
        allowed = (verb, subresource) in self.allowed.get(spec["user"], ())
        return {"allowed": allowed or "system:masters" in spec["groups"]}

    def write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def settings(self, **more: Any) -> Settings:
        fields: dict[str, Any] = {
            "certificate": self.write("tls.crt", SERVER.certificate_pem),
            "key": self.write("tls.key", SERVER.key_pem),
            "listen": "tcp:0:interface=127.0.0.1",
            "health_listen": "tcp:0:interface=127.0.0.1",
            "client_ca": self.write("root.crt", USERS.certificate_pem),
        }
        return Settings(**{**fields, **more})

    async def start(
        self, *make: Make, parts: Sequence[Any] = (), controllers: Sequence[Any] = (), **more: Any
    ) -> NodeServer:
        """A node server that listens."""
        self.server = NodeServer(
            self.settings(**more),
            self.root.client(),
            self.leaves,
            self.root_pods,
            self.audit,
            reactor,
            make=make,
            parts=parts,
            controllers=controllers,
            # Answer caches have tests of their own.
            authorizer=DelegatedAuthorizer(
                self.root.client(), reactor, allow_seconds=0, deny_seconds=0
            ),
        )
        ready = self.server.when_ready()
        self.server.startService()
        self.addCleanup(self.stop)
        await ready
        return self.server

    async def stop(self) -> None:
        if self.server.running:
            await self.server.stopService()

    def endpoint(self, identity: Issued | None = ROOT) -> Any:
        address: Any = self.server.address
        tls = ClientTLS(
            "127.0.0.1",
            ca_pem=SERVING.certificate_pem,
            certificate_pem=identity.certificate_pem if identity else b"",
            key_pem=identity.key_pem if identity else b"",
        )
        return client_endpoint(reactor, "127.0.0.1", address.port, tls)

    async def ask(
        self,
        path: str,
        *,
        identity: Issued | None = ROOT,
        method: bytes = b"GET",
        headers: Sequence[tuple[bytes, bytes]] = (),
        host: bytes = b"node",
    ) -> UpgradeRefused:
        """The answer to a request that is none of a stream, or is refused."""
        request = UpgradeRequest(method, path.encode(), host, headers)
        try:
            await upgrade(self.endpoint(identity), request, clock=reactor, timeout_seconds=60)
        except UpgradeRefused as answer:
            return answer
        raise AssertionError("it was upgraded")

    async def healthy(self, path: str) -> tuple[int, bytes]:
        """Return the answer of the health port."""
        address: Any = self.server.health_address
        request = UpgradeRequest(b"GET", path.encode(), b"node", ())
        endpoint = client_endpoint(reactor, "127.0.0.1", address.port, None)
        try:
            await upgrade(endpoint, request, clock=reactor, timeout_seconds=60)
        except UpgradeRefused as answer:
            return answer.code, answer.body
        raise AssertionError("it was upgraded")
