"""Tests for :mod:`twisted_exec.nodeserver.nodes.probe`: servers on loopback, and what answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.apiserver.restriction.test_exposed import ExposedTestCase
from tests.chain import PATIENCE_SECONDS
from tests.nodeserver.support import put_leaf_pod, put_pod, simple
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.nodes import probe
from twisted_exec.nodeserver.nodes.probe import (
    PAGE,
    LeafProbe,
    RootProbe,
    exec_verdict,
    leaf_verdict,
    page,
    root_verdict,
)
from twisted_exec.nodeserver.ownership import Names

KEEPER = "kube-system/exec-nodeserver"


def status(code: int, message: str, **details: str) -> bytes:
    """A Status as an API server answers it."""
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return json.dumps({**body, "reason": "X", "details": details}).encode()


NO_POD = status(404, 'pods "x" not found', kind="pods", name="NODESERVER_PROBE")
NO_MACHINE = status(404, "not found", kind="machines", name="NODESERVER_PROBE")


class Answers(Resource):
    """Answers each path as the test says, and records the requests."""

    isLeaf = True

    def __init__(self, answers: Mapping[str, tuple[int, bytes]]) -> None:
        super().__init__()
        self.answers = dict(answers)
        self.asked: list[tuple[str, str, Any]] = []

    def render(self, request: Any) -> bytes:
        """One request."""
        path = request.path.decode()
        headers = {
            name.lower(): request.getHeader(name)
            for name in ("upgrade", "authorization", "x-stream-protocol-version")
        }
        self.asked.append((request.method.decode(), path, headers))
        code, body = self.answers.get(path, (404, b"404 page not found"))
        request.setResponseCode(code)
        return body


class ProbeTestCase(TestCase):
    """A server, and a leaf that leads there."""

    exec_path = "/api/v1/namespaces/default/pods/NODESERVER_PROBE/exec"

    def setUp(self) -> None:
        self.patch(probe, "SECONDS", PATIENCE_SECONDS)
        self.server = Answers({})
        port = reactor.listenTCP(0, Site(self.server), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        self.config = ClientConfig(f"http://127.0.0.1:{port.getHost().port}", token="secret")
        self.roots, leaves = simple(config=self.config)
        self.leaf = leaves.leaves[0]


class LeafProbeTests(ProbeTestCase):
    """From us to a leaf."""

    def setUp(self) -> None:
        super().setUp()
        self.server.answers = {
            "/readyz": (200, b"ok"),
            "/version": (200, b'{"gitVersion": "v1.33.1"}'),
            self.exec_path: (404, NO_POD),
        }
        self.probe = LeafProbe(self.leaf, reactor)

    async def test_open(self) -> None:
        """A leaf that would let a stream through says so by not finding the Pod."""
        ready, allowed = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual((ready[0], allowed[0]), ("True", "True"))
        self.assertEqual(self.probe.version, "v1.33.1")
        method, path, headers = self.server.asked[-1]
        self.assertEqual((method, path), ("POST", self.exec_path))
        self.assertEqual(headers["upgrade"], "SPDY/3.1")
        self.assertEqual(headers["authorization"], "Bearer secret")

    async def test_no_place_for_default(self) -> None:
        """If another namespace of the root maps to the leaf's, the probe still runs."""
        self.leaf.namespace = Names({"shop": "default"}).namespace  # type: ignore[method-assign]
        _, allowed = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual(allowed[0], "True")

    async def test_where(self) -> None:
        """The probe uses a namespace with our Pods: permissions may be limited to it."""
        self.leaf.roots = self.roots
        root = put_pod(self.roots.cluster, "web", "leaf-one", "shop")
        put_leaf_pod(self.leaf.cluster, root)
        path = self.exec_path.replace("default", "shop")
        self.server.answers[path] = (403, status(403, "no exec for you"))
        _, allowed = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual(allowed[:2], ("False", "ExecForbidden"))
        self.assertIn("no exec for you", allowed[2])

    async def test_credentials(self) -> None:
        """Refused credentials are reported as such; all else is Unknown."""
        self.server.answers["/readyz"] = (401, status(401, "Unauthorized"))
        ready, allowed = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual(ready[:2], ("False", "CredentialsRefused"))
        self.assertEqual(allowed[:2], ("Unknown", "CredentialsRefused"))

    async def test_unusable(self) -> None:
        """Missing credentials are reported with the reason."""
        self.leaf.told = ServiceUnavailable("the Secret has no kubeconfig")
        ready, _ = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual(ready, ("False", "CredentialsUnusable", "the Secret has no kubeconfig"))
        self.assertEqual(self.server.asked, [])

    async def test_down(self) -> None:
        """A leaf without a listener is unreachable."""
        self.leaf.told = replace(self.config, server="http://127.0.0.1:1")
        ready, allowed = await Deferred.fromCoroutine(self.probe.look())
        self.assertEqual(ready[:2], ("False", "LeafUnreachable"))
        self.assertEqual(allowed[0], "Unknown")
        self.assertEqual(self.probe.version, "")

    async def test_senseless_version(self) -> None:
        """An invalid version counts as unknown; the other results stand."""
        for body in (b"[]", b"{", b'{"gitVersion": 3}', b'{"gitVersion": "v1\\u001b[2J"}'):
            self.server.answers["/version"] = (200, body)
            _, allowed = await Deferred.fromCoroutine(self.probe.look())
            self.assertEqual((allowed[0], self.probe.version), ("True", ""))


