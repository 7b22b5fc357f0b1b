"""
The ssh door of a chain, and a console through it; see the rows that begin with ``ssh`` in :mod:`.bench`.
The row ``agents``: a crowd of agents at a door of a chain, each with a session, who call a tool again and again.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bench import MeasuredDeployment

_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: exec-sshd}
rules:
- {apiGroups: [""], resources: [users], verbs: [impersonate]}
- apiGroups: [authentication.k8s.io]
  resources: [userextras/ssh-key, userextras/ssh-certificate, userextras/ssh-address]
  verbs: [impersonate]
"""


def role() -> str:
    """Return the role of the door, as YAML."""
    return _ROLE


class Door:
    """
    The ssh door of a chain.

    :param users: those who log in, each with a key.
    """

    def __init__(self, chain: MeasuredDeployment, users: Sequence[str]) -> None:
        self._directory = Path(chain.path("door"))
        self._directory.mkdir(mode=0o700)
        for name in ("host", *users):
            command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name))
            subprocess.run(command, check=True)
        lines = [
            f"- {{user: {user}, keys: ['{Path(self.path(f'{user}.pub')).read_text().strip()}']}}\n"
            for user in users
        ]
        Path(self.path("users.yaml")).write_text("users:\n" + "".join(lines))
        self.program = chain.twistd(
            "exec-sshd",
            f"--kubeconfig={chain.kubeconfig('exec-sshd', [])}",
            f"--users={self.path('users.yaml')}",
            f"--host-key={self.path('host')}",
            "--listen=tcp:0:interface=127.0.0.1",
            "--health-listen=",
        )
        self.port = 0

    def path(self, name: str) -> str:
        return str(self._directory / name)

    async def start(self) -> None:
        """Wait until it listens."""
        found: re.Match[bytes] = await self.program.until(rb"ssh at 127\.0\.0\.1:(\d+)")
        self.port = int(found[1])

    def console(self, user: str, machine: str) -> SSHConsole:
        """Open the console of a machine."""
        return SSHConsole(command(self.port, self.path(user), "-tt", f"{machine}@127.0.0.1"))


def command(port: int, key: str, *arguments: str) -> Sequence[str]:
    """Return a command line of ssh."""
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes")
    words = [word for each in (*options, "LogLevel=ERROR") for word in ("-o", each)]
    return ("ssh", "-F", "/dev/null", "-e", "none", "-i", key, "-p", str(port), *words, *arguments)


class SSHConsole:
    """A console that ssh has opened, with the methods that a typist needs of a line and a console."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def type(self, data: bytes) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), data)

    def receive(self) -> bytes:
        """Return output; see :class:`tests.benchmarks.console.Console`."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self._seconds)[0]:
            raise TimeoutError
        data = os.read(self._process.stdout.fileno(), 65536)
        if not data:
            raise ConnectionError("ssh has ended")
        return data

    def until(self, mark: bytes) -> None:
        """Read until the output has a mark."""
        self._seconds = 60.0
        output = b""
        while mark not in output:
            output += self.receive()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
import json
import os
import ssl
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as _reactor

from tests.auth.provider import Provider
from tests.benchmarks.console import connect
from tests.flows import programs
from tests.flows.test_three_programs import binding
from tests.tls.support import server_identity, write
from twisted_exec.api.kinds import ROLEBINDINGS
from twisted_exec.cli.mcp.protocol import VERSIONS

if TYPE_CHECKING:
    from tests.benchmarks.fairness.bench import MeasuredDeployment

reactor: Any = _reactor

AGENTS = 500
AT_ONCE = 50
"""Connections of one thread."""
_ROLES = ("console-operator", "view")


@dataclass(frozen=True)
class DoorAccess:
    """Address of a door, and a token for each agent."""

    port: int
    ca: str
    tokens: list[str]


class AgentDoor:
    """``exec-mcp`` in front of a chain, with an identity provider."""

    def __init__(self, chain: MeasuredDeployment) -> None:
        self._chain = chain
        self._provider = Provider()
        self._program: programs.Program | None = None

    async def start(self) -> DoorAccess:
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
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "agents"}
            ]
            await chain.client.create(ROLEBINDINGS.resource, bound, "default")
        self._program = programs.twistd(
            "exec-mcp",
            f"--kubeconfig={chain.kubeconfig('exec-mcp', ['system:masters'])}",
            f"--resource-url={url}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            "--health-listen=",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--authentication-config={path}",
        )
        await self._program.until(rb"starting on %d" % port)
        common = {"groups": ["agents"], "aud": url, "exp": int(time.time()) + 7200}
        tokens = [
            provider.token(username=f"agent:user-{at}:x", **common).decode() for at in range(AGENTS)
        ]
        return DoorAccess(port, write(directory, "ca.crt", provider.ca_pem), tokens)

    async def stop(self) -> None:
        """End both."""
        if self._program is not None:
            await self._program.stop()
        await self._provider.stop()


class _Agent:
    def __init__(self, door: DoorAccess, token: str, line: ssl.SSLSocket) -> None:
        self._line, self._answers = line, line.makefile("rb")
        self._head = f"Host: localhost:{door.port}\r\nAuthorization: Bearer {token}\r\n"
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
        length = 0
        while (header := self._answers.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"mcp-session-id":
                self._session = value.strip().decode()
        body = self._answers.read(length)
        return "failed" if b'"isError":true' in body else status.split()[1].decode()


def flood(door: DoorAccess, tokens: list[str], done: Any, until: float) -> None:
    """Let some agents call the same tool at the same time, again and again."""
    tls = ssl.create_default_context(cafile=door.ca)
    with ExitStack() as stack:
        agents = []
        for token in tokens:
            line = stack.enter_context(connect(door.port, tls))
            line.settimeout(60)
            agents.append(_Agent(door, token, line))
        for agent in agents:
            agent.ask("initialize", protocolVersion=VERSIONS[0])
        for agent in agents:
            agent.answer()
        while time.monotonic() < until:
            for agent in agents:
                done.sent += agent.ask(
                    "tools/call", name="get_screen", arguments={"machine": "sink"}
                )
            for agent in agents:
                done.answers[agent.answer()] += 1
