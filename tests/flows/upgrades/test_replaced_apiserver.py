"""
An API server on SQLite is replaced by a successor, at work, with users of each kind attached.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.busy_machine import is_exact
from tests.flows.deployment import pause
from tests.flows.programs import Program, terminal
from tests.flows.resuming import BUSY, CabledDeployment, Typist
from tests.flows.test_three_programs import binding
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

BINDINGS = kinds.ROLEBINDINGS.resource
SESSIONS = kinds.CONSOLESESSIONS.resource


class PatientDeployment(CabledDeployment):
    """
    Programs of a machine that may be busy with other tests.

    :ivar linger: how long sessions may stay in a replaced API server.
    """

    fork = False
    linger = "3600"

    async def start_api(self, *options: str) -> None:
        patience = ("--handover-seconds=600", f"--linger={self.linger}")
        await super().start_api(*patience, *options)


class ReplacedCase(TestCase):
    """A busy machine for our client, and a shell for stock kubectls."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()
    linger = "3600"

    async def setUp(self) -> None:
        self.deployment = PatientDeployment(self.mktemp())
        self.deployment.linger = self.linger
        self.addCleanup(self.deployment.stop)
        self.successors: list[int] = []
        self.addCleanup(self.stop_successors)
        await self.deployment.start()
        await self.deployment.create_machine("busy", BUSY)
        await self.deployment.create_machine("sh", "shell")
        self.pids = [self.deployment.api.transport.pid]  # type: ignore[union-attr]

    async def stop_successors(self) -> None:
        # The successors have the pipes of the first process, whose end is only then reported.
        for pid in self.pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in self.pids[1:]:
            await self.until_gone(pid)
        if self.pids[1:]:
            with contextlib.suppress(ProcessLookupError, TypeError):
                await self.deployment.api.stop()

    async def until_gone(self, pid: int) -> None:
        """Fires when a process has ended."""
        while os.path.exists(f"/proc/{pid}") and not is_zombie(pid):
            await pause()

    def env(self, kubeconfig: str) -> dict[str, str]:
        return {"KUBECONFIG": str(Path(kubeconfig).resolve()), "HOME": self.mktemp()}

    async def attached(self, name: str, kubeconfig: str = "") -> Program:
        """A kubectl that is attached to the shell."""
        env = self.env(kubeconfig or self.deployment.admin)
        program = terminal([kubectls.found()[name], "attach", "-it", "sh"], **env)
        self.addCleanup(program.stop)
        await program.until(rb"press enter|[$#] ")
        await self.echo(program, f"ready-{name}")
        return program

    async def echo(self, program: Program, word: str) -> None:
        """Check both directions."""
        start = len(program.output)
        program.type(f"echo {word[:2]}''{word[2:]}\n".encode())
        await program.until(rb"\n%b\r\n" % re.escape(word.encode()), start=start)

    async def kubectl(self, *words: str) -> str:
        env = self.env(self.deployment.admin)
        code, _, told = await kubectls.run(kubectls.found()["kubectl"], *words, env=env)
        self.assertEqual(code, 0, told)
        return told

    async def sessions(self, count: int) -> list[str]:
        """The names of the ConsoleSessions, once there are as many."""
        while True:
            listed = (await self.deployment.client.list(SESSIONS))["items"]
            if len(listed) == count:
                return [each["metadata"]["name"] for each in listed]
            await pause()

    async def replace(self) -> None:
        """Replace the API server."""
        api = self.deployment.api
        start = len(api.output)
        os.kill(self.pids[-1], signal.SIGUSR2)
        match = await api.until(rb"process (\d+) has taken over", start=start)
        self.pids.append(int(match[1]))


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, but nobody has asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class ReplacedTests(ReplacedCase):
    """The successor is ready."""

    async def test_everybody(self) -> None:
        """
        Our client resumes without a lost byte, again and again; stock clients stay in the old
        processes, where they are listed and can be ended.
        """
        names = kubectls.some()
        user = await Typist.at(self.deployment.through_cable("ada"), "busy")
        self.addCleanup(user.leave)
        await user.until(lambda: user.printed_bytes > 50_000)
        user.type_on()
        attached = {name: await self.attached(name) for name in names}
        for turn in range(3):
            await self.replace()
            await user.until_resumed(turn + 1)
            for name, program in attached.items():
                await self.echo(program, f"turn-{turn}-{name}")
        listed = await self.sessions(len(names) + 1)
        shown = await self.kubectl("get", "consolesessions")
        for name in listed:
            self.assertIn(name, shown)
        user.stop_typing()
        await user.until(lambda: self.deployment.typed_bytes >= user.sent_bytes)
        self.assertTrue(self.deployment.typed == user.sent, "the machine got other keys")
        self.deployment.stop_printing()
        await user.until_printed(rb"END\n")
        self.assertEqual((user.gaps, set(user.uncertain)), ([], {0}))
        self.assertTrue(is_exact(user.printed.removesuffix(b"END\n")), "the user got other output")
        for name in listed:
            if name.startswith("sh-"):
                await self.kubectl("delete", "consolesession", name)
        for program in attached.values():
            self.assertNotEqual(await program.ended, 0)
            self.assertIn(b"deleted the console session", program.output)
        for pid in self.pids[:-1]:
            await self.until_gone(pid)

    async def test_reviewed(self) -> None:
        """A user who loses the permission at the successor loses the session in the old process."""
        bob = self.deployment.kubeconfig("bob")
        await self.deployment.client.create(BINDINGS, binding("bob", "edit"), "default")
        program = await self.attached(kubectls.some()[-1], bob)
        await self.replace()
        await self.echo(program, "still-here")
        name = binding("bob", "edit")["metadata"]["name"]
        await self.deployment.client.delete(BINDINGS, name, "default")
        self.assertNotEqual(await program.ended, 0)
        self.assertIn(b"forbidden", program.output.lower())
        await self.until_gone(self.pids[0])

    async def test_poollet(self) -> None:
        """Sessions of the old process go on through poollets that are replaced after it."""
        programs = [await self.attached(name) for name in kubectls.some()]
        await self.replace()
        for turn in range(2):
            await self.deployment.poollet.hand_over()
            for number, program in enumerate(programs):
                await self.echo(program, f"turn-{turn}-{number}")
        self.assertTrue(os.path.exists(f"/proc/{self.pids[0]}"))
        await self.sessions(len(programs))


