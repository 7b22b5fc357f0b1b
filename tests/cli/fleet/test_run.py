"""Tests for :mod:`twisted_exec.cli.fleet.run`: the commands run in real shells behind a real server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.utils import getProcessOutput

from tests.cli.fleet.support import FleetCase, FleetsCase
from tests.clocks import expire
from tests.tiers import PROGRAMS
from twisted_exec.api.status import Forbidden
from twisted_exec.cli.console.script import ScriptSink
from twisted_exec.cli.fleet import run
from twisted_exec.cli.fleet.run import RunTask
from twisted_exec.cli.fleet.targets import FleetTarget, open_target
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.marks import Attendance, OpenRecording


class Shell(RecordingAttachment):
    """A machine with a shell at its prompt."""

    def __init__(self, name: str) -> None:
        super().__init__(b"# ")
        self._name, self._line = name, b""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for byte in data:
            if byte == 0x15:
                self._line = b""
            elif byte != 0x0D:
                self._line += bytes([byte])
            else:
                line, self._line = self._line, b""
                self.transport.write(line + b"\r\n")
                environment = {**os.environ, "NAME": self._name}
                # Each line has a shell of its own, which reads no further line.
                run = b"exec </dev/null; " + line
                running = getProcessOutput("/bin/sh", ["-c", run], environment, errortoo=True)
                running.addCallback(self._ran)

    def _ran(self, output: bytes) -> None:
        if not self.detached_with:
            self.transport.write(output.replace(b"\n", b"\r\n") + b"# ")


class Endless(Shell):
    """A machine whose commands do not end."""

    def _ran(self, output: bytes) -> None:
        output, end, _ = output.partition(b"\x1b]28747;E")
        self.transport.write(output.replace(b"\n", b"\r\n") + b"# " * (not end))


class RunCase(FleetCase):
    """Runs the program."""

    def add(self, *names: str, make: Callable[[str], RecordingAttachment] = Shell) -> None:
        for name in names:
            self.fleet.add(f"default/{name}")
            self.fleet.machines[f"default/{name}"] = partial(make, name)

    def run_task(self, *words: str) -> tuple[RunTask, Deferred[int], Any]:
        reader, writer = os.pipe()
        task = self.task(RunTask, "--all", *words)
        task.output = writer
        ended = Deferred.fromCoroutine(task.run())

        def read() -> str:
            os.close(writer)
            with open(reader, "rb") as file:
                return file.read().decode()

        return task, ended, read


class RunTests(RunCase):
    """``kubectl console -l SELECTOR --run COMMAND``."""

    starts = PROGRAMS

    async def test_equal(self) -> None:
        """Machines with equal outputs are folded, and the exit code is 0."""
        self.add("a", "b", "c")
        _, ended, read = self.run_task("--run", 'test $NAME != b && echo same || echo "I am $NAME"')
        self.assertEqual(await ended, 0)
        text = read()
        self.assertIn("2 machines, exit code 0: a c\n  | same\n", text)
        self.assertIn("1 machine, exit code 0: b\n  | I am b\n", text)

    async def test_partial(self) -> None:
        """A command that fails, and a machine that refuses, are listed with their codes: exit code 1."""
        self.add("a", "b")
        self.fleet.add("default/c")
        self.fleet.machines["default/c"] = Forbidden("not c")
        _, ended, read = self.run_task("--run", "test $NAME = a")
        self.assertEqual(await ended, 1)
        text = read()
        self.assertIn("1 machine, exit code 0: a\n", text)
        self.assertIn("1 machine, exit code 1: b\n", text)
        self.assertIn(
            "1 machine, exit code 125: c\n  | [kubectl console: forbidden: not c]\n", text
        )

    async def test_full_screen(self) -> None:
        """A machine with an open editor gets no command: exit code 122, and the others have their results."""
        editor = RecordingAttachment(b"\x1b[?1049h~\r\n~")
        self.add("a")
        self.add("b", make=lambda name: editor)
        _, ended, read = self.run_task("--run", "echo hello")
        self.assertEqual(await ended, 1)
        text = read()
        self.assertIn("exit code 0: a\n  | hello\n", text)
        self.assertIn("exit code 122: b\n  | [kubectl console: a full-screen program is open", text)
        self.assertEqual(editor.received, b"")

    async def test_record(self) -> None:
        """A machine whose console is not recorded gets no command."""
        attachment = RecordingAttachment()
        self.add("a", make=lambda name: attachment)
        _, ended, read = self.run_task("--run", "echo hello", "--record")
        self.assertEqual(await ended, 1)
        self.assertIn("has opened the console without a recording", read())
        self.assertEqual(attachment.received, b"")

    async def test_recorded(self) -> None:
        """The user reads once which consoles are recorded, and for whom."""
        self.add("a", "b", "c")
        ada, bob = OpenRecording("masked", "ada"), OpenRecording("all", "bob")
        recordings = {"a": (ada,), "b": (ada, bob), "c": (ada,)}

        def open_recorded(target: FleetTarget, session: Any, *more: Any) -> Any:
            """Open a console whose server sends marks, which that of this test does not."""

            def opened(stream: Any) -> Any:
                session.attendance_changed(Attendance(1, recordings=recordings[target.name]))
                return stream

            return open_target(target, session, *more).addCallback(opened)

        self.patch(run, "open_target", open_recorded)
        _, ended, read = self.run_task("--run", "true")
        self.assertEqual(await ended, 0)
        self.assertEqual(
            [each for each in self.messages if "recorded" in each],
            [
                "a, c: recorded for ada (input: masked)",
                "b: recorded for ada (input: masked), bob (input: all)",
            ],
        )
        self.assertNotIn("recorded", read())

    async def test_timeout(self) -> None:
        """A machine that does not answer in time has the code 124; the others have their results."""
        self.add("a")
        self.add("b", make=lambda name: RecordingAttachment())
        self.patch(os, "isatty", lambda descriptor: descriptor == 2)
        _, ended, read = self.run_task("--run", "echo hello", "--timeout", "3600")
        while "1 of 2 machines are done" not in self.messages:
            await self._settle()
        expire(reactor, 3000)
        self.assertEqual(await ended, 1)
        self.assertEqual(self.messages[-1], "2 of 2 machines are done")
        text = read()
        self.assertIn("exit code 0: a\n  | hello\n", text)
        self.assertIn("exit code 124: b\n  | [kubectl console: timed out, as --timeout says", text)

    async def test_interrupted(self) -> None:
        """Ctrl-C ends the sessions, and prints the results so far."""
        attachment = RecordingAttachment()
        self.add("a", make=lambda name: attachment)
        task, ended, read = self.run_task("--run", "echo hello")
        while not attachment.attachments:
            await self._settle()
        task.interrupted(signal.SIGINT)
        self.assertEqual(await ended, 1)
        self.assertIn("exit code 130: a\n  | [kubectl console: interrupted]\n", read())

    async def test_goes_on(self) -> None:
        """The result of a command that goes on has its output so far, and says how to end it."""
        written: list[bytes] = []

        def watched(script: Any, sink: Any) -> ScriptSink:
            write = sink.write
            sink.write = lambda data: (write(data), written.append(data))
            return ScriptSink(script, sink)

        self.patch(run, "ScriptSink", watched)
        self.add("a", make=Endless)
        for code, reason in ((130, "interrupted"), (124, "timed out, as --timeout says")):
            written.clear()
            task, ended, read = self.run_task("--run", "echo partial", "--timeout", "3600")
            while b"partial" not in b"".join(written):
                await self._settle()
            if code == 130:
                task.interrupted(signal.SIGINT)
            else:
                expire(reactor, 3000)
            self.assertEqual(await ended, 1)
            self.assertIn(
                f"exit code {code}: a\n  | partial\n  | [kubectl console: {reason}: the command has not "
                "ended and goes on in the console; --tiled sends Ctrl-C to many machines]\n",
                read(),
            )

    async def test_interrupted_late(self) -> None:
        """A command that has ended keeps its exit code when Ctrl-C comes before the session is over."""

        def watched(script: Any, sink: Any) -> Any:
            made: Any = ScriptSink(script, sink)
            write = made.write

            def and_interrupt(data: bytes) -> None:
                write(data)
                if script.outcome is not None:
                    task.interrupted(signal.SIGINT)

            made.write = and_interrupt
            return made

        self.patch(run, "ScriptSink", watched)
        self.add("a")
        task, ended, read = self.run_task("--run", "echo hello; exit 3")
        self.assertEqual(await ended, 1)
        self.assertIn("exit code 3: a\n  | hello\n", read())

    async def test_interrupted_early(self) -> None:
        """So does Ctrl-C before any command was typed."""
        self.add("a")
        task, ended, read = self.run_task("--run", "echo hello")
        task.interrupted(signal.SIGINT)
        self.assertEqual((await ended, read()), (1, ""))


class ClustersTests(FleetsCase, RunCase):
    """``kubectl console --all --space '*' --run COMMAND``: each cluster is on its own."""

    starts = PROGRAMS

    async def test_silent(self) -> None:
        """
        The command runs while a cluster is silent, and while machines of another one are; their failures are
        named, and part of the results.
        """
        self.patch(run, "CONCURRENT_RUNS", 1)
        self.patch(os, "isatty", lambda descriptor: descriptor == 2)
        fleet = await self.add_fleet("lab-1", "a")
        fleet.machines["default/a"] = partial(Shell, "a")
        slow = await self.add_fleet("slow", "b", "c")
        slow.machines["default/b"] = slow.machines["default/c"] = RecordingAttachment
        (await self.add_fleet("silent")).is_silent = True
        task, ended, read = self.run_task(
            "--run", "echo hello", "--timeout", "3600", "--request-timeout", "3600"
        )
        while "1 of 3 machines are done" not in self.messages:
            await self._settle()
        expire(reactor, 3000)  # also the time limit of the first slow machine
        while not any(each.startswith("space silent: the API server") for each in self.messages):
            await self._settle()
        task.interrupted(signal.SIGINT)
        self.assertEqual(await ended, 1)
        self.assertIn("1 machine, exit code 0: lab-1/a\n  | hello\n", read())

    async def test_interrupted(self) -> None:
        """Ctrl-C while a cluster is silent ends the sessions, and prints the results so far."""
        attachment = RecordingAttachment()
        fleet = await self.add_fleet("lab-1", "a")
        fleet.machines["default/a"] = lambda: attachment
        (await self.add_fleet("silent")).is_silent = True
        task, ended, read = self.run_task("--run", "echo hello")
        while not attachment.attachments:
            await self._settle()
        task.interrupted(signal.SIGINT)
        self.assertEqual(await ended, 1)
        self.assertIn("exit code 130: lab-1/a\n  | [kubectl console: interrupted]\n", read())
