"""
Sessions wait while their machine is off or starts again, through all three programs; those of a
machine that is deleted end.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import Deployment, gone, machine, pause
from tests.flows.kubectl.test_pods_view import PodsTestCase
from tests.flows.outages.test_resume import PATIENCE
from tests.flows.programs import script, terminal
from tests.flows.resuming import CabledDeployment, Typist
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.console.notices import LINE_AGAIN, TYPED_BEFORE, WAITS
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF

reactor: Any = _reactor

MACHINES, SESSIONS = kinds.MACHINES.resource, kinds.CONSOLESESSIONS.resource


class RestartedCase(TestCase):
    """A shell behind three programs, and a user of our client."""

    starts = PROGRAMS
    exact = True
    runtime_options: tuple[str, ...] = PATIENCE

    async def setUp(self) -> None:
        self.deployment = CabledDeployment(self.mktemp(), runtime_options=self.runtime_options)
        self.deployment.poollet_seconds = Deployment.poollet_seconds
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        await self.deployment.create_machine("sh", "shell")
        self.kubeconfig = self.deployment.through_cable("ada")
        self.user = await self.opened()

    async def opened(self) -> Typist:
        user = await Typist.at(self.kubeconfig, "sh")
        self.addCleanup(user.leave)
        return user

    async def answers(self, word: str) -> None:
        """
        Wait until the shell answers the user.

        Keys are refused that arrive before the client's word that it knows of the machine's new start: then the
        user types again.
        """
        start, answer = self.user.printed_bytes, b"%s\r\n" % word.encode()
        while answer not in self.user.printed[start:]:
            refused = self.refusals()
            self.user.type(b"echo %s''\n" % word.encode())
            await self.user.until(
                lambda before=refused: (
                    answer in self.user.printed[start:] or self.refusals() > before
                )
            )

    def refusals(self) -> int:
        return sum(TYPED_BEFORE in notice for notice in self.user.notices)

    async def set_power(self, power: str, state: str) -> None:
        """Switch the machine."""
        await self.deployment.client.patch(MACHINES, "sh", {"spec": {"power": power}}, "default")
        await self.deployment.machine_in_state("sh", state)

    async def started_again(self, count: int = 1) -> None:
        """Wait until the user has read so often that the machine has started again."""
        await self.user.until(lambda: self.user.notices.count(LINE_AGAIN) >= count)

    def audit(self, hop: str, event: str) -> list[dict[str, Any]]:
        text = Path(self.deployment.path(f"{hop}.audit")).read_text()
        return [each for each in map(json.loads, text.splitlines()) if each["event"] == event]


class RestartedTests(RestartedCase):
    """The machine starts again."""

    async def test_killed(self) -> None:
        """A command that is killed leaves its session one object, and one record at each hop."""
        await self.answers("one")
        for count in (1, 2):
            self.user.type(b"kill -9 $$\n")
            await self.started_again(count)
            await self.answers(f"again{count}")
        sessions = await self.deployment.client.list(SESSIONS, "default")
        self.assertEqual(len(sessions["items"]), 1)
        for hop in ("api", "poollet", "runtime"):
            self.assertEqual((len(self.audit(hop, "start")), self.audit(hop, "end")), (1, []), hop)
        self.assertEqual((self.user.outages, self.user.gaps), ([], []))
        self.user.type(b"exit 3\n")
        await self.user.until(lambda: self.user.ending)
        assert self.user.ending is not None
        self.assertEqual(self.user.ending.exit_code, 3)

    async def test_power_cycle(self) -> None:
        """
        A session waits while the machine is off, also over a loss of its connection.  New sessions
        are refused.
        """
        await self.answers("one")
        await self.set_power("Off", "Shutdown")
        await self.user.until(lambda: any(WAITS in each for each in self.user.notices))
        with self.assertRaises(APIError) as caught:
            await self.opened()
        self.assertEqual(caught.exception.code, Conflict.code)
        for count, cable in enumerate(self.deployment.cables.values(), 1):
            cable.cut()
            await self.user.until_resumed(count)
        await self.deployment.restart("poollet")
        await self.user.until_resumed(len(self.deployment.cables) + 1)
        self.user.type(b"echo typed-while-off\n")
        await self.user.until(lambda: any("is not sent" in each for each in self.user.notices))
        await self.set_power("On", "Running")
        await self.started_again()
        await self.answers("two")
        self.assertNotIn(b"typed-while-off", self.user.printed)

    async def test_late_keys(self) -> None:
        """Keys that a user types without a connection do not reach a boot that the user has not seen."""
        await self.answers("one")
        near = self.deployment.near
        witness = await Typist.at(self.deployment.admin, "sh")
        self.addCleanup(witness.leave)
        may_end = (self.deployment.directory / "may-end").resolve()
        self.user.type(b"(until [ -e %b ]; do sleep 0.1; done; kill -9 $$) &\n" % bytes(may_end))
        await self.user.until_printed(rb"&\r\n")
        near.refuses = True
        near.cut()
        await self.user.until(lambda: self.user.outages)
        self.user.type(b"echo la''te\n")
        may_end.touch()
        await witness.until(lambda: LINE_AGAIN in witness.notices)
        near.refuses = False
        await self.user.until_resumed(1)
        await self.started_again()
        await self.answers("two")
        self.assertNotIn(b"late\r\n", self.user.printed)
        self.assertTrue(any("before the machine started" in each for each in self.user.notices))

    async def test_runtime_killed(self) -> None:
        """The machine is made again for its object; the session goes on, without the keys of before."""
        await self.answers("one")
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.user.until(lambda: self.user.outages)
        self.user.type(b"echo la''te\n")
        await self.deployment.start_runtime()
        await self.user.until_resumed(1)
        await self.started_again()
        await self.answers("two")
        self.assertNotIn(b"late\r\n", self.user.printed)
        self.assertEqual(self.user.gaps, [])

    async def test_deleted(self) -> None:
        """A machine that is made again under its name ends the session of the one before."""
        await self.answers("one")
        client = self.deployment.client
        await client.delete(MACHINES, "sh", "default")
        while self.user.ending is None:
            await pause()
        self.assertEqual(self.user.ending.reason, MACHINE_DELETED)
        await gone(client, MACHINES, "sh", "default")
        await client.create(MACHINES, machine("sh", "shell"), "default")
        await self.deployment.machine_in_state("sh", "Running")
        self.assertEqual(self.user.outages, [])

    async def test_deleted_while_absent(self) -> None:
        """So it does while the user is absent, who does not get to the new machine."""
        await self.answers("one")
        near, client = self.deployment.near, self.deployment.client
        near.refuses = True
        near.cut()
        await self.user.until(lambda: self.user.outages)
        await client.delete(MACHINES, "sh", "default")
        await gone(client, MACHINES, "sh", "default")
        await client.create(MACHINES, machine("sh", "shell"), "default")
        await self.deployment.machine_in_state("sh", "Running")
        self.user.type(b"echo for-the-one-before\n")
        near.refuses = False
        while self.user.detached_with is None:
            await pause()
        self.assertIn("was deleted; another machine has this name now", self.user.detached_with)
        self.user = await self.opened()
        await self.answers("two")
        self.assertNotIn(b"for-the-one-before", self.user.printed)


class TerminalTests(RestartedCase):
    """A user of ``kubectl console`` at a terminal."""

    async def test_typed_blindly(self) -> None:
        """
        Keys that a user types while the machine goes down and starts go nowhere until their user pauses, and are
        counted; what is typed then goes to the machine.
        """
        program = terminal([script("kubectl-console"), "sh"], KUBECONFIG=self.kubeconfig)
        self.addCleanup(program.stop)
        await program.until(b"helps")
        program.type(b"echo o''ne\r")
        await program.until(b"one\r\n")
        typed = 0

        def type_blindly() -> None:
            nonlocal typed
            typed += 1
            program.type(b"z")

        typing = LoopingCall(type_blindly)
        self.addCleanup(lambda: typing.running and typing.stop())
        typing.start(0.05)
        await self.set_power("Off", "Shutdown")
        await self.set_power("On", "Running")
        start = (await program.until(LINE_AGAIN.encode())).end()
        await program.until(b"[$#] ", start=start)
        before = typed
        while typed < before + 10:
            await pause()
        typing.stop()
        counted = b"([0-9]+) keys %b were discarded" % TYPED_BEFORE.encode()
        count = int((await program.until(counted, start=start))[1])
        self.assertTrue(10 <= count <= typed, (count, typed))
        program.type(b"\recho tw''o\r")
        await program.until(b"two\r\n", start=start)
        self.assertNotIn(b"zz", program.output[start:])


class OffTests(RestartedCase):
    """The machine stays off."""

    runtime_options = ("--resume-seconds=2",)

    async def test_stays_off(self) -> None:
        """The session ends with the reason after its time, at every hop."""
        await self.answers("one")
        await self.set_power("Off", "Shutdown")
        while self.user.ending is None:
            await pause()
        self.assertEqual(self.user.ending.reason, POWERED_OFF)
        for hop in ("api", "poollet", "runtime"):
            while not self.audit(hop, "end"):
                await pause()


class StockTests(PodsTestCase):
    """A stock kubectl."""

    skip = needs.kubectl()

    async def test_stays(self) -> None:
        """It goes on over a crash and a power cycle, and gets the exit code in the end."""
        program = self.in_terminal("kubectl", "attach", "-it", "sh")
        await program.until(rb"press enter|[$#] ")
        program.type(b"echo o''ne; kill -9 $$\n")
        await program.until(rb"one\r\n")
        await program.until(LINE_AGAIN.encode())
        start = len(program.stdout)
        program.type(b"echo t''wo\n")
        await program.until(rb"two\r\n", start=start)
        for power, state in (("Off", "Shutdown"), ("On", "Running")):
            await self.set_power(power, state)
        await program.until(LINE_AGAIN.encode(), start=start)
        program.type(b"echo th''ree; exit 3\n")
        await program.until(rb"three\r\n", start=start)
        self.assertEqual(await program.ended, 3)
