"""
``exec-mcp`` in front of a chain, and agents who call its tools over plain blocking sockets.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as _reactor

from tests.auth.provider import Provider
from tests.flows import programs
from tests.flows.test_three_programs import binding
from tests.tls.support import server_identity, write
from twisted_exec.api.agents import AGENTS
from twisted_exec.api.kinds import ROLEBINDINGS

if TYPE_CHECKING:
    from tests.flows.deployment import Deployment

reactor: Any = _reactor

_PEOPLE = "crowd"
"""Group of the agents' people."""
_ROLES = ("console-operator", "console-log-reader", "view")


@dataclass(frozen=True)
class AgentAccess:
    """Address of a door, and a token for each agent."""

    port: int
    ca: str
    tokens: list[str]


class AgentDoor:
    """
    ``exec-mcp`` in front of a chain, with an identity provider.

    :ivar program: the door, once it was started.

    :param agents: names of the agents.
    """

    def __init__(self, chain: Deployment, agents: Sequence[str]) -> None:
        self._chain, self._agents = chain, agents
        self._provider = Provider()
        self.program: programs.Program | None = None

    async def start(self) -> AgentAccess:
        """Start both; return the agents' way to the door."""
        chain, provider = self._chain, self._provider
        directory = chain.path("door")
        await provider.listen(reactor, directory)
        identity = server_identity("localhost")
        certificate = write(directory, "door.crt", identity.certificate_pem)
        key = write(directory, "door.key", identity.key_pem)
        os.chmod(key, 0o600)
        port = chain.reserved.add()
        url = f"https://localhost:{port}/mcp"
        issuer = {
            "url": provider.url,
            "audiences": [url],
            "certificateAuthority": provider.ca_pem.decode(),
        }
        claims = {name: {"claim": name, "prefix": ""} for name in ("username", "groups")}
        configuration = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{"issuer": issuer, "claimMappings": claims}],
        }
        path = Path(directory, "authentication.yaml")
        path.write_text(json.dumps(configuration))
        for role in _ROLES:
            bound = binding(f"agents-{role}", role)
            bound["subjects"] = [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}
                for name in (AGENTS, _PEOPLE)
            ]
            await chain.client.create(ROLEBINDINGS.resource, bound, "default")
        self.program = programs.twistd(
            "exec-mcp",
            f"--kubeconfig={chain.kubeconfig('exec-mcp', ['system:masters'])}",
            f"--resource-url={url}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            "--health-listen=",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--authentication-config={path}",
        )
        await self.program.until(rb"starting on %d" % port)
        common = {"groups": [AGENTS, _PEOPLE], "aud": url, "exp": int(time.time()) + 7200}
        tokens = [provider.token(username=each, **common).decode() for each in self._agents]
        return AgentAccess(port, write(directory, "ca.crt", provider.ca_pem), tokens)

    async def stop(self) -> None:
        """End both."""
        if self.program is not None:
            await self.program.stop()
        await self._provider.stop()


class Agent:
    """
    A client of the door, over a connection of its own.

    :ivar body: of the newest response.
    """

    body = b""

    def __init__(self, door: AgentAccess, token: str, line: ssl.SSLSocket) -> None:
        self._line, self._answers = line, line.makefile("rb")
        self._head = (
            f"Host: localhost:{door.port}\r\nAuthorization: Bearer {token}\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )
        self._session = ""
        self._id = 0

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; return its size."""
        self._id += 1
        body = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        raw = json.dumps(body).encode()
        session = f"Mcp-Session-Id: {self._session}\r\n" if self._session else ""
        request = (
            f"POST /mcp HTTP/1.1\r\n{self._head}{session}Content-Type: application/json\r\n"
            f"Content-Length: {len(raw)}\r\n\r\n"
        ).encode() + raw
        self._line.sendall(request)
        return len(request)

    def answer(self) -> str:
        """Read a response; return its code, or ``failed`` for a tool that failed."""
        status = self._answers.readline()
        if not status:
            raise EOFError("closed without an answer")
        length, is_chunked = 0, False
        while (header := self._answers.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"mcp-session-id":
                self._session = value.strip().decode()
            elif name.lower() == b"transfer-encoding":
                is_chunked = True
        self.body = self._chunks() if is_chunked else self._answers.read(length)
        return "failed" if b'"isError":true' in self.body else status.split()[1].decode()

    def _chunks(self) -> bytes:
        body = b""
        while length := int(self._answers.readline(), 16):
            body += self._answers.read(length)
            self._answers.readline()
        self._answers.readline()
        return body
