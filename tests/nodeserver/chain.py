"""
A whole node server for tests: TLS and sockets are real, root and leaf are in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from tests.audits import AuditList
from tests.chain import (
    HOST,
    KUBELET_CLIENT,
    LISTEN,
    PATIENCE_SECONDS,
    ask,
    endpoint,
    issued,
    pki,
    reactor,
)
from tests.nodeserver.support import simple
from twisted_exec.api import kinds
from twisted_exec.auth.delegated import DelegatedAuthorizer
from twisted_exec.nodeserver.service import Make, NodeServer
from twisted_exec.nodeserver.settings import Settings
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.pki.authority import Authority, Issued

SERVING = pki().authority("ca")
ROOT, JANE = issued(f"user-{KUBELET_CLIENT}"), issued("user-jane")
STRANGER = Authority.create("another").issue_client(KUBELET_CLIENT)
SERVER = SERVING.issue_server([HOST, "localhost"], common_name="node")
NODE = "leaf-one"

UPGRADE = [(b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")]


class ServerCase(TestCase):
    """A node server for one Node, where the root's API server may do everything, and jane nothing."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        self.directory = Path(tempfile.mkdtemp(dir=directory))
        self.root_pods, self.leaves = simple(node=NODE)
        self.root, self.leaf = self.root_pods.cluster, self.leaves.leaves[0].cluster
        self.audit = AuditList()
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
            "listen": LISTEN,
            "health_listen": LISTEN,
            "client_ca": pki().client_ca,
        }
        return Settings(**{**fields, **more})

    async def start(self, *make: Make, parts: Sequence[Any] = (), **more: Any) -> NodeServer:
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
        return endpoint(self.server.address, identity)

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
        where = self.endpoint(identity)
        return await ask(where, path, method=method, headers=headers, host=host)

    async def healthy(self, path: str) -> tuple[int, bytes]:
        """Return the answer of the health port."""
        address: Any = self.server.health_address
        where = client_endpoint(
            reactor, address.host, address.port, None, timeout_seconds=PATIENCE_SECONDS
        )
        answer = await ask(where, path)
        return answer.code, answer.body
