"""
Foreign clients of SSH at consoles: OpenSSH, plink, paramiko and Ansible, with what ``kubectl console --ssh-config`` prints.

Each goes through the three programs to a shell.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import clients, needs
from tests.flows import programs, shared
from tests.flows.deployment import pause
from twisted_exec.api.kinds import CONSOLEPOLICIES, CONSOLESESSIONS
from twisted_exec.ssh.channel import NO_FORWARDING
from twisted_exec.ssh.host_keys import host_key

ENVIRONMENT = os.environ.get("SSH_CLIENTS", "")
_NO_ENVIRONMENT = (
    None if ENVIRONMENT else "SSH_CLIENTS names no environment with paramiko and ansible-core"
)
NEWEST = os.environ.get("SSH_NEWEST", "")
NO_NEWEST = needs.ssh() or needs.kubectl() or (None if NEWEST else "SSH_NEWEST names no ssh")
_NO_PLINK = None if shutil.which("plink") else "plink is not on PATH (putty-tools)"
_FAR = "10.0.0.1"
_COLUMNS, _ROWS = 101, 31


class SSHCase(TestCase):
    """
    A machine ``vm`` with a shell.

    :ivar config: path of the configuration for ssh.
    """

    timeout = 600
    skip = needs.ssh() or needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        self.directory = Path(tempfile.mkdtemp(prefix="ssh-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self.nothing_left)
        await self.deployment.create_machine("vm", "shell")
        self.config = str(self.directory / "config")
        await self.configure()

    async def configure(self) -> None:
        """Write the configuration for ssh."""
        self.kubeconfig = str(self.directory / "kubeconfig")
        shutil.copy(self.deployment.admin, self.kubeconfig)
        command = ("kubectl", "console", "--ssh-config", f"--kubeconfig={self.kubeconfig}")
        printed = await self.ended(self.start(command))
        Path(self.config).write_bytes(printed.stdout)

    def host(self, machine: str) -> str:
        """Return the name of a machine for ssh."""
        return f"{machine}.console"

    def start(
        self, argv: tuple[str, ...], env: Mapping[str, str] | None = None
    ) -> programs.Program:
        environment = {"XDG_STATE_HOME": str(self.directory), **(env or {})}
        program = programs.start(argv, env=environment)
        self.addCleanup(program.stop)
        return program

    async def ended(self, program: programs.Program, code: int = 0) -> programs.Program:
        """Wait for the end of a program, with this exit code."""
        await program.ended
        self.assertEqual(program.exit_code, code, program.output)
        return program

    async def require_reason(self) -> None:
        policy = {
            "apiVersion": CONSOLEPOLICIES.resource.api_version,
            "kind": CONSOLEPOLICIES.resource.kind,
            "metadata": {"name": "reasons", "namespace": "default"},
            "spec": {"reason": "Required"},
        }
        await self.deployment.client.create(CONSOLEPOLICIES.resource, policy, namespace="default")

    async def nothing_left(self) -> None:
        """Every session ends with its client, and so does the program that ssh starts."""
        while True:
            found = await self.deployment.client.list(CONSOLESESSIONS.resource, "default")
            for each in found["items"]:
                self.assertNotIn("awaySince", each["status"])
            if not found["items"] and not self.processes():
                return
            await pause()

    def processes(self) -> list[str]:
        """Return the command lines of processes that use the test's directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended
                continue
            if str(self.directory) in line:
                found.append(line)
        return found


