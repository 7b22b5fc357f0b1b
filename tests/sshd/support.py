"""
Stock ssh at the door.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress

from tests import needs
from tests.cli.console.test_program_process import ConsoleProcess
from tests.cli.ssh.support import SSHCase, reactor
from twisted_exec.kube.client import KubeClient
from twisted_exec.wire.resize import TerminalSize

from .files import write

if needs.conch() is None:
    from twisted_exec.ssh.door_keys import DoorKeys
    from twisted_exec.ssh.login_file import LoginFile
    from twisted_exec.sshd.door_login import DoorLogin
    from twisted_exec.sshd.limits import Limits
    from twisted_exec.sshd.service import SSHDoor
    from twisted_exec.sshd.settings import Settings

SIZE = TerminalSize(100, 30)
_GATE = """
Host gate
    HostName 127.0.0.1
    Port {port}
    HostKeyAlias gate
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    IdentitiesOnly yes
    IdentityFile {identity}
    SendEnv EXEC_REASON
    LogLevel {level}
"""


class DoorCase(SSHCase):
    """
    A door with the users ``ada``, who has a certificate, and ``bob``, who has a key.

    :cvar login_seconds: of the door.
    :cvar only_post_quantum: of the door.
    :ivar people: reads the file of users.
    :ivar later_seconds: how far the time of day of the door is ahead.
    """

    skip = needs.ssh() or needs.sshd()
    login_seconds = 30.0
    only_post_quantum = False

    async def setUp(self) -> None:
        await super().setUp()
        self.later_seconds = 0.0
        for name in ("host", "user_ca", "ada", "bob", "eve"):
            self.keygen("-t", "ed25519", "-N", "", "-C", name, "-f", self.path(name))
        self.certify("ada")
        self.users()
        self.door = self.make_door(self.limits())
        self.addCleanup(self.door.stopService)
        self.door.startService()
        await self.door.when_ready()

    def limits(self) -> Limits:
        return Limits()

    def path(self, name: str) -> str:
        return str(self.state / name)

    def keygen(self, *arguments: str) -> None:
        subprocess.run(("ssh-keygen", "-q", *arguments), check=True, stdin=subprocess.DEVNULL)

    def certify(self, name: str, *options: str, principals: str = "ada") -> None:
        """Make a certificate for a key."""
        named = ("-n", principals) if principals else ()
        more = options or ("-V", "+1h")
        authority = ("-s", self.path("user_ca"), "-I", f"{name}@laptop", "-z", "7")
        self.keygen(*authority, *named, *more, self.path(f"{name}.pub"))

    def users(self, *, groups: str = "crew", keys: str = "bob", more: str = "") -> None:
        """Write the file with the users."""
        key = Path(self.path(f"{keys}.pub")).read_text().strip()
        write(
            Path(self.path("users.yaml")),
            f"authorities:\n- {{keys: user_ca.pub, groups: [{groups}]}}\n"
            f"users:\n- {{user: bob, groups: [night], keys: ['{key}']}}\n{more}",
        )

    def make_door(self, limits: Limits) -> SSHDoor:
        kubeconfig = Path(self.kubeconfig())
        kubeconfig.chmod(0o600)
        kubeconfig.write_text(kubeconfig.read_text().replace("{}", "{token: door}"))
        self.consoles.tokens = {"Bearer door"}
        login = DoorLogin(str(kubeconfig), None)
        keys = DoorKeys([self.path("host")], [], reactor)
        keys.load()
        self.people = users = LoginFile(self.path("users.yaml"), reactor)
        users.load()
        client = KubeClient(login.current(), reactor)
        self.addCleanup(client.close)
        settings = Settings(
            listen="tcp:0:interface=127.0.0.1",
            limits=limits,
            login_seconds=self.login_seconds,
            only_post_quantum=self.only_post_quantum,
        )
        return SSHDoor(
            settings,
            login,
            users,
            client,
            keys.current,
            reactor,
            parts=[users],
            now=lambda: time.time() + self.later_seconds,
        )

    @property
    def port(self) -> int:
        address: Any = self.door.address
        assert IAddress.providedBy(address)
        return int(address.port)

    def gate(
        self, *arguments: str, key: str = "ada", level: str = "INFO", **more: Any
    ) -> ConsoleProcess:
        """Start ssh as the owner of a key; ``USER@gate`` is the door."""
        known_hosts = Path(self.path("gate_known_hosts"))
        known_hosts.write_text(f"gate {Path(self.path('host.pub')).read_text()}")
        config = Path(self.path(f"config-{key}"))
        config.write_text(
            _GATE.format(
                port=self.port, known_hosts=known_hosts, identity=self.path(key), level=level
            )
        )
        return self.ssh(*arguments, config=config, **more)

    def impersonated(self) -> dict[str, list[str]]:
        """Return the headers of impersonation of the last request."""
        headers = self.consoles.heads[-1].getAllRawHeaders()
        names = {
            name.decode().lower(): [each.decode() for each in values] for name, values in headers
        }
        return {
            name.removeprefix("impersonate-"): values
            for name, values in names.items()
            if name.startswith("impersonate-")
        }

    def tick(self) -> Deferred[None]:
        """Let other events happen."""
        return self._settle()
