"""
Tests for :mod:`twisted_exec.spacemanager.spaces.probes` and
:mod:`~twisted_exec.spacemanager.spaces.observation`, on a socket.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase
from twisted.web import resource, server
from twisted.web.http import Request

from tests.chain import PATIENCE_SECONDS
from tests.contracts.space_world import pause
from tests.nodeserver.chain import SERVER, SERVING
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.spacemanager.spaces import probes
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.probes import digest_of, prober
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.fast.descriptor import TLSClient
from twisted_exec.tls.server import ServerTLS

reactor: Any = _reactor
TOKEN = "who-i-am"


class Server(resource.Resource):
    """
    An API server, as far as it is probed.

    :ivar answers: code and body by the last part of the path; 404 for any other.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "selfsubjectreviews": (201, {"status": {"userInfo": {"username": "me"}}}),
            "readyz": (200, "ok"),
            "version": (200, {"gitVersion": "v1.36.2"}),
        }

    def render(self, request: Request) -> bytes:
        self.asked.append(request.path.decode())
        assert request.getHeader("authorization") == f"Bearer {TOKEN}"
        code, body = self.answers.get(self.asked[-1].rpartition("/")[2], (404, ""))
        request.setResponseCode(code)
        if 300 <= code < 400:
            request.setHeader("location", "http://127.0.0.1:1/elsewhere")
        return (body if isinstance(body, str) else json.dumps(body)).encode()


class ProbeTests(TestCase):
    """A probe over HTTP."""

    async def setUp(self) -> None:
        self.patch(probes, "SECONDS", PATIENCE_SECONDS)
        self.server = Server()
        self.port = await self.listen()
        self.addCleanup(self.port.stopListening)

    async def listen(self) -> Any:
        paths = []
        for content in (SERVER.certificate_pem, SERVER.key_pem):
            paths.append(self.mktemp())
            Path(paths[-1]).write_bytes(content)
        endpoint = server_endpoint(
            reactor, "tcp:0:interface=127.0.0.1", ServerTLS(*paths, clock=reactor)
        )
        return await endpoint.listen(server.Site(self.server))

    def kubeconfig(self, port: int = 0, path: str = "", **user: Any) -> bytes:
        ca = base64.b64encode(SERVING.certificate_pem).decode()
        cluster = {
            "server": f"https://127.0.0.1:{port or self.port.getHost().port}{path}",
            "certificate-authority-data": ca,
        }
        return json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user or {"token": TOKEN}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        ).encode()

    async def probe(self, **contents: bytes) -> ProbeResult:
        told = contents or {IN_CLUSTER: self.kubeconfig()}
        found = await prober(reactor)(told, "it")
        while any(isinstance(each, TLSClient) for each in reactor.getReaders()):
            await pause(0.001)  # a probe does not wait for its connection's end
        return found

    async def test_well(self) -> None:
        """It answers, knows us, and says which version it is."""
        found = await self.probe()
        self.assertTrue(found.lives)
        self.assertEqual((found.ready[0], found.version), ("True", "v1.36.2"))

    async def test_below_a_path(self) -> None:
        """A server may be a part of another one, as a workspace of kcp is."""
        await self.probe(**{EXTERNAL: self.kubeconfig(path="/clusters/root:a")})
        self.assertEqual({path[:17] for path in self.server.asked}, {"/clusters/root:a/"})

    async def test_refused(self) -> None:
        """Who is not let in is told so; what the server says is not quoted: it has seen the token."""
        self.server.answers["selfsubjectreviews"] = (401, {"message": f"no {TOKEN}"})
        found = await self.probe()
        self.assertTrue(found.is_refused)
        self.assertEqual((found.valid[1], found.ready[0]), ("Refused", "Unknown"))
        self.assertNotIn(TOKEN, repr(found))
        self.assertEqual(len(self.server.asked), 1)

    async def test_nobody(self) -> None:
        """Pages that are open to all prove nothing."""
        anonymous = {"status": {"userInfo": {"username": "system:anonymous"}}}
        self.server.answers["selfsubjectreviews"] = (201, anonymous)
        self.assertEqual((await self.probe()).valid[:2], ("False", "Anonymous"))
        denied = {"message": 'User "system:anonymous" cannot create selfsubjectreviews'}
        self.server.answers["selfsubjectreviews"] = (403, denied)
        self.assertEqual((await self.probe()).valid[:2], ("False", "Anonymous"))

    async def test_older(self) -> None:
        """A server without that review is asked what we may."""
        del self.server.answers["selfsubjectreviews"]
        self.server.answers["selfsubjectaccessreviews"] = (201, {"status": {"allowed": False}})
        self.assertTrue((await self.probe()).lives)
        self.server.answers["selfsubjectaccessreviews"] = (401, "")
        self.assertTrue((await self.probe()).is_refused)

    async def test_not_ready(self) -> None:
        """A server that knows us and is not ready is said not to be."""
        self.server.answers["readyz"] = (500, "[-]etcd failed")
        found = await self.probe()
        self.assertEqual((found.lives, found.ready[:2]), (True, ("False", "NotReady")))

    async def test_may_not_see(self) -> None:
        """Who may not see whether it is ready knows that it answers."""
        self.server.answers["readyz"] = (403, "")
        del self.server.answers["version"]
        found = await self.probe()
        self.assertEqual((found.ready[0], found.version), ("True", ""))

    async def test_redirect(self) -> None:
        """Nobody is followed elsewhere with our credentials."""
        self.server.answers["selfsubjectreviews"] = (302, "")
        found = await self.probe()
        self.assertEqual((found.valid[:2], len(self.server.asked)), (("False", "NoAPIServer"), 1))

    async def test_unreachable(self) -> None:
        """Who cannot be reached is neither here nor gone; from the other viewpoint it may be."""
        port = await self.listen()
        closed = port.getHost().port
        await port.stopListening()
        dead = self.kubeconfig(closed)
        found = await self.probe(**{IN_CLUSTER: dead})
        self.assertEqual((found.valid[:2], found.answers), (("Unknown", "Unreachable"), False))
        self.assertTrue((await self.probe(**{IN_CLUSTER: dead, EXTERNAL: self.kubeconfig()})).lives)

    async def test_unusable(self) -> None:
        """A kubeconfig that would run programs is none, and nobody is asked."""
        found = await self.probe(**{EXTERNAL: self.kubeconfig(exec={"command": "evil"})})
        self.assertEqual(found.valid[:2], ("False", "Unusable"))
        self.assertEqual(self.server.asked, [])

    async def test_other_contents(self) -> None:
        """What was found is of just these kubeconfigs."""
        one, two = {EXTERNAL: self.kubeconfig()}, {EXTERNAL: self.kubeconfig(path="/x")}
        self.assertEqual((await self.probe(**one)).digest, digest_of(one))
        self.assertNotEqual(digest_of(one), digest_of(two))
