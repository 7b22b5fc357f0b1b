"""
Foreign clients of SSH at ``exec-sshd``: OpenSSH, plink, paramiko and Ansible, and ssh-audit.

Each goes through four programs to a shell.  OpenSSH has a certificate, the others a key.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import yaml
from twisted.trial.unittest import SkipTest

from tests import clients
from tests.flows import programs
from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .ssh_clients import (
    _FAR,
    _NO_ENVIRONMENT,
    _NO_PLINK,
    ENVIRONMENT,
    NEWEST,
    NO_NEWEST,
    ClientContract,
    SSHCase,
)

_AUDIT = os.environ.get("SSH_AUDIT", "")
_ROLE = Path(__file__).parents[2] / "docs" / "howto" / "ssh-door-role.yaml"
_CONFIG = """
Host gate vm nosuch qemu
    HostName 127.0.0.1
    Port {port}
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    IdentityFile {key}
    IdentitiesOnly yes
    SendEnv EXEC_REASON
"""


class DoorCase(SSHCase):
    """
    A door, with the role of its how-to.

    The user ``ada`` has a certificate, and ``bob`` a key.

    :cvar options: further options of the door.
    """

    options: tuple[str, ...] = ()

    async def configure(self) -> None:
        deployment = self.deployment
        for name in ("host", "host_ca", "user_ca", "ada", "bob"):
            self.keygen("-t", "ed25519", "-N", "", "-C", name, "-f", self.path(name))
        self.keygen(
            "-s", self.path("host_ca"), "-I", "gate", "-h", "-n", "127.0.0.1", self.path("host.pub")
        )
        self.certify("+1h")
        key = Path(self.path("bob.pub")).read_text().strip()
        Path(self.path("users.yaml")).write_text(
            "authorities:\n- {keys: user_ca.pub, groups: [operators]}\n"
            f"users:\n- {{user: bob, groups: [lab], keys: ['{key}']}}\n"
        )
        Path(self.path("users.yaml")).chmod(0o644)
        for each in yaml.safe_load_all(_ROLE.read_text()):
            kind = (
                kinds.CLUSTERROLES if each["kind"] == "ClusterRole" else kinds.CLUSTERROLEBINDINGS
            )
            await deployment.client.create(kind.resource, each)
        for user in ("ada", "bob"):
            bound = binding(user, "edit")
            await deployment.client.create(kinds.ROLEBINDINGS.resource, bound, namespace="default")
        kubeconfig = deployment.kubeconfig("exec-sshd")
        keys = (
            f"--host-key={self.path('host')}",
            f"--host-certificate={self.path('host-cert.pub')}",
        )
        self.door = programs.twistd(
            "exec-sshd",
            f"--kubeconfig={kubeconfig}",
            f"--users={self.path('users.yaml')}",
            *keys,
            "--listen=tcp:0:interface=127.0.0.1",
            "--health-listen=",
            *self.options,
        )
        self.addCleanup(self.door.stop)
        found = await self.door.until(rb"ssh at 127\.0\.0\.1:(\d+)")
        self.port = int(found[1])
        lines = ("twisted-exec", "ssh", "known-hosts", f"127.0.0.1:{self.port}", *keys)
        printed = await self.ended(self.start(lines))
        authority, key_line = printed.stdout.splitlines(keepends=True)
        Path(self.path("known_hosts")).write_bytes(authority)
        Path(self.path("known_keys")).write_bytes(key_line)
        self.write_config("ada", "known_hosts")

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def keygen(self, *arguments: str) -> None:
        subprocess.run(("ssh-keygen", "-q", *arguments), check=True)

    def certify(self, life: str) -> None:
        """Make a certificate of ``ada``."""
        authority = ("-s", self.path("user_ca"), "-I", "ada@laptop", "-n", "ada", "-V", life)
        self.keygen(*authority, self.path("ada.pub"))

    def write_config(self, key: str, known_hosts: str) -> None:
        """Write the configuration for ssh."""
        known = self.path(known_hosts)
        text = _CONFIG.format(port=self.port, known_hosts=known, key=self.path(key))
        Path(self.config).write_text(text)

    def host(self, machine: str) -> str:
        return machine

    def processes(self) -> list[str]:
        """Return the command lines of clients: those with the test's directory, but the door."""
        return [each for each in super().processes() if "exec-sshd" not in each]


