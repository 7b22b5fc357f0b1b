"""A shared deployment shows no test what another has done with it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import procfs
from twisted_exec.api import kinds

from . import shared
from .consoles import watch
from .deployment import machine, pause
from .shared import Shared
from .test_three_programs import binding

BINDINGS, CLASSES = kinds.ROLEBINDINGS.resource, kinds.MACHINECLASSES.resource
MACHINES = kinds.MACHINES.resource
ONE = """\
from twisted.trial.unittest import TestCase

from tests.flows import shared


class OneTests(TestCase):
    async def test_one(self):
        deployment = await shared.deployment(self)
        with open({!r}, "w") as file:
            print(deployment.sockets, *(getattr(deployment, each).pid for each in shared.PROGRAMS), file=file)
"""


class SharedTests(TestCase):
    """One deployment of this process."""

    def setUp(self) -> None:
        # On a busy machine what a test has left takes longer to go.
        self.patch(Shared, "restore_seconds", 600)

    async def take(self) -> Shared:
        found = await shared.take(self.mktemp())
        self.addCleanup(self.end, found)
        return found

    async def end(self, taken: Shared) -> None:
        if taken.in_use:
            await taken.give_back(self._passed)

    async def test_kept(self) -> None:
        """Objects, sessions, output and audit records of a test are gone for the next one."""
        first = await self.take()
        deployment = first.deployment
        before = await first.all_objects()
        await deployment.client.create(BINDINGS, binding("ada", "edit"), "default")
        await deployment.create_machine("sh", "shell")
        screen = await watch(deployment.admin, "sh")
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        await screen.leave()
        await first.give_back(True)
        self.assertEqual(first.differences, [])
        second = await self.take()
        self.assertIs(second, first)
        self.assertEqual(await second.all_objects(), before)
        self.assertEqual(procfs.machines_of(deployment.path("runtime-state")), [])
        for name in shared.PROGRAMS:
            records = Path(deployment.path(f"{name}.audit")).read_bytes()
            self.assertNotIn(b"start", records)
        await second.give_back(True)

    async def test_differences(self) -> None:
        """An open connection, an error in a log and an object that stays are differences."""
        taken = await self.take()
        Shared.restore_seconds = 2
        client, runtime = taken.deployment.client, taken.deployment.runtime
        differences: list[str] = []
        while not differences:  # the server closes connections that have been silent for 30 s
            with ExitStack() as lines:
                # More than the server may have closed of its own since the start.
                for _ in range(20):
                    line = socket.create_connection(("127.0.0.1", taken.deployment.port))
                    lines.enter_context(line)
                # It has accepted all of them.
                lines.enter_context(ssl._create_unverified_context().wrap_socket(line))
                differences = await taken.restore()
        self.assertIn("more connections of api", differences)
        runtime.errReceived(b"2026-11-24T14:00:00+0000 [x#error] it broke\n")
        self.assertIn("runtime has logged: #error] it broke", await taken.restore())
        taken.resume()
        made = machine("vm", "shell", pool="nowhere")
        made["metadata"]["finalizers"] = ["example.com/kept"]
        await client.create(MACHINES, made, namespace="default")
        self.assertIn("machines.compute.ironcore.dev vm differs", await taken.restore())
        await client.patch(MACHINES, "vm", {"metadata": {"finalizers": None}}, "default")
        Shared.restore_seconds = 600
        await taken.give_back(True)
        self.assertEqual(taken.differences, [])

    async def replaced(self, taken: Shared, *differences: str, passed: bool = True) -> None:
        """Check that a deployment is stopped because of differences, and not used again."""
        await taken.give_back(passed)
        self.assertEqual(taken.differences, list(differences))
        for pid in taken.pids.values():
            self.assertFalse(procfs.is_alive(pid))
        self.assertFalse(taken.deployment.sockets.exists())
        self.assertIsNot(await self.take(), taken)

    async def test_changed_object(self) -> None:
        """A test that changes an object of the start gets its deployment stopped."""
        taken = await self.take()
        change = {"metadata": {"labels": {"a": "b"}}}
        await taken.deployment.client.patch(CLASSES, "shell", change)
        await self.replaced(taken, "machineclasses.compute.ironcore.dev shell differs")

    async def test_restarted(self) -> None:
        """The same of a test that ends a program, whether or not it starts it again."""
        taken = await self.take()
        await taken.deployment.poollet.stop(signal.SIGKILL)
        self.assertEqual(await taken.restore(), ["poollet has ended"])
        await taken.deployment.start_poollet()
        await self.replaced(taken, "poollet was started again")

    async def test_failed(self) -> None:
        """The same of a test that fails."""
        await self.replaced(await self.take(), "the test failed", passed=False)

    async def test_ended_meanwhile(self) -> None:
        """A program that ends between tests does not spoil the next test."""
        taken = await self.take()
        await taken.give_back(True)
        pid = taken.pids["poollet"]
        os.kill(pid, signal.SIGKILL)
        while procfs.is_alive(pid):
            await pause()
        self.assertIsNot(await self.take(), taken)

    def test_end_of_process(self) -> None:
        """The programs end with the process that runs the tests, which here is a worker of trial."""
        directory = Path(self.mktemp()).resolve()
        directory.mkdir(parents=True)
        (directory / "test_one.py").write_text(ONE.format(str(directory / "seen")))
        root = Path(shared.__file__).parents[2]
        subprocess.run(
            [sys.executable, "-m", "twisted.trial", "--jobs=1", "test_one"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": f"{root}:{directory}"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        sockets, *pids = (directory / "seen").read_text().split()
        self.assertFalse(os.path.exists(sockets))
        self.assertEqual([each for each in map(int, pids) if procfs.is_alive(each)], [])
