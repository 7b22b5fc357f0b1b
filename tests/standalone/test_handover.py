"""
Tests for :mod:`twisted_exec.standalone.service`, and the hand-over of ``exec-standalone``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import LoopingCall
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import implementer

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.consoles import watch
from tests.ports import reserved_port
from tests.standalone.test_tap_program import StandaloneCase
from tests.tiers import PROGRAMS
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.listening import ListeningSockets
from twisted_exec.standalone.certificates import POOL
from twisted_exec.standalone.handover import APISERVER, POOLLET, RUNTIME, SPACES, PartsHandOver
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.settings import Settings
from twisted_exec.standalone.state import StateDirectory
from twisted_exec.storage.memory import MemoryStorage

reactor: Any = _reactor
NAMES = (RUNTIME, APISERVER, POOLLET, SPACES)


class Sockets(ListeningSockets):
    """Takes note of what is done with the sockets."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._events = log

    def accept(self) -> None:
        self._events.append("accept")

    def pause(self) -> None:
        self._events.append("pause")


@implementer(IHandsOver)
class Part:
    """A part with a state."""

    state_version = 1

    def __init__(self, name: str, log: list[str], descriptors: Sequence[int] = ()) -> None:
        self.name, self._log, self._descriptors = name, log, descriptors
        self.inherited: ServiceState | None = None
        self.fails = False
        self.retiring: Deferred[None] = Deferred()
        self.thawing: Deferred[None] = succeed(None)

    def freeze(self) -> Deferred[ServiceState]:
        self._log.append(f"freeze {self.name}")
        if self.fails:
            return fail(ValueError(self.name))
        return succeed(ServiceState({"of": self.name}, self._descriptors))

    def thaw(self) -> Deferred[None]:
        self._log.append(f"thaw {self.name}")
        return fail(ValueError(self.name)) if self.fails else self.thawing

    def retire(self, linger_seconds: float) -> Deferred[None]:
        self._log.append(f"retire {self.name} {linger_seconds:g}")
        if self.fails:
            raise ValueError(self.name)
        return self.retiring

    def inherit(self, handed: ServiceState) -> None:
        self.inherited = handed


