"""
Sessions of one user, one after the other, through hops that pass bytes on late.
"""

from __future__ import annotations

import json

from twisted.trial.unittest import TestCase

from tests.flows.consoles import Screen, watch
from tests.flows.deployment import pause
from tests.flows.programs import Program, script, start
from tests.flows.resuming import CabledDeployment
from tests.tiers import PROGRAMS

SLOW_SECONDS, QUICK_SECONDS = 0.6, 0.02
"""What a hop adds to each piece of the first session's bytes, and of the second's."""


class SuccessiveTests(TestCase):
    """
    The end of the first session is still on its way at each of three hops when the second session types.

    So the runtime has both at the same time, and the second session must not be an observer.
    """

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.deployment = CabledDeployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.kubeconfig = self.deployment.through_cable("ada")

    async def leave_late(self, *, resume: bool = False) -> Screen:
        """Type in a first session, and leave it, so that its end reaches the runtime after the next session."""
        first = await watch(self.kubeconfig, "sh", resume=resume)
        await first.ask(b"echo a$((40+2))a\r", rb"a42a\r\n")
        for cable in self.deployment.cables.values():
            cable.delay_present(SLOW_SECONDS)
            cable.delay_seconds = QUICK_SECONDS
        first.transport.loseConnection()
        return first

    async def assert_types(self, *, resume: bool) -> None:
        """The keys that a second session types at once reach the machine, all of them."""
        before, overlapped = 0, False
        # If a program stood still, the first session may have ended before the second began: then try again.
        while not overlapped:
            first = await self.leave_late(resume=resume)
            second = await watch(self.kubeconfig, "sh", resume=resume)
            await second.ask(b"echo b$((40+3))b\r", rb"\nb43b\r\n")
            self.assertNotIn(b"observer", second.output)
            self.assertNotIn(b"not sent", second.output)
            await second.leave()
            await first.ended
            while (events := self.events()[before:]).count("end") < 2:
                await pause()
            before, overlapped = before + len(events), events[:2] == ["start", "start"]

    def events(self) -> list[str]:
        """Return the starts and ends of sessions at the runtime."""
        with open(self.deployment.path("runtime.audit")) as file:
            return [json.loads(line)["event"] for line in file]

    async def test_stock(self) -> None:
        """So with sessions as of kubectl."""
        await self.assert_types(resume=False)

    async def test_resumable(self) -> None:
        """So with sessions that can be resumed."""
        await self.assert_types(resume=True)

    def script(self, *options: str) -> Program:
        program = start(
            [script("kubectl-console"), "sh", *options], env={"KUBECONFIG": self.kubeconfig}
        )
        self.addCleanup(program.stop)
        return program

    async def test_scripts(self) -> None:
        """A script opens session after session without a pause; each command runs once, in order."""
        for cable in self.deployment.cables.values():
            cable.delay_seconds = QUICK_SECONDS
        first = await self.leave_late()
        for number in range(5):
            program = self.script("--run", f"echo n$(({number}+40))n")
            self.assertEqual(await program.ended, 0, program.output)
            self.assertIn(b"n%dn" % (number + 40), program.output)
        await first.ended