class RootProbeTests(ProbeTestCase):
    """From the root to us."""

    path = f"/api/v1/nodes/leaf-one/proxy{PAGE}"

    def setUp(self) -> None:
        super().setUp()
        self.probe = RootProbe(lambda: self.config, reactor, KEEPER)

    async def look(self, address: str = "127.0.0.1", port: int = 1) -> tuple[str, str, str]:
        return await self.probe.look("leaf-one", ("InternalDNS", address), port)

    async def test_reached(self) -> None:
        """The root fetched our own page, from a node server of ours."""
        self.server.answers[self.path] = (200, page(KEEPER).encode())
        verdict = await Deferred.fromCoroutine(self.look())
        self.assertEqual(verdict[0], "True")
        self.assertEqual([each[1] for each in self.server.asked], [self.path])

    async def test_fallen_back(self) -> None:
        """If the root permits no probe, dialling the address ourselves can only prove that it is closed."""
        self.server.answers[self.path] = (403, status(403, 'cannot get resource "nodes/proxy"'))
        verdict = await Deferred.fromCoroutine(self.look())
        self.assertEqual(verdict[:2], ("False", "AddressUnreachable"))
        self.assertIn("nodes/proxy", verdict[2])

    async def test_root_away(self) -> None:
        """A root that does not answer is no reason to say anything of us."""
        self.config = replace(self.config, server="http://127.0.0.1:1")
        verdict = await Deferred.fromCoroutine(self.look())
        self.assertEqual(verdict[:2], ("Unknown", "RootNotAsked"))


class VerdictTests(SynchronousTestCase):
    """The meaning of answers."""

    def test_root(self) -> None:
        """The root's own refusals differ from those of the server that it dialled."""
        wanted = page(KEEPER)
        for code, body, expected in (
            (200, wanted.encode(), "True RootReachesUs"),
            (200, page("other/exec-nodeserver").encode(), "False AnotherAnswers"),
            (404, b"404 page not found", "False AnotherAnswers"),
            (401, b"Unauthorized", "False RootRefused"),
            (403, b"Forbidden (user=kube-apiserver, verb=get)", "False RootRefused"),
            (403, status(403, "nodes/proxy"), "Unknown NotPermitted"),
            (400, status(400, "address not allowed"), "Unknown RootNotAsked"),
            (400, status(400, "lookup w1: no such host"), "False RootCannotReachUs"),
            (404, status(404, "could not find the requested resource"), "Unknown RootNotAsked"),
            (503, status(503, "error trying to reach service"), "False RootCannotReachUs"),
        ):
            self.assertEqual(" ".join(root_verdict(code, body, wanted)[:2]), expected)

    def test_leaf(self) -> None:
        """Any answer shows a server; an API server says when it is not ready."""
        for code, expected in (
            (200, "True LeafAnswers"),
            (403, "True LeafAnswers"),
            (404, "True LeafAnswers"),
            (301, "False NoAPIServer"),
            (429, "False LeafNotReady"),
            (500, "False LeafNotReady"),
        ):
            self.assertEqual(" ".join(leaf_verdict(code, b"x\ny")[:2]), expected)

    def test_exec(self) -> None:
        """Only an API server that looked for the Pod would have let a stream through."""
        for code, body, expected in (
            (404, NO_POD, "True ExecAllowed"),
            (404, NO_MACHINE, "True ExecAllowed"),
            (404, status(404, "no", kind="machines", name="NODESERVER_PROBE"), "True ExecAllowed"),
            (404, status(404, "no", kind="machines", name="another"), "False ExecRefused"),
            (404, b"404 page not found", "False NoAPIServer"),
            (404, status(404, "could not find the requested resource"), "False ExecRefused"),
            (401, status(401, "Unauthorized"), "False CredentialsRefused"),
            (403, status(403, "no"), "False ExecForbidden"),
            (400, status(400, "no upgrade"), "False ExecRefused"),
            (200, b"hello", "False NoAPIServer"),
        ):
            self.assertEqual(" ".join(exec_verdict(code, body)[:2]), expected)

    def test_words(self) -> None:
        """Whatever the other side says is one line of bounded length."""
        message = exec_verdict(500, b"<html>\x1b[2J\n" + b"x" * 60_000)[2]
        self.assertTrue(message.isprintable())
        self.assertLess(len(message), 400)


class MachinesTests(ExposedTestCase):
    """Before an API server of ours that shows machines as Pods."""

    def test_allowed(self) -> None:
        """Permission to open consoles is recognized, also if only exposed machines are visible."""
        path = "/api/v1/namespaces/default/pods/NODESERVER_PROBE/exec?command=true&stdout=true"
        for user, expected in (("admin", "ExecAllowed"), ("leaf", "ExecAllowed")):
            answer = self.ask("POST", path, user=user)
            self.assertEqual(exec_verdict(answer.code, answer.body)[:2], ("True", expected))
        answer = self.ask("POST", path, user="nobody")
        self.assertEqual(exec_verdict(answer.code, answer.body)[0], "False")
