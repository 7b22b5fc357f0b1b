"""Tests for :mod:`twisted_exec.mcp.service`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, readBody

from tests.cli.mcp.test_protocol import request
from tests.tls.support import server_identity, write
from twisted_exec.auth.oidc.configuration import Issuers
from twisted_exec.cli.mcp.protocol import VERSIONS
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.mcp.service import MCPDoor
from twisted_exec.mcp.settings import Settings
from twisted_exec.mcp.users import Caller, OwnLogin
from twisted_exec.tls.errors import TLSConfigError

URL = "https://localhost/mcp"
CONFIGURATION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "jwt": [],
}


class ServiceTests(TestCase):
    """The life of the program."""

    own = ClientConfig("https://127.0.0.1:1", token="own")

    def door(self, configuration: Any = CONFIGURATION) -> MCPDoor:
        directory = Path(self.mktemp())
        directory.mkdir()
        identity = server_identity("localhost")
        key = write(str(directory), "door.key", identity.key_pem)
        Path(key).chmod(0o600)
        path = directory / "authentication.yaml"
        path.write_text(json.dumps(configuration))
        settings = Settings(
            URL,
            write(str(directory), "door.crt", identity.certificate_pem),
            key,
            listen="tcp:0:interface=127.0.0.1",
            health_listen="tcp:0:interface=127.0.0.1",
        )
        issuers = Issuers(configuration=str(path))
        return MCPDoor(settings, OwnLogin(lambda: self.own), issuers, reactor)

    async def test_life(self) -> None:
        """The program listens, and at its end leaves all sessions."""
        door = self.door()
        door.startService()
        await door.when_ready()
        self.assertIsNotNone(door.address)
        address: Any = door.health_address
        url = f"http://127.0.0.1:{address.port}/readyz?verbose"
        answer = await Agent(reactor).request(b"GET", url.encode())
        body = await readBody(answer)
        self.assertEqual((answer.code, body), (200, b"[+]serving ok\nreadyz check passed\n"))
        door.sessions.begin(Caller("agent:ada:triage", ("agents",)))
        await door.stopService()
        self.assertIsNone(door.address)
        (result,) = await door.health.check()
        self.assertEqual((result.name, result.error), ("serving", "not listening"))
        self.assertEqual(len(door.sessions), 0)

    async def test_renewed_login(self) -> None:
        """A session uses the kubeconfig of the program as it is now."""
        door = self.door()
        bound = door.sessions.begin(Caller("agent:ada:triage", ("agents",)))
        self.addCleanup(door.sessions.close)
        self.own = ClientConfig("https://localhost:1", token="renewed")
        await bound.session.received(request("initialize", protocolVersion=VERSIONS[0]))
        call = request("tools/call", name="get_screen", arguments={"machine": "vm"})
        self.assertIn(b"https://localhost:1", await bound.session.received(call))

    async def test_unusable(self) -> None:
        """With a wrong configuration of identity providers the program does not start."""
        door = self.door({"kind": "Other"})
        ready = door.when_ready()
        door.startService()
        await self.assertFailure(ready, TLSConfigError)
        await door.stopService()

    async def test_audience(self) -> None:
        """The tokens of each identity provider must be for the URL of the program."""
        mappings = {"username": {"claim": "sub", "prefix": ""}}
        issuer = {"url": "https://idp.example.org", "audiences": [URL]}
        other = {"url": "https://other.example.org", "audiences": ["https://other.example.org/mcp"]}
        entries = [{"issuer": each, "claimMappings": mappings} for each in (issuer, other)]
        door = self.door({**CONFIGURATION, "jwt": entries})
        ready = door.when_ready()
        door.startService()
        error = await self.assertFailure(ready, TLSConfigError)
        self.assertIn("'https://other.example.org': issuer.audiences", str(error))
        self.assertIn(repr(URL), str(error))
        await door.stopService()
        other.update(audiences=["ada", URL], audienceMatchPolicy="MatchAny")
        door = self.door({**CONFIGURATION, "jwt": entries})
        door.startService()
        await door.when_ready()
        await door.stopService()
