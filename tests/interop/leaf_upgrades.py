"""
A node server that is replaced again and again, while users work in a Pod of a leaf.

``UPGRADES`` is the number of hand-overs (12 without it; none begins after ``UPGRADE_SECONDS``),
``SESSIONS`` that of the sessions (20 without it), of kubectls of the oldest and the newest version in
turn.  Each types a numbered line twice a second.  A kubectl leaves after each hand-over, and another
one comes.  At the end each has got the answers to all that it has typed.
"""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import LoopingCall

from tests import procfs
from tests.flows import kubectls
from tests.flows.clusters.test_leaves import ECHO
from tests.flows.clusters.test_node_server import ProgramCase
from tests.flows.deployment import pause
from tests.flows.programs import Program
from tests.nodeserver.clusters import POD

from .upgrades import OPENED_AT_ONCE, SESSIONS, UPGRADE_SECONDS, UPGRADES, figures

reactor: Any = _reactor

_INTERVAL_SECONDS = 0.5
_PATIENCE_SECONDS = 100.0


class Worker:
    """A kubectl that runs a program, which answers each line."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines = 0
        self._typing = LoopingCall(self._type)

    def type_on(self) -> None:
        self._typing.start(_INTERVAL_SECONDS)

    def stop_typing(self) -> None:
        if self._typing.running:
            self._typing.stop()

    def _type(self) -> None:
        self.program.type(b"%07d\n" % self.lines)
        self.lines += 1

    @property
    def expected(self) -> bytes:
        """The answers to all lines."""
        return b"".join(b"<%07d>\n" % number for number in range(self.lines))

    async def answered(self) -> int:
        """
        Wait for the answer to the last line.

        :return: the number of bytes of all answers.
        :raises AssertionError: the session has ended, or there are other answers.
        """
        deadline, expected = reactor.seconds() + _PATIENCE_SECONDS, self.expected
        while len(self.program.stdout) < len(expected):
            assert self.program.exit_code is None, self.program.output[-1000:]
            assert reactor.seconds() < deadline, self.program.output[-1000:]
            await pause()
        assert self.program.stdout.startswith(expected), self.program.output[-1000:]
        return len(expected)

    async def leave(self) -> None:
        self.stop_typing()
        await self.program.stop(signal.SIGKILL)


class LeafUpgradeTests(ProgramCase):
    """Sessions of stock kubectls through a node server."""

    timeout = 600 + 60 * UPGRADES + 10 * SESSIONS
    options = (f"--handover-seconds={_PATIENCE_SECONDS:g}",)
    fork = False

    async def test_upgrades(self) -> None:
        """No session ends, and no byte is missing."""
        began = reactor.seconds()
        opening = DeferredSemaphore(OPENED_AT_ONCE)
        opened = [opening.run(self.opened, number) for number in range(SESSIONS)]
        users = await gatherResults(opened, consumeErrors=True)
        times: list[float] = []
        replaced: list[int] = []
        compared = 0
        while len(times) < UPGRADES and reactor.seconds() < began + UPGRADE_SECONDS:
            replaced.append(self.program.pid)
            start = reactor.seconds()
            await self.program.hand_over()
            times.append(reactor.seconds() - start)
            for user in users:
                await user.answered()
            leaver = users.pop(0)
            leaver.stop_typing()
            compared += await leaver.answered()
            await leaver.leave()
            users.append(await self.open(SESSIONS + len(times)))
        lingering = sum(map(procfs.is_alive, replaced))
        for user in users:
            user.stop_typing()
            compared += await user.answered()
        print(
            f"\n{len(times)} upgrades in {figures(times)} s, {SESSIONS + len(times)} sessions of stock"
            f" kubectls ({SESSIONS} at once), {lingering} old processes at the end, {compared} bytes"
            " compared"
        )
        for user in users:
            await user.leave()
        while any(map(procfs.is_alive, replaced)):
            await pause()

    def opened(self, number: int) -> Deferred[Worker]:
        """As :meth:`open`."""
        return Deferred.fromCoroutine(self.open(number))

    async def open(self, number: int) -> Worker:
        """Open a session; fires when it has been answered."""
        name = (kubectls.some()[0], kubectls.some()[-1])[number % 2]
        user = Worker(self.begin("exec", "-i", POD, "--", *ECHO, name=name))
        self.addCleanup(user.leave)
        user.type_on()
        await user.answered()
        return user