class LingerTests(ReplacedCase):
    """The sessions of the old process have no time."""

    linger = "0"

    async def test_reason(self) -> None:
        """Every stock client reads why its session ends; the next one is at the successor."""
        names = kubectls.some()
        attached = [await self.attached(name) for name in names]
        await self.replace()
        for program in attached:
            self.assertNotEqual(await program.ended, 0)
            self.assertIn(b"the API server was replaced", program.output)
        await self.until_gone(self.pids[0])
        await self.attached(names[0])
        await self.sessions(1)


class NotReplacedTests(ReplacedCase):
    """The successor fails."""

    async def test_nothing_changes(self) -> None:
        """Sessions and requests go on, and a later successor succeeds."""
        program = await self.attached(kubectls.some()[-1])
        certificate = Path(self.deployment.path("pki/apiserver.crt"))
        whole = certificate.read_bytes()
        certificate.write_bytes(b"nonsense")
        start = len(self.deployment.api.output)
        os.kill(self.pids[0], signal.SIGUSR2)
        await self.deployment.api.until(rb"no hand-over, this process goes on", start=start)
        certificate.write_bytes(whole)
        await self.echo(program, "as-before")
        await self.sessions(1)
        await self.attached(kubectls.some()[0])
        await self.replace()
        await self.echo(program, "and-after")
        await self.sessions(2)