class ClientContract:
    """
    What each client does, for a :class:`SSHCase`.

    :cvar forwarding_code: exit code of a client whose forwarding is refused.
    """

    forwarding_code = 1

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        """Return a command line: for a command in a machine, or for its console."""
        raise NotImplementedError

    def forwarding(self) -> tuple[str, ...]:
        """Return a command line that forwards a connection to another host."""
        raise NotImplementedError

    def with_reason(self, reason: str) -> dict[str, str]:
        """Return the environment for a session with a reason."""
        return {"EXEC_REASON": reason}

    def console(self, machine: str = "vm") -> programs.Program:
        argv = self.command(self.host(machine))
        environment = {"XDG_STATE_HOME": str(self.directory), "TERM": "xterm"}
        program = programs.terminal(argv, columns=_COLUMNS, rows=_ROWS, **environment)
        self.addCleanup(program.stop)
        return program

    async def test_run(self) -> None:
        """The command's output is the output, and its exit code the exit code."""
        words = (self.host("vm"), "run", "printf 'a\\nb'; exit 7")
        program = await self.ended(self.start(self.command(*words)), 7)
        self.assertEqual((program.stdout, program.output), (b"a\nb", b"a\nb"))

    async def test_much(self) -> None:
        """A long output arrives whole."""
        words = (self.host("vm"), "run", "seq 1 100000")
        program = await self.ended(self.start(self.command(*words)))
        self.assertEqual(program.stdout, b"".join(b"%d\n" % each for each in range(1, 100001)))

    async def test_console(self) -> None:
        """A console types, prints, and has the size of the window."""
        program = self.console()
        await program.until(rb"Connected to vm\.")
        program.type(b"echo $((6*7))z; stty size\r")
        await program.until(rb"42z\r\n%d %d\r\n" % (_ROWS, _COLUMNS))
        program.type(b"exit 5\r")
        await program.until(rb"session ended: Completed")
        await self.ended(program, 5)

    async def test_closed(self) -> None:
        """A session ends with its client, also with one that is killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            program = self.console()
            await program.until(rb"Connected to vm\.")
            self.assertTrue(self.processes())
            await program.stop(number)
            await self.nothing_left()

    async def test_unknown(self) -> None:
        """The user reads that there is no such machine."""
        words = (self.host("nosuch"), "run", "true")
        program = await self.ended(self.start(self.command(*words)), 125)
        self.assertIn(b'"nosuch" not found', program.output)

    async def test_forwarding(self) -> None:
        """The user reads that nothing is forwarded."""
        program = await self.ended(self.start(self.forwarding()), self.forwarding_code)
        self.assertIn(NO_FORWARDING.encode(), program.output)

    async def test_reason(self) -> None:
        """A policy wants a reason, and the variable has it."""
        await self.require_reason()
        argv = self.command(self.host("vm"), "run", "echo in")
        refused = await self.ended(self.start(argv), 125)
        self.assertIn(b" requires a reason: use ssh -o SetEnv=EXEC_REASON=TICKET", refused.output)
        self.assertNotIn(b"kubectl", refused.output)
        program = await self.ended(self.start(argv, self.with_reason("ticket 4711")))
        self.assertEqual(program.stdout, b"in\n")


class OpenSSHTests(ClientContract, SSHCase):
    """
    Stock ssh.

    :cvar ssh: the program.
    """

    forwarding_code = 255
    ssh = "ssh"

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        return self.ssh, "-F", self.config, host, *words

    def forwarding(self) -> tuple[str, ...]:
        return self.command("vm.console", "-W", f"{_FAR}:22")

    async def test_break(self) -> None:
        """``~B`` sends BREAK to a machine that has it, and ``~.`` leaves."""
        await self.deployment.create_machine("qemu", "vm")
        program = self.console("qemu")
        await program.until(rb"Connected to qemu\.")
        program.type(b"\r~B")
        await program.until(rb"BREAK sent")
        program.type(b"\r~.")
        await self.ended(program, 255)

    test_break.skip = SSHCase.skip or needs.qemu()  # type: ignore[attr-defined]


class NewestOpenSSHTests(OpenSSHTests):
    """The newest release of ssh."""

    skip = NO_NEWEST
    ssh = NEWEST


class PlinkTests(ClientContract, SSHCase):
    """PuTTY's plink, with the command and the key of the configuration."""

    skip = SSHCase.skip or _NO_PLINK

    def plink(self, host: str, *words: str, key: str = "") -> tuple[str, ...]:
        """
        Return a command line.

        :param key: path of a file with the server's key; empty for that of the configuration.
        """
        lines = [each.strip() for each in Path(self.config).read_text().splitlines()]
        values = dict(each.split(" ", 1) for each in lines if " " in each)
        key = Path(key or values["UserKnownHostsFile"].strip('"')).read_text().split()[2]
        proxy = values["ProxyCommand"].replace("%h", host)
        return "plink", "-no-antispoof", "-proxycmd", proxy, "-hostkey", key, *words

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        return self.plink(host, f"ada@{host}", *words)

    def forwarding(self) -> tuple[str, ...]:
        return self.plink("vm.console", "-nc", f"{_FAR}:22", "ada@vm.console")

    async def test_other_host_key(self) -> None:
        """Another host key is refused."""
        other = host_key(str(self.directory / "other")).known_hosts
        argv = self.plink("vm.console", "-batch", "ada@vm.console", "run", "true", key=other)
        program = await self.ended(self.start(argv), 1)
        self.assertIn(b"Host key not in manually configured list", program.output)

    async def test_no_machine(self) -> None:
        """With ``-v`` the user reads why a host name names no machine."""
        argv = self.plink("vm_1.console", "-v", "ada@vm_1.console", "run", "true")
        program = await self.ended(self.start(argv), 1)
        self.assertIn(b'"vm_1.console" names no machine', program.output)

    def with_reason(self, reason: str) -> dict[str, str]:
        sessions = self.directory / "putty" / "sessions"
        sessions.mkdir(parents=True)
        (sessions / "Default%20Settings").write_text(f"Environment=EXEC_REASON={reason},\n")
        return {"PUTTYDIR": str(sessions.parent)}


