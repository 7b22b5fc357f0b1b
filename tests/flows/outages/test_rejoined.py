"""
Sessions of stock kubectls go on when a hop behind their API server dies or stops.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests import needs
from tests.flows import kubectls
from tests.flows.deployment import pause
from tests.flows.kubectl.test_pods_view import PodsTestCase
from tests.flows.kubectl.translated import ProxiedPods, Served
from tests.flows.programs import Program, terminal
from tests.flows.resuming import CabledDeployment
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamAdmission, Location

LINES = 3000
FOREIGN = "ironcore-apiserver"
MACHINES = kinds.MACHINES.resource


async def ready(program: Program, name: str) -> int:
    """Fires when the shell of an attached kubectl answers, with the size of the output so far."""
    await program.until(rb"press enter|[$#] ")
    # Earlier output is shown again, with its prompts: each kubectl waits for words of its own, which may
    # follow the prompt of a shell that has just started.
    program.type(b"stty -echo; PS1=; echo re''ady-%b\n" % name.encode())
    await program.until(rb"ready-%b\r\n" % re.escape(name.encode()))
    return len(program.stdout)


async def begin_load(program: Program, start: int) -> None:
    """Fires when output and keys are on their way in both directions."""
    program.type(
        b"i=0; while [ $i -lt %d ]; do echo line-$i; i=$((i+1)); done; " % LINES
        + b"while read w; do echo got-$w; [ $w = last ] && break; done; echo over\n"
    )
    await program.until(rb"line-40\r\n", start=start)
    for word in range(20):
        program.type(b"w%d\n" % word)


async def end_load(program: Program, start: int) -> tuple[str, str, bytes]:
    """Fires with the digests of the output and of the expected one, and with the last output."""
    program.type(b"last\n")
    await program.until(rb"\nover\r\n", start=start)
    lines = [b"line-%d" % number for number in range(LINES)]
    lines += [b"got-w%d" % word for word in range(20)] + [b"got-last", b"over"]
    expected = b"".join(line + b"\r\n" for line in lines)
    got = program.stdout[start:]
    got = got[got.index(b"line-0") : got.index(b"\nover\r\n") + len(b"\nover\r\n")]
    return hashlib.sha256(got).hexdigest(), hashlib.sha256(expected).hexdigest(), got[-200:]


class RejoinedTests(PodsTestCase):
    """The poollet is lost, at work, while a kubectl of each protocol is attached."""

    exact = True
    skip = needs.kubectl()

    async def attached(self, name: str) -> Program:
        program = self.in_terminal(name, "attach", "-it", "sh")
        await ready(program, name)
        return program

    async def lose_poollet(self, number: int) -> None:
        await self.deployment.poollet.stop(number)
        await self.deployment.start_poollet()

    async def test_killed(self) -> None:
        """Each byte of output arrives once, and each key, although the poollet is killed."""
        for name in kubectls.some():
            program = await self.attached(name)
            start = len(program.stdout)
            await begin_load(program, start)
            await self.lose_poollet(signal.SIGKILL)
            got, expected, last = await end_load(program, start)
            self.assertEqual(got, expected, (name, last))
            program.type(b"exit 3\n")
            self.assertEqual(await program.ended, 3, name)

    async def test_stopped(self) -> None:
        """A poollet that stops does not end the sessions: they continue through the next one."""
        program = await self.attached("kubectl")
        await self.lose_poollet(signal.SIGTERM)
        program.type(b"echo st''ill\n")
        await program.until(rb"\nstill\r\n")
        program.type(b"exit 3\n")
        self.assertEqual(await program.ended, 3)
        while not (ends := self.ends("runtime")):
            await pause()
        self.assertEqual([each["reason"] for each in ends], ["Completed"])

    async def test_killed_client(self) -> None:
        """A kubectl that is killed leaves nothing behind: nobody waits for it."""
        program = await self.attached("kubectl")
        await program.stop(signal.SIGKILL)
        while not self.ends("runtime"):
            await pause()

    def ends(self, hop: str) -> list[dict[str, Any]]:
        """Return the audit records of ended sessions of a hop."""
        text = Path(self.deployment.path(f"{hop}.audit")).read_text()
        return [each for each in map(json.loads, text.splitlines()) if each["event"] == "end"]


class ForeignDeployment(CabledDeployment):
    """Its poollet opens consoles for an API server that forwards no users."""

    async def start_poollet(self, *options: str) -> None:
        await super().start_poollet(
            f"--client-ca-file={self.pki.client_ca}", f"--pool-proxy-suffices={FOREIGN}", *options
        )


@implementer(IStreamAdmission)
class ToPoollet:
    """Locates a machine at the poollet as an API server of another project, which rejoins nothing."""

    def __init__(self, deployment: CabledDeployment) -> None:
        url = f"https://{deployment.pool_address}:{deployment.middle.port}"
        kubeconfig = deployment.kubeconfig(FOREIGN, ["system:masters"], url=url)
        self.endpoint = endpoint(load(kubeconfig), reactor)

    def admit(self, context: RequestContext) -> Deferred[Location]:
        context.learn(user="ada", machine="sh")
        path = IRONCORE.poollet_path("default", "sh").encode()
        return succeed(Location([("the poollet", self.endpoint)], path, b"poollet"))


class ForeignHopTests(TestCase):
    """The connection of the poollet to the runtime is lost, and the hop before is of another project."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = ForeignDeployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.served = Served()
        self.addCleanup(self.served.stop)
        self.port = await self.served.serve(ProxiedPods(ToPoollet(self.deployment)))

    def attach(self, name: str) -> Program:
        argv = [kubectls.found()[name], f"--server=http://127.0.0.1:{self.port}"]
        home = self.mktemp()
        program = terminal(
            [*argv, "attach", "-it", "p1"], HOME=home, KUBECONFIG=f"{home}/kubeconfig"
        )
        self.addCleanup(program.stop)
        return program

    async def lose_runtime(self) -> None:
        """Fires when the poollet has connected again."""
        made = self.deployment.far.made
        self.deployment.far.cut()
        while self.deployment.far.made == made:
            await pause()

    async def test_lost(self) -> None:
        """The poollet rejoins the stream of each protocol: each byte and each key arrives once."""
        for name in kubectls.some():
            program = self.attach(name)
            start = await ready(program, name)
            await begin_load(program, start)
            await self.lose_runtime()
            got, expected, last = await end_load(program, start)
            self.assertEqual(got, expected, (name, last))
            program.type(b"exit 3\n")
            self.assertEqual(await program.ended, 3, name)

    async def test_powered_off(self) -> None:
        """The stream of a session that waits for its machine is rejoined, too."""
        program = self.attach("kubectl")
        await ready(program, "first")
        for power, state in (("Off", "Shutdown"), ("On", "Running")):
            change = {"spec": {"power": power}}
            await self.deployment.client.patch(MACHINES, "sh", change, "default")
            await self.deployment.machine_in_state("sh", state)
            await self.lose_runtime()
        start = len(program.stdout)
        program.type(b"echo st''ill\n")
        await program.until(rb"still\r\n", start=start)
        program.type(b"exit 3\n")
        self.assertEqual(await program.ended, 3)
