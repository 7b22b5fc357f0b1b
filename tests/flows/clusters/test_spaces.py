"""
Spaces from the start: a checkout, ``exec-standalone`` and a real kubectl.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from pathlib import Path

from tests import needs
from tests.contracts.space_world import pause
from tests.docs.commands import commands
from tests.flows import kubectls, programs
from tests.spacemanager.providers.local.world import command
from tests.standalone.test_tap_program import StandaloneCase
from tests.tiers import PROGRAMS
from twisted_exec.tls.pki.directory import create_pki

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial"
BY_HAND = ("twistd ", "export ", "pkill ")
"""What the tests do in their own way: start the program, set the environment, kill a process."""
TYPED = b"echo a$((6*7))z\n"


class SpaceCase(StandaloneCase):
    """A running program and a kubectl."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        super().setUp()
        for path in TUTORIAL.glob("space*.yaml"):
            shutil.copy(path, self.directory)
        scripts = os.path.dirname(programs.script("kubectl-console"))
        self.env = {
            "KUBECONFIG": self.kubeconfig,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": self.directory,
            "PYTHONPATH": str(TUTORIAL.parents[1]),
        }
        self.others = create_pki(os.path.join(self.directory, "others"))
        client_ca = f"--client-ca-file={self.others.client_ca}"
        self.program = await self.ready("--without-demo", client_ca)

    async def shell(self, line: str, stdin: bytes = b"", answer: bytes = b"", code: int = 0) -> str:
        """Run a command line in this directory, check its exit code, and return its output."""
        words = ("-c", f"cd {self.directory} && {line}")
        found, _, output = await kubectls.run(
            "/bin/sh", *words, env=self.env, stdin=stdin, answer=answer
        )
        self.assertEqual(found, code, f"{line}\n{output}")
        return output

    async def made(self) -> None:
        """Create a Space and a machine in it."""
        await self.shell("kubectl create -f space.yaml")
        await self.is_ready()
        await self.shell("twisted-exec space kubeconfig that --output that.kubeconfig")
        kubectl = "kubectl --kubeconfig that.kubeconfig"
        await self.shell(f"{kubectl} create -f space-machine.yaml")
        state = "--for=jsonpath='{.status.state}'=Running --timeout=600s"
        await self.shell(f"{kubectl} wait machine/m {state}")

    async def is_ready(self) -> None:
        phase = "--for=jsonpath='{.status.Phase}'=Ready --timeout=600s"
        await self.shell(f"kubectl wait space/that -n spaceprovider-default {phase}")

    def processes(self) -> list[int]:
        """Return the processes of this program's spaces."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if f"{self.state}/spaces" in command(pid)]

    def console(self, *options: str) -> programs.Program:
        """Open the machine's console in a terminal."""
        argv = [shutil.which("kubectl") or "kubectl", "console", "m", "--space", "that", *options]
        console = programs.terminal(argv, **self.env)
        self.addCleanup(console.stop)
        return console


class ShowTests(SpaceCase):
    """A Space of type local, from creation to deletion."""

    async def test_show(self) -> None:
        """
        A console in a Space survives a rotation of the credentials; deleting the Space ends its
        sessions with a reason and leaves no process, file, Space or Secret. A Space knows the users of
        --client-ca-file.
        """
        await self.made()
        ada = self.others.issue_user("ada", [])
        pair = f"--client-certificate={ada.certificate} --client-key={ada.key}"
        known = f"kubectl --kubeconfig that.kubeconfig {pair} get machines"
        self.assertIn('User "ada" cannot list', await self.shell(known, code=1))
        console = self.console("--space-credentials")
        await console.until(rb"[#$] ")  # the first session types
        own = self.console()
        await own.until(rb"[#$] ")
        secret = "kubectl get secret external-that -n spaceprovider-default -o jsonpath='{.data}'"
        before = await self.shell(secret)
        await self.shell("twisted-exec space rotate that")
        while await self.shell(secret) == before:
            await pause(0.1)
        console.type(TYPED)
        for each in (console, own):
            await each.until(rb"a42z")
        rotated, events = r"Normal +Rotated +space/that", ""
        while not re.search(rotated, events):  # they are written behind the credentials
            events = await self.shell("kubectl get events -n spaceprovider-default")
        (pid,) = self.processes()
        await self.shell("kubectl delete space that -n spaceprovider-default")
        for each in (console, own):
            await each.ended
            # A client that stalls loses the connection with the reason, and is told when it resumes.
            told = rb"(session ended: \w+|the session could not be resumed): "
            self.assertRegex(each.output, told)
        self.assertEqual(self.processes(), [])
        self.assertEqual(command(pid), "")
        for kept in ("records", "spaces"):
            self.assertEqual(os.listdir(f"{self.state}/spaces/local/default/{kept}"), [])
        found = await self.shell("kubectl get spaces,secrets -A --ignore-not-found")
        self.assertNotIn("that", found)
        self.assertNotRegex(self.program.output, rb"Traceback|eyJ")

    async def test_killed(self) -> None:
        """The spaces of a killed program end with it; the next start restores them unchanged."""
        await self.made()
        server = "kubectl get space that -n spaceprovider-default -o jsonpath='{.status.endpoints}'"
        before = await self.shell(server)
        await self.program.stop(signal.SIGKILL)
        while self.processes():
            await pause(0.05)
        self.program = await self.ready("--without-demo")
        await self.is_ready()
        self.assertEqual(await self.shell(server), before)
        while True:
            try:
                machines = await self.shell("kubectl --kubeconfig that.kubeconfig get machines")
                break
            except self.failureException:
                await pause(0.2)
        self.assertRegex(machines, r"m +pty")


class LostManagerTests(SpaceCase):
    """The program that manages a Space of type local is stopped, and killed."""

    async def test_session(self) -> None:
        """The Space ends with its manager; a session in it goes on when both are back."""
        await self.made()
        console = self.console()
        await console.until(rb"[#$] ")
        for number in (signal.SIGTERM, signal.SIGKILL):
            start = len(console.output)
            await self.program.stop(number)
            while self.processes():
                await pause(0.05)
            self.program = await self.ready("--without-demo")
            await console.until(b"the machine has started again", start=start)


class TutorialTests(SpaceCase):
    """The commands of ``docs/tutorial/spaces.rst``."""

    async def test_every_command(self) -> None:
        """Each command prints the output on the page."""
        page = (TUTORIAL / "spaces.rst").read_text()
        for line, told in commands(page.replace("CHECKOUT", str(TUTORIAL.parents[1]))):
            if line.startswith(BY_HAND):
                await self.by_hand(line)
                continue
            code = 1 if told.startswith("Error") else 0
            if "kubectl console" in line:
                await self.shell(line, TYPED, b"a42z", code)
            else:
                printed = await self.shell(line, code=code)
                self.assertEqual(without_ages(printed), without_ages(told), line)

    async def by_hand(self, line: str) -> None:
        """Run ``pkill`` of the page, but only on processes of this test."""
        if line.startswith("pkill "):
            words = shlex.split(line.replace("$PWD/exec-state", re.escape(self.state)))
            for pid in self.processes():
                self.assertRegex(command(pid), words[-1])
                os.kill(pid, signal.SIGKILL)
            while not self.processes():
                await pause(0.05)


def without_ages(text: str) -> str:
    """Replace ages, which differ between runs."""
    return re.sub(r"\b(\d+[dhms])+$", "AGE", text.strip(), flags=re.MULTILINE)