class ParamikoTests(ClientContract, SSHCase):
    """A program with paramiko."""

    skip = SSHCase.skip or _NO_ENVIRONMENT

    def command(self, host: str, *words: str) -> tuple[str, ...]:
        program = str(Path(clients.__file__).with_name("python") / "paramiko_client.py")
        return f"{ENVIRONMENT}/bin/python", program, self.config, host, *words

    def forwarding(self) -> tuple[str, ...]:
        return self.command("vm.console", "forward")


class AnsibleTests(SSHCase):
    """Ansible's module ``raw``."""

    skip = SSHCase.skip or _NO_ENVIRONMENT

    async def raw(self, host: str, command: str, code: int, **env: str) -> dict[str, object]:
        """Run a command on one host; return its result."""
        results, sockets = self.directory / "results", self.directory / "sockets"
        argv = (
            *(f"{ENVIRONMENT}/bin/ansible", "all", "-i", f"{host},", "-m", "raw", "-a", command),
            *(f"--ssh-common-args=-F {shlex.quote(self.config)}", "--tree", str(results)),
        )
        environment = {
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            **env,
        }
        await self.ended(self.start(argv, environment), code)
        for each in sockets.iterdir():  # Ansible keeps a connection for a minute
            await self.ended(self.start(("ssh", "-o", f"ControlPath={each}", "-O", "exit", host)))
        return dict(json.loads((results / host).read_text()))

    async def test_run(self) -> None:
        """It has a command's output and exit code."""
        result = await self.raw("vm.console", "run printf 'a\\nb'; exit 7", 2)
        self.assertEqual((result["rc"], result["stdout_lines"]), (7, ["a", "b"]))

    async def test_unknown(self) -> None:
        """The result says that there is no such machine."""
        result = await self.raw("nosuch.console", "run true", 2)
        self.assertEqual(result["rc"], 125)
        self.assertIn('"nosuch" not found', f"{result['stdout']}{result['stderr']}")

    async def test_reason(self) -> None:
        """A policy wants a reason, and the variable has it."""
        await self.require_reason()
        refused = await self.raw("vm.console", "run echo in", 2)
        self.assertIn("ssh -o SetEnv=EXEC_REASON=TICKET", f"{refused['stdout']}{refused['stderr']}")
        result = await self.raw("vm.console", "run echo in", 0, EXEC_REASON="ticket 4711")
        self.assertEqual(result["stdout_lines"], ["in"])