class PartsTests(SynchronousTestCase):
    """Parts that write what they do."""

    def setUp(self) -> None:
        self.state = StateDirectory(self.mktemp())
        self.state.open()
        self.addCleanup(self.state.close)
        self.log: list[str] = []
        self.parts = {name: Part(name, self.log) for name in NAMES}
        self.hand_over = PartsHandOver(self.state, Sockets(self.log))

    def add(self) -> None:
        for name, part in self.parts.items():
            self.hand_over.add(name, part)

    def freeze(self) -> ServiceState:
        return self.successResultOf(Deferred.fromCoroutine(self.hand_over.freeze()))

    def test_order(self) -> None:
        """Each part can use those that freeze later; connections wait from the API server's freeze on."""
        self.add()
        self.freeze()
        self.assertTrue(self.hand_over.is_frozen)
        order = ["accept", "freeze spaces", "freeze poollet", "pause", "freeze apiserver"]
        self.assertEqual(self.log, [*order, "freeze runtime"])
        self.log.clear()
        self.successResultOf(Deferred.fromCoroutine(self.hand_over.thaw()))
        self.assertFalse(self.hand_over.is_frozen)
        order = ["thaw runtime", "thaw apiserver", "accept", "thaw poollet", "thaw spaces"]
        self.assertEqual(self.log, order)

    def test_failed(self) -> None:
        """When a part does not freeze, and does not go on, the others go on."""
        self.add()
        self.parts[APISERVER].fails = True
        self.failureResultOf(Deferred.fromCoroutine(self.hand_over.freeze()), ValueError)
        self.log.clear()
        self.successResultOf(Deferred.fromCoroutine(self.hand_over.thaw()))
        self.assertEqual(self.log, ["thaw apiserver", "accept", "thaw poollet", "thaw spaces"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_stopped_while_thawing(self) -> None:
        """A program that stops while a part goes on lets no other part go on."""
        self.add()
        self.freeze()
        self.log.clear()
        self.parts[APISERVER].thawing = Deferred()
        thawing = Deferred.fromCoroutine(self.hand_over.thaw())
        self.assertNoResult(thawing)
        thawing.cancel()
        self.failureResultOf(thawing, CancelledError)
        self.assertEqual(self.log, ["thaw runtime", "thaw apiserver"])
        self.assertTrue(self.hand_over.is_frozen)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_state(self) -> None:
        """A successor's parts get what those of the same name gave, with their descriptors."""
        self.parts[POOLLET]._descriptors, self.parts[RUNTIME]._descriptors = (101,), (102, 103)
        del self.parts[SPACES]
        self.add()
        handed = self.freeze()
        values = json.loads(json.dumps(dict(handed.values)))
        state = StateDirectory(self.state.path)
        successor = PartsHandOver(state)
        lock = os.dup(handed.descriptors[0])
        successor.inherit(ServiceState(values, [lock, *handed.descriptors[1:]]))
        self.assertTrue(successor.is_successor)
        parts = {name: Part(name, self.log) for name in NAMES}
        for name, part in parts.items():
            successor.add(name, part)
        self.assertEqual(parts[POOLLET].inherited, ServiceState({"of": POOLLET}, [101]))
        self.assertEqual(parts[RUNTIME].inherited, ServiceState({"of": RUNTIME}, [102, 103]))
        self.assertEqual(parts[SPACES].inherited, None)
        state.open()
        state.close()

    def test_retired(self) -> None:
        """It has retired when all parts have, and leaves the lock to the successor."""
        self.add()
        self.freeze()
        self.log.clear()
        retiring = Deferred.fromCoroutine(self.hand_over.retire(7))
        self.assertEqual(sorted(self.log), sorted(f"retire {name} 7" for name in NAMES))
        self.assertLess(self.state.lock, 0)
        self.parts[POOLLET].retiring.errback(ValueError())
        for name in (RUNTIME, APISERVER, SPACES):
            self.assertNoResult(retiring)
            self.parts[name].retiring.callback(None)
        self.successResultOf(retiring)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertTrue(self.hand_over.is_retired)

    def test_part_that_does_not_retire(self) -> None:
        """A part that cannot leave its sessions to the successor does not stop the others."""
        self.add()
        self.freeze()
        self.parts[SPACES].fails = True
        self.log.clear()
        retiring = Deferred.fromCoroutine(self.hand_over.retire(7))
        self.assertEqual(sorted(self.log), sorted(f"retire {name} 7" for name in NAMES))
        for name in (RUNTIME, APISERVER, POOLLET):
            self.assertNoResult(retiring)
            self.parts[name].retiring.callback(None)
        self.successResultOf(retiring)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_state_of_another_program(self) -> None:
        """A state without parts, or without the lock, is refused."""
        for handed in (
            ServiceState(),
            ServiceState({"parts": []}, [1]),
            ServiceState({"parts": {}}),
        ):
            with self.assertRaises(ValueError):
                self.hand_over.inherit(handed)
        self.assertFalse(self.hand_over.is_successor)


class ServiceTests(TestCase):
    """All parts in this process."""

    def make(self, **options: Any) -> Standalone:
        directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, directory, True)
        settings = Settings(directory, port=0, spaces=False, demo=False, **options)
        return Standalone(settings, reactor)

    def test_cannot(self) -> None:
        """A store in memory is lost with the process, and a parent would take a new process for none."""
        self.assertTrue(IHandsOver.providedBy(self.make()))
        self.assertFalse(IHandsOver.providedBy(self.make(has_parent=True)))
        self.assertFalse(IHandsOver.providedBy(self.make(storage=lambda _: MemoryStorage())))

    async def test_thawed(self) -> None:
        """It goes on as before, also to stop."""
        standalone = self.make()
        standalone.startService()
        await standalone.when_ready()
        for _ in range(2):
            await standalone.freeze()
            await standalone.thaw()
        self.assertTrue(os.path.exists(standalone.kubeconfig))
        pool = await self.client(standalone).get(IRONCORE.pool, POOL)
        self.assertEqual(pool["status"]["state"], "Ready")
        await standalone.freeze()
        await standalone.stopService()
        self.assertFalse(os.path.exists(standalone.kubeconfig))

    def client(self, standalone: Standalone) -> KubeClient:
        client = KubeClient(load(standalone.kubeconfig), reactor)
        self.addCleanup(client.close)
        return client


class ReplacedTests(StandaloneCase):
    """A program that a user started is replaced while consoles are open."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()

    async def test_replaced(self) -> None:
        """Our client's session and that of a stock kubectl go on at the same shell, to the byte."""
        program = await self.kept("--handover-seconds", "600")
        screen = await watch(self.kubeconfig, "demo-shell", resume=True)
        await screen.ask(b"stty -echo; PS1=; echo shell-$$\n", rb"shell-\d+\r\n")
        argv = [kubectls.found()["kubectl"], "attach", "-it", "demo-shell"]
        stock = programs.terminal(argv, KUBECONFIG=self.kubeconfig, HOME=self.directory)
        self.addCleanup(stock.stop)
        await stock.until(rb"shell-\d+\r\n")
        lines = self.type_lines(screen)
        await program.hand_over()
        await screen.until(rb"\n100\r\n")
        lines.stop()
        await screen.until(rb"\n%d\r\n" % (len(self.typed) - 1))
        stock.type(b"echo stock-$$\n")
        await screen.until(rb"stock-\d+\r\n")
        await stock.until(rb"stock-\d+\r\n")
        shell = re.search(rb"shell-(\d+)\r\n", screen.output)
        assert shell is not None
        *numbers, last = screen.output[shell.end() :].split()
        self.assertEqual(last, b"stock-" + shell[1])
        self.assertEqual(numbers, self.typed)
        self.assertTrue(os.path.exists(self.kubeconfig))
        self.assertEqual(program.stdout.count(b"Ready."), 1)
        await screen.leave()

    async def test_lost(self) -> None:
        """
        Our client's session goes on at the same shell after the program was killed, and is a new one after it has
        stopped; kubectl ends.
        """
        port = str(reserved_port(self))
        program = await self.kept("--port", port)
        ours = await self.terminal([programs.script("kubectl-console"), "demo-shell"])
        shell = await self.asked(ours, b"shell")
        for number in (signal.SIGKILL, signal.SIGTERM):
            stock = {
                name: await self.terminal([kubectls.found()[name], "attach", "-it", "demo-shell"])
                for name in kubectls.some()
            }
            await program.stop(number)
            for name, each in stock.items():
                is_silent = number == signal.SIGKILL and kubectls.carrier(name) == "SPDY/3.1"
                self.assertEqual(await each.ended, 0 if is_silent else 1, name)
                if number == signal.SIGTERM:
                    self.assertIn(b"error: the server of this console is shutting", each.output)
            start = len(ours.output)
            program = await self.kept("--port", port)
            if number == signal.SIGTERM:
                await ours.until(b"Connected to demo-shell", start=start)
            self.assertEqual(await self.asked(ours, b"again-%d" % number), shell)

    async def terminal(self, argv: list[str]) -> programs.Program:
        """Open the console."""
        program = programs.terminal(argv, KUBECONFIG=self.kubeconfig, HOME=self.directory)
        self.addCleanup(program.stop)
        await self.asked(program, b"hello")
        return program

    async def asked(self, program: programs.Program, word: bytes) -> int:
        """Return the process of the shell."""
        await program.until(rb"press enter|[$#] ")
        return int(await program.asked(b"echo %b-$$\n" % word, word + rb"-(\d+)\r\n"))

    def type_lines(self, screen: Any) -> LoopingCall:
        """Type commands that print 0, 1, 2 and so on."""
        self.typed: list[bytes] = []

        def type_line() -> None:
            self.typed.append(b"%d" % len(self.typed))
            screen.type(b"echo %b\n" % self.typed[-1])

        typing = LoopingCall(type_line)
        typing.start(0.02)
        self.addCleanup(lambda: typing.stop() if typing.running else None)
        return typing
