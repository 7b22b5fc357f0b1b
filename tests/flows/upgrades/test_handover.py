"""
Programs are replaced by successors while consoles are open and busy.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from twisted.internet.defer import Deferred

from tests import needs
from tests.flows import kubectls
from tests.flows.deployment import pause
from tests.flows.outages.test_resume import ResumeTestCase
from tests.flows.programs import Program, terminal
from tests.flows.resuming import CabledDeployment, Typist
from tests.procfs import descendants
from twisted_exec.program.handover.predecessor import VARIABLE


class ReplaceableDeployment(CabledDeployment):
    """Three programs; the poollet has a file with options."""

    fork = False
    limit_seconds = 600
    """The default is short for a machine that runs many tests."""

    @property
    def options(self) -> Path:
        return self.directory / "poollet.toml"

    async def start_poollet(self, *options: str) -> None:
        self.options.write_text(f"handover-seconds = {self.limit_seconds}\n")
        await super().start_poollet(f"--config={self.options}", *options)


class HandOverTestCase(ResumeTestCase):
    """A user of ours and a stock kubectl at work."""

    skip = needs.kubectl()

    def make_deployment(self) -> ReplaceableDeployment:
        return ReplaceableDeployment(self.mktemp(), runtime_options=self.runtime_options)

    async def attach(self) -> tuple[Typist, Program]:
        """Let a user of ours and a stock kubectl work."""
        # The user first: the machine prints all the time, and the user wants everything.
        user = await self.typist()
        await self.deployment.create_machine("sh", "shell")
        self.env = {
            "KUBECONFIG": str(Path(self.deployment.admin).resolve()),
            "HOME": str(Path(self.mktemp())),
        }
        return user, await self.attached()

    async def attached(self) -> Program:
        """Attach a stock kubectl to a shell."""
        program = terminal([kubectls.found()["kubectl"], "attach", "-it", "sh"], **self.env)
        self.addCleanup(program.stop)
        await program.until(rb"press enter|[$#] ")
        program.type(b"stty -echo; PS1=; echo re''ady\n")
        await program.until(rb"\nready\r\n")
        return program

    async def says(self, program: Program, word: bytes) -> None:
        start = len(program.output)
        program.type(b"echo %b''%b\n" % (word[:2], word[2:]))
        await program.until(word, start=start)

    async def goes_on(self, user: Typist, program: Program) -> None:
        """Check that both sessions have noticed nothing, and that the poollet still acts."""
        await self.says(program, b"after")
        await self.under_load(user)
        await self.deployment.create_machine("another", "shell")
        self.assertEqual((user.outages, user.gaps), ([], []))
        user.stop_typing()
        await user.until(lambda: self.deployment.typed_bytes >= user.sent_bytes)
        self.assertTrue(self.deployment.typed == user.sent, "the machine got other keys")


class PoolletTests(HandOverTestCase):
    """A poollet is replaced."""

    async def test_replaced(self) -> None:
        """Three upgrades in a row: no byte is lost in either direction, and no session ends."""
        user, program = await self.attach()
        for number in range(3):
            count = len(user.seconds)
            await self.deployment.poollet.hand_over()
            await user.until_resumed(count + 1)
            await self.under_load(user)
            await self.says(program, b"still-%d" % number)
        await self.check(user)
        self.assertEqual(self.deployment.errors(), [])
        pool = await self.deployment.client.get(self.deployment.dialect.pool, "pool-a")
        self.assertEqual(pool["status"]["state"], "Ready")

    async def test_new_sessions(self) -> None:
        """Consoles that are opened during the hand-over open."""
        await self.attach()
        is_over = Deferred.fromCoroutine(self.deployment.poollet.hand_over())
        while not is_over.called:
            program = await self.attached()
            await self.says(program, b"hello")
            await program.stop(signal.SIGKILL)
        await is_over

    async def test_failed(self) -> None:
        """A successor that cannot read its options changes nothing."""
        user, program = await self.attach()
        assert isinstance(self.deployment, ReplaceableDeployment)
        self.deployment.options.write_text("nonsense = 1\n")
        await self.deployment.poollet.hand_over(succeeds=False)
        self.assertIn(b"the successor: ", self.deployment.poollet.output)
        self.assertIn(b"nonsense", self.deployment.poollet.output)
        await self.goes_on(user, program)


class ImpatientDeployment(ReplaceableDeployment):
    """A deployment with a poollet that does not wait long for a successor."""

    limit_seconds = 8


def is_successor(pid: int) -> bool:
    """
    Say whether a child of a program already executes the successor.

    A child that is stopped between vfork and exec would stop its parent as well.
    """
    with contextlib.suppress(OSError):  # it has just ended
        return f"{VARIABLE}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


class HangingTests(HandOverTestCase):
    """A poollet whose successor hangs."""

    def make_deployment(self) -> ReplaceableDeployment:
        return ImpatientDeployment(self.mktemp(), runtime_options=self.runtime_options)

    async def test_hangs(self) -> None:
        """A successor that stops in the middle of its start is given up, and changes nothing."""
        user, program = await self.attach()
        assert isinstance(self.deployment, ReplaceableDeployment)
        # The successor waits for a writer of its options, so it cannot be ready before it stops.
        self.deployment.options.unlink()
        os.mkfifo(self.deployment.options)
        poollet = self.deployment.poollet
        is_over = Deferred.fromCoroutine(poollet.hand_over(succeeds=False))
        successors: list[int] = []
        # On a busy machine it may have been given up before the test has looked.
        while not successors and not is_over.called:
            successors = [each for each in descendants(poollet.pid) if is_successor(each)]
            await pause()
        for pid in successors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        await is_over
        self.assertIn(b"it did not start and did nothing for 8 s", poollet.output)
        await self.goes_on(user, program)
