"""
Sessions over a connection between API server and poollet that has carried another one before.

Each hop and each connection behind them is lost or restarted, at work; all bytes are compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import needs
from tests.flows import kubectls
from tests.flows.busy_machine import is_exact
from tests.flows.outages.test_rejoined import begin_load, end_load, ready
from tests.flows.outages.test_resume import ResumeTestCase
from tests.flows.programs import Program, terminal
from tests.flows.resuming import Typist
from twisted_exec.wire.stream_options import CONSOLE

MUCH = 50_000
"""More output than a connection has passed that has carried no session: a handshake."""


class ResumedTests(ResumeTestCase):
    """A user of ours, who resumes the session, and a stock kubectl, whose stream is rejoined."""

    skip = needs.kubectl()

    async def console(self, user: str = "ada", **options: Any) -> Typist:
        typist = await Typist.at(
            self.deployment.through_cable(user), "busy", options=replace(CONSOLE, **options)
        )
        self.addCleanup(typist.leave)
        return typist

    async def carry(self, count: int) -> None:
        """Leave so many connections that have carried a session."""
        users = [await self.console() for _ in range(count)]
        for user in users:
            await user.until(lambda user=user: user.printed_bytes > MUCH)
        for user in users:
            await user.leave()

    def answered(self) -> dict[object, int]:
        answered: dict[object, int] = self.deployment.middle.answered
        return answered

    def is_next(self, before: dict[object, int], since: dict[object, int]) -> bool:
        """
        Whether the connection with the most output since then had carried a session before.

        :param before: what had passed before the present session began.
        """
        now = self.answered()
        busiest = max(now, key=lambda end: now[end] - since.get(end, 0))
        return before.get(busiest, 0) > MUCH

    async def busy(self) -> Typist:
        """A user at work over a connection of an earlier session."""
        before = self.answered()
        user = await self.console()
        await user.until(lambda: user.printed_bytes)
        user.type_on()
        await self.under_load(user)
        self.assertTrue(self.is_next(before, before))
        return user

    async def test_lost(self) -> None:
        """Each connection of such a session is cut, its own among them, and then all at once."""
        await self.carry(3)
        user = await self.busy()
        for cables in (("near",), ("middle",), ("far",), ("near", "middle", "far")):
            count, before = len(user.seconds), self.answered()
            for name in cables:
                self.deployment.cables[name].cut()
            await user.until_resumed(count + 1)
            await self.under_load(user)
            if cables == ("near",):  # the user's new session has another of these connections
                self.assertTrue(self.is_next(before, before))
        await self.check(user)
        self.assertEqual(self.deployment.errors(), [])

    async def test_taken_over(self) -> None:
        """Another user takes the console over; both read on, and each key arrives once."""
        await self.carry(3)
        user = await self.busy()
        user.stop_typing()
        await user.until(lambda: self.deployment.typed_bytes >= user.sent_bytes)
        before = self.answered()
        other = await self.console("bob", force=True)
        await other.until(lambda: other.printed_bytes)
        other.type_on()
        await self.under_load(other)
        self.assertTrue(self.is_next(before, before))
        self.deployment.near.cut()
        for each in (user, other):
            await each.until_resumed(1)
        await self.under_load(other)
        other.stop_typing()
        sent = user.sent + other.sent
        await other.until(lambda: self.deployment.typed_bytes >= len(sent))
        self.assertTrue(self.deployment.typed == sent, "the machine got other keys")
        self.deployment.stop_printing()
        for each in (user, other):
            await each.until_printed(rb"END\n")
            self.assertTrue(is_exact(each.printed.removesuffix(b"END\n")), "other output")
            self.assertEqual((each.gaps, set(each.uncertain)), ([], {0}))

    async def shell(self) -> tuple[Program, int]:
        """A kubectl at a shell, over a connection of an earlier session; the size of its output."""
        await self.deployment.create_machine("sh", "shell")
        program = terminal(
            [kubectls.found()["kubectl"], "attach", "-it", "sh"],
            KUBECONFIG=str(Path(self.deployment.admin).resolve()),
            HOME=self.mktemp(),
        )
        self.addCleanup(program.stop)
        return program, await ready(program, "kubectl")

    async def test_rejoined(self) -> None:
        """A kubectl's connection is cut: each byte of output and each key arrives once."""
        await self.carry(2)
        before = self.answered()
        program, start = await self.shell()
        since = self.answered()
        await begin_load(program, start)
        self.assertTrue(self.is_next(before, since))
        self.deployment.middle.cut()
        got, expected, last = await end_load(program, start)
        self.assertEqual(got, expected, last)
        program.type(b"exit 3\n")
        self.assertEqual(await program.ended, 3)
        self.assertEqual(self.deployment.errors(), [])

    async def test_poollet_restarted(self) -> None:
        """The poollet is restarted: our user resumes the session, a kubectl's is rejoined."""
        user, program, start = await self.at_work()
        await self.deployment.restart("poollet", kill=False)
        await user.until_resumed(1)
        got, expected, last = await end_load(program, start)
        self.assertEqual(got, expected, last)
        await self.goes_on(user)

    async def test_api_server_restarted(self) -> None:
        """The API server is restarted: our user resumes the session, a kubectl's ends with the reason."""
        user, program, _ = await self.at_work()
        await self.deployment.restart("api", kill=False)
        await user.until_resumed(1)
        self.assertEqual(await program.ended, 1)
        self.assertIn(b"exec-apiserver is restarting", program.output)
        await self.goes_on(user)

    async def at_work(self) -> tuple[Typist, Program, int]:
        """A user and a kubectl over connections of earlier sessions."""
        await self.carry(4)
        user = await self.busy()
        program, start = await self.shell()
        await begin_load(program, start)
        return user, program, start

    async def goes_on(self, user: Typist) -> None:
        """Compare what the user has got, and use another connection after an earlier session."""
        await self.under_load(user)
        await self.carry(2)
        before = self.answered()
        other = await self.console("bob")
        await other.until(lambda: other.printed_bytes > MUCH)
        self.assertTrue(self.is_next(before, before))
        await self.check(user)
        self.assertEqual(self.deployment.errors(), [])
