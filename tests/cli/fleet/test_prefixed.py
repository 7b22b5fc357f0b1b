"""Tests for :mod:`twisted_exec.cli.fleet.prefixed`: real logs, sockets and pipes."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from twisted.internet import reactor
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred

from tests.cli.fleet.support import FleetCase, FleetsCase
from tests.clocks import expire
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.cli.console.terminal import TerminalInput
from twisted_exec.cli.fleet import follower
from twisted_exec.cli.fleet.prefixed import Prefixed
from twisted_exec.kube import downloads


class Run:
    """One run of the program, with a pipe or a terminal as its output."""

    def __init__(self, case: FleetCase, *words: str, is_terminal: bool = False) -> None:
        self.text = b""
        self._waiting: list[tuple[bytes, Deferred[None]]] = []
        reader, writer = os.openpty() if is_terminal else os.pipe()
        os.set_blocking(reader, False)
        self.input: FileDescriptor = TerminalInput(reader, self._received, lambda: None, reactor)
        self.input.resumeProducing()
        self.task = case.task(Prefixed, *words)
        self.task.output = writer
        self.ended = Deferred.fromCoroutine(self.task.run())

        def close() -> None:
            self.input.stop()
            os.close(reader)
            os.close(writer)

        case.addCleanup(close)

    def _received(self, data: bytes) -> None:
        self.text += data
        for pattern, seen in self._waiting[:]:
            if re.search(pattern, self.text):
                self._waiting.remove((pattern, seen))
                seen.callback(None)

    def until(self, pattern: bytes) -> Deferred[None]:
        seen: Deferred[None] = Deferred()
        self._waiting.append((pattern, seen))
        self._received(b"")
        return seen

    async def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self.task.interrupted(signal.SIGINT)
        code: int = await self.ended
        await self.until(b"")
        return code


class PrefixedTests(FleetCase):
    """``kubectl console -l SELECTOR``."""

    def setUp(self) -> Any:
        self.patch(follower, "FIRST_WAIT_SECONDS", 0.01)
        return super().setUp()

    def append(self, name: str, data: bytes) -> None:
        self.fleet.journals[f"default/{name}"].append(data)

    async def test_lines(self) -> None:
        """The last lines of each machine come first, then new ones; Ctrl-C leaves with 0."""
        self.fleet.add("default/a", "default/b")
        self.append("a", b"old\r\none\r\n")
        run = Run(self, "-l", "app=web", "--tail", "1")
        await run.until(rb"a \| one\n")
        self.append("b", b"\x1b[31mtwo\x1b[m\r\n")
        await run.until(rb"b \| two\n")
        self.assertEqual(await run.interrupt(), 0)
        self.assertNotIn(b"old", run.text)
        *before, last = self.messages
        self.assertRegex(last, r"following 2 of 2 machines after [0-9.]+ s")
        # A slow server adds messages about its progress.
        self.assertTrue(all("of 2 consoles" in each for each in before), before)

    async def test_quiet(self) -> None:
        """--quiet prints no messages about the progress."""
        self.fleet.add("default/a")
        self.append("a", b"one\n")
        run = Run(self, "--all", "-q")
        await run.until(rb"one\n")
        self.assertEqual((await run.interrupt(), self.messages), (0, []))

    async def test_partial(self) -> None:
        """A machine that refuses is named, the others are printed, and the exit code is 1."""
        self.fleet.add("default/a", "default/b")
        self.append("a", b"one\n")
        self.fleet.problems["default/b"] = Forbidden("no log of b for you")
        run = Run(self, "--all")
        await run.until(rb"a \| one\n")
        # A slow server adds messages about its progress, and b may refuse before a is open.
        while len(told := [each for each in self.messages if "of 2 consoles" not in each]) < 2:
            await self._settle()
        refused, following = sorted(told)
        self.assertEqual(refused, "b: forbidden: no log of b for you")
        self.assertRegex(following, "following 1 of 2 machines")
        self.assertEqual(await run.interrupt(), 1)

    async def test_our_error(self) -> None:
        """A machine whose server provokes an error of ours is named, and the others are printed."""
        self.fleet.add("default/a", "default/b")
        self.append("a", b"one\n")
        open_download = downloads.open_download

        def fail(config: Any, where: str, *more: Any, **options: Any) -> Any:
            if "/b/log" in where:
                raise TypeError("no\x1b[2J")
            return open_download(config, where, *more, **options)

        self.patch(downloads, "open_download", fail)
        run = Run(self, "--all")
        await run.until(rb"a \| one\n")
        while "b: internal error: TypeError: no?[2J" not in self.messages:
            await self._settle()
        self.assertEqual(await run.interrupt(), 1)

    async def test_retried(self) -> None:
        """A machine that is not in reach is tried again until it is."""
        self.fleet.add("default/a")
        self.append("a", b"one\n")
        self.fleet.problems["default/a"] = ServiceUnavailable("starting")
        run = Run(self, "--all")
        while len(self.fleet.log_queries) < 3:
            await self._settle()
        self.fleet.problems.clear()
        await run.until(rb"a \| one\n")
        self.assertEqual(await run.interrupt(), 0)

    async def test_deleted(self) -> None:
        """The program ends when all machines are deleted, after their last output."""
        self.fleet.add("default/a")
        self.append("a", b"one\nlast")
        run = Run(self, "--all", "-q")
        await run.until(rb"one\n")
        self.fleet.journals["default/a"].close()
        self.assertEqual(await run.ended, 0)
        await run.until(rb"a \| last\n")

    async def test_timeout(self) -> None:
        """--timeout ends the run as Ctrl-C does."""
        self.fleet.add("default/a")
        run = Run(self, "--all", "--timeout", "0.1")
        self.assertEqual(await run.ended, 0)

    async def test_nothing_selected(self) -> None:
        """Without machines the program ends with 1 and the reason."""
        run = Run(self, "-l", "app=web")
        self.assertEqual(await run.ended, 1)
        self.assertIn("matches no machine", self.messages[0])

    async def test_interrupted_early(self) -> None:
        """Ctrl-C also ends the program before the servers have answered; SIGTERM with its code."""
        run = Run(self, "--all")
        run.task.interrupted(signal.SIGTERM)
        self.assertEqual(await run.ended, 128 + signal.SIGTERM)

    async def test_reader_left(self) -> None:
        """When the reader of a pipe leaves, so does the program."""
        self.fleet.add("default/a")
        self.append("a", b"one\n")
        run = Run(self, "--all", "-q")
        await run.until(rb"one\n")
        run.input.stop()
        os.dup2(os.open(os.devnull, os.O_RDONLY), run.input.fileno())
        self.append("a", b"two\n")
        self.assertEqual(await run.ended, 0)

    async def test_state(self) -> None:
        """With --state the next run continues at the exact byte, within a line as well."""
        self.fleet.add("default/a", "default/b")
        path = os.path.abspath(self.mktemp())
        self.append("a", b"one\n")
        run = Run(self, "--all", "--state", path)
        await run.until(rb"a \| one\n")
        self.append("b", b"login: ")
        await run.until(rb"b \| login: \n")
        self.append("a", b"two\nthr")
        await run.until(rb"two\n")
        await run.interrupt()
        self.append("a", b"ee\n")
        self.append("b", b"ada\n")
        run = Run(self, "--all", "--state", path)
        await run.until(rb"(?s)ada.*three|three.*ada")
        self.assertEqual(sorted(run.text.splitlines()), [b"a | three", b"b + ada"])
        await run.interrupt()

    async def test_state_gap(self) -> None:
        """Output of another journal, because that was lost, is marked."""
        self.fleet.add("default/a")
        path = os.path.abspath(self.mktemp())
        self.append("a", b"one\n")
        run = Run(self, "--all", "--state", path)
        await run.until(rb"one\n")
        await run.interrupt()
        self.fleet.add("default/a")
        self.append("a", b"new\n")
        run = Run(self, "--all", "--state", path)
        await run.until(rb"a \| new\n")
        self.assertIn(b"a | [twisted-exec: ", run.text)
        await run.interrupt()

    async def test_state_after_a_loss(self) -> None:
        """A lost connection within a run loses and repeats nothing."""
        self.fleet.add("default/a")
        path = os.path.abspath(self.mktemp())
        self.append("a", b"one\n")
        run = Run(self, "--all", "--state", path)
        await run.until(rb"one\n")
        self.fleet.cut()
        self.append("a", b"two\n")
        await run.until(rb"two\n")
        await run.interrupt()
        self.assertEqual(run.text, b"a | one\na | two\n")

    async def test_state_without_offsets(self) -> None:
        """A server of another make sends no offsets: --state refuses its machines."""
        self.fleet.add("default/a")
        self.fleet.frames = False
        run = Run(self, "--all", "--state", os.path.abspath(self.mktemp()))
        self.assertEqual(await run.ended, 1)
        self.assertIn("sends no offsets, which --state needs", self.messages[-1])

    async def test_without_offsets(self) -> None:
        """Its lines are printed, and a loss is marked."""
        self.fleet.add("default/a")
        self.fleet.frames = False
        self.append("a", b"one\n")
        run = Run(self, "--all")
        await run.until(rb"one\n")
        self.fleet.cut()
        await run.until(rb"a \| \[kubectl console: output may be missing here\]\n")
        self.append("a", b"two\n")
        await run.until(rb"a \| two\n")
        await run.interrupt()

    async def test_state_not_usable(self) -> None:
        """A file that is no state is refused before a server is asked."""
        path = self.kubeconfig()
        run = Run(self, "--all", "--state", path)
        self.assertEqual(await run.ended, 1)
        self.assertIn("is not a file of --state", self.messages[0])
        self.assertEqual(self.fleet.heads, [])


class ClustersTests(FleetsCase):
    """``kubectl console --all --space '*'``: each cluster is on its own."""

    async def test_silent(self) -> None:
        """Clusters that do not answer, or whose logs do not open, hold up no lines of others, and are named."""
        fleet = await self.add_fleet("lab-1", "a")
        fleet.journals["default/a"].append(b"one\n")
        (await self.add_fleet("silent")).is_silent = True
        slow = await self.add_fleet("slow", *(f"vm-{number}" for number in range(20)))
        slow.has_silent_logs = True
        run = Run(self, "--all", "--request-timeout", "3600")
        await run.until(rb"lab-1/a \| one\n")
        while "waiting for silent" not in self.messages:
            await self._settle()
        expire(reactor, 3000)
        while not any(each.startswith("space silent: the API server") for each in self.messages):
            await self._settle()
        fleet.journals["default/a"].append(b"two\n")
        await run.until(rb"lab-1/a \| two\n")
        self.assertEqual(await run.interrupt(), 1)

    async def test_failed(self) -> None:
        """When the machines of all clusters that answered are deleted, a cluster that failed makes the code 1."""
        fleet = await self.add_fleet("lab-1", "a")
        (await self.add_fleet("bad")).documents["/apis"] = {"groups": 1}
        run = Run(self, "--all", "-q")
        fleet.journals["default/a"].append(b"one\n")
        await run.until(rb"lab-1/a \| one\n")
        fleet.journals["default/a"].close()
        self.assertEqual(await run.ended, 1)

    async def test_none(self) -> None:
        """When all fail, each is named, and the program ends."""
        for name in ("bad-1", "bad-2"):
            (await self.add_fleet(name)).documents["/apis"] = {"groups": 1}
        run = Run(self, "--all")
        self.assertEqual(await run.ended, 1)
        *failed, last = self.messages
        self.assertEqual(sorted(each[:13] for each in failed), ["space bad-1: ", "space bad-2: "])
        self.assertEqual(last, "no machine is selected, and 2 clusters failed")
