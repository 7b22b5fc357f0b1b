"""
The ssh door of a chain, and a console through it; see the rows that begin with ``ssh`` in :mod:`.bench`.
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
    from tests.flows.deployment import Deployment

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

    def __init__(self, chain: Deployment, users: Sequence[str]) -> None:
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
        Path(self.path("users.yaml")).chmod(0o644)
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