class OpenSSHTests(ClientContract, DoorCase):
    """
    Stock ssh, with a certificate, which verifies the certificate of the host.

    :cvar ssh: the program.
    """

    forwarding_code = 255
    ssh = "ssh"

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        return self.ssh, "-F", self.config, f"{host}@gate", *words

    def forwarding(self) -> tuple[str, ...]:
        return self.command("vm", "-W", f"{_FAR}:22")

    async def test_commands(self) -> None:
        """Each command of the how-to has its output."""
        await self.ended(self.start(self.command("default/vm", "run", "echo in-the-log")))
        for host, words, expected in (
            ("anybody", ("list",), b"default     vm "),
            ("vm", ("log", "--tail", "50", "--plain"), b"in-the-log"),
            ("default/vm", ("screen",), b"in-the-log"),
        ):
            program = await self.ended(self.start(self.command(host, *words)))
            self.assertIn(expected, program.stdout)
        for power in ("off", "on"):
            program = await self.ended(self.start(self.command("vm", "power", power)))
            self.assertIn(b"vm is being powered %s" % power.encode(), program.output)
            machine = await self.deployment.client.get(kinds.MACHINES.resource, "vm", "default")
            self.assertEqual(machine["spec"]["power"], power.capitalize())

    async def test_take_over(self) -> None:
        """The second user observes, and takes over with ``force``; both read who types."""
        first = self.console()
        await first.until(rb"Connected to vm\.")
        self.write_config("bob", "known_keys")
        second = self.console()
        await second.until(rb"ada is the writer|writer of this console is ada")
        await second.stop()
        argv = (self.ssh, "-F", self.config, "-tt", "vm@gate", "force")
        third = self.start(argv)
        await third.until(rb"Connected to vm\.")
        await first.until(rb"bob")

    async def test_withdrawn(self) -> None:
        """A right that is withdrawn ends the session, with the reason."""
        program = self.console()
        await program.until(rb"Connected to vm\.")
        await self.deployment.client.delete(kinds.CLUSTERROLEBINDINGS.resource, "exec-sshd")
        await program.until(rb"AuthorizationWithdrawn: .* cannot impersonate")
        await self.ended(program, 1)

    async def test_expired(self) -> None:
        """A certificate that expires ends the session, with the reason."""
        self.certify("+0s:+8s")
        end = time.time() + 8
        program = self.console()
        await program.until(rb"Connected to vm\.")
        await program.until(rb"your login has expired; get a new certificate or key")
        self.assertGreater(time.time(), end - 1)
        await program.ended

    async def test_stopped(self) -> None:
        """The end of the door ends the session, with the reason."""
        program = self.console()
        await program.until(rb"Connected to vm\.")
        assert self.door.transport is not None
        self.door.transport.signalProcess(signal.SIGTERM)
        await program.until(rb"exec-sshd is restarting")
        await program.ended

    async def test_two_people(self) -> None:
        """A policy for two people refuses users of the door, in a sentence."""
        policy = {
            "apiVersion": kinds.CONSOLEPOLICIES.resource.api_version,
            "kind": kinds.CONSOLEPOLICIES.resource.kind,
            "metadata": {"name": "two", "namespace": "default"},
            "spec": {"people": 2},
        }
        await self.deployment.client.create(
            kinds.CONSOLEPOLICIES.resource, policy, namespace="default"
        )
        program = await self.ended(self.start(self.command("vm", "run", "true")), 125)
        self.assertIn(b"impersonated users do not count", program.output)
        self.assertIn(b"by ssh you are impersonated", program.output)

    async def test_audit(self) -> None:
        """The record of the API server has the user, the door and the login."""
        await self.ended(self.start(self.command("vm", "run", "true")))
        lines = Path(self.deployment.path("api.audit")).read_text().splitlines()
        records = [json.loads(line) for line in lines]
        record = next(each for each in reversed(records) if each.get("extra"))
        self.assertEqual((record["user"], record["caller"]), ("ada", "exec-sshd"))
        self.assertRegex(
            record["extra"],
            r"^ssh-address=127\.0\.0\.1&ssh-certificate=ada@laptop\+%28serial\+0%29&ssh-key=SHA256:",
        )


class NewestOpenSSHTests(OpenSSHTests):
    """The newest release of ssh."""

    skip = NO_NEWEST
    ssh = NEWEST


class AuditTests(DoorCase):
    """ssh-audit, which rates algorithms."""

    skip = DoorCase.skip or (None if _AUDIT else "SSH_AUDIT names no ssh-audit")

    async def audited(self, code: int) -> list[str]:
        """Run ssh-audit; return its lines about failures and warnings."""
        command = (
            _AUDIT,
            "-b",
            "-l",
            "warn",
            "--skip-rate-test",
            "-p",
            str(self.port),
            "127.0.0.1",
        )
        program = await self.ended(self.start(command), code)
        return [each for each in program.stdout.decode().split("\n") if each]

    async def test_algorithms(self) -> None:
        """There is one warning, about both names of Curve25519, which Debian 12's ssh needs."""
        lines = await self.audited(2)
        names = [each.split()[1] for each in lines]
        self.assertEqual(names, ["curve25519-sha256", "curve25519-sha256@libssh.org"], lines)
        for each in lines:
            self.assertIn("does not provide protection against post-quantum attacks", each)


