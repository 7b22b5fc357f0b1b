"""
Shells under a real runtime program that is killed or stopped.
"""

from __future__ import annotations

import os
import signal

from twisted.internet.defer import Deferred

from tests.flows.test_machines import MachinesCase, reactor
from tests.runtimes.support import end_keeper, pause
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.keeper.client import LOG, Keeper
from twisted_exec.tls.private_directories import runtime_directory

_SHELL = """
- name: shell
  driver: pty
  command: [/bin/sh, -i]
  same_user: true
  capabilities: {cpu: "1", memory: 16Mi}
"""


class KeptShellCase(MachinesCase):
    """Shells, and programs in their place, that outlive the runtime."""

    skip = None  # type: ignore[assignment]

    def setUp(self) -> None:
        super().setUp()
        with open(os.path.join(self.directory, "runtime.yaml"), "a") as file:
            file.write(_SHELL)
        self.state = os.path.join(self.directory, "state")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end_keeper()))

    async def end_keeper(self) -> None:
        sockets = runtime_directory(os.path.abspath(self.state))
        await end_keeper(Keeper(reactor, sockets, os.path.join(self.state, LOG)))
        for directory, _, files in os.walk(sockets, topdown=False):
            for name in files:
                os.unlink(os.path.join(directory, name))
            os.rmdir(directory)


class KeptShellTests(KeptShellCase):
    """``--keep-machines`` with shells."""

    async def test_killed(self) -> None:
        """A shell, its variables and its output survive a killed runtime, and then a stopped one."""
        first, client = await self.start("--keep-machines")
        id = await self.create(client, "shell")
        await self.until_running(client)
        user = await self.console(client, id)
        user.stream.write(b"kept=$((6 * 7)); echo x$kept; sleep 0.5; echo later$kept\r")
        while b"x42" not in user.got:
            await pause()
        await first.stop(signal.SIGKILL)
        before = self.pids()

        second, client = await self.start("--keep-machines")
        found = await self.until_running(client)
        self.assertEqual(found.metadata.id, id)
        user = await self.console(client, id)
        while b"later42" not in user.got:
            await pause()
        await second.stop()
        self.assertNotIn(b"Traceback", second.output)

        third, client = await self.start("--keep-machines")
        await self.until_running(client)
        user = await self.console(client, id)
        user.stream.write(b"echo still$kept\r")
        while b"still42" not in user.got:
            await pause()
        self.assertTrue(set(self.pids()) <= set(before))
        await client.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])
        await third.stop()
        self.assertNotIn(b"Traceback", third.output)
        self.assertFalse(os.listdir(runtime_directory(os.path.abspath(self.state))))

    async def test_not_asked_for(self) -> None:
        """Without it, the shell of a killed runtime gets a hangup at once."""
        first, client = await self.start()
        await self.create(client, "shell")
        await self.until_running(client)
        self.assertEqual(len(self.pids()), 1)
        await first.stop(signal.SIGKILL)
        while self.pids():
            await pause()