class PostQuantumTests(AuditTests):
    """The same with ``--only-post-quantum``."""

    skip = AuditTests.skip or NO_NEWEST
    options = ("--only-post-quantum",)

    async def test_algorithms(self) -> None:
        """There is no warning, and the newest ssh logs in."""
        self.assertEqual(await self.audited(0), [])
        program = await self.ended(
            self.start((NEWEST, "-v", "-F", self.config, "vm@gate", "run", "exit 7")), 7
        )
        self.assertIn(b"kex: algorithm: mlkem768x25519-sha256", program.output)

    async def test_older(self) -> None:
        """An older ssh says which exchange the door wants."""
        offered = subprocess.check_output(("ssh", "-Q", "kex"), text=True).split()
        if "mlkem768x25519-sha256" in offered:
            raise SkipTest("ssh has ML-KEM")
        program = await self.ended(self.start(("ssh", "-F", self.config, "vm@gate")), 255)
        self.assertIn(b"Their offer: mlkem768x25519-sha256", program.output)


class PlinkTests(ClientContract, DoorCase):
    """PuTTY's plink, with a key."""

    skip = DoorCase.skip or _NO_PLINK

    async def configure(self) -> None:
        await super().configure()
        subprocess.run(("puttygen", self.path("bob"), "-o", self.path("bob.ppk")), check=True)

    def plink(self, *words: str) -> tuple[str, ...]:
        key = Path(self.path("known_keys")).read_text().split()[2]
        port = str(self.port)
        options = ("-no-antispoof", "-P", port, "-i", self.path("bob.ppk"), "-hostkey", key)
        return ("plink", *options, *words)

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        return self.plink(f"{host}@127.0.0.1", *words)

    def forwarding(self) -> tuple[str, ...]:
        return self.plink("-nc", f"{_FAR}:22", "vm@127.0.0.1")

    def with_reason(self, reason: str) -> dict[str, str]:
        sessions = self.directory / "putty" / "sessions"
        sessions.mkdir(parents=True)
        (sessions / "Default%20Settings").write_text(f"Environment=EXEC_REASON={reason},\n")
        return {"PUTTYDIR": str(sessions.parent)}


class ParamikoTests(ClientContract, DoorCase):
    """A program with paramiko, with a key."""

    skip = DoorCase.skip or _NO_ENVIRONMENT

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        program = str(Path(clients.__file__).with_name("python") / "paramiko_door.py")
        known = self.path("known_keys")
        python = f"{ENVIRONMENT}/bin/python"
        return python, program, self.path("bob"), known, str(self.port), host, *words

    def forwarding(self) -> tuple[str, ...]:
        return self.command("vm", "forward")


class AnsibleTests(DoorCase):
    """Ansible's module ``raw``, with an inventory of machines behind the door."""

    skip = DoorCase.skip or _NO_ENVIRONMENT

    async def raw(self, host: str, command: str, code: int, **env: str) -> dict[str, object]:
        """Run a command on one host; return its result."""
        inventory, results = self.directory / "inventory", self.directory / "results"
        inventory.write_text(
            "vm\nnosuch\n[all:vars]\nansible_host=gate\nansible_user='default/{{ inventory_hostname }}'\n"
        )
        argv = (
            *(f"{ENVIRONMENT}/bin/ansible", host, "-i", str(inventory), "-m", "raw", "-a", command),
            *(f"--ssh-common-args=-F {self.config} -o ControlPath=none", "--tree", str(results)),
        )
        environment = {"ANSIBLE_HOME": str(self.directory / "ansible"), **env}
        await self.ended(self.start(argv, environment), code)
        return dict(json.loads((results / host).read_text()))

    async def test_run(self) -> None:
        """It has a command's output and exit code."""
        result = await self.raw("vm", "run printf 'a\\nb'; exit 7", 2)
        self.assertEqual((result["rc"], result["stdout_lines"]), (7, ["a", "b"]))

    async def test_unknown(self) -> None:
        """The result says that there is no such machine."""
        result = await self.raw("nosuch", "run true", 2)
        self.assertEqual(result["rc"], 125)
        self.assertIn('"nosuch" not found', f"{result['stdout']}{result['stderr']}")
