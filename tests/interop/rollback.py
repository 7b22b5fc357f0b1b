"""
Back to an older release and forward again, on the same state.

The older release runs in place of all three programs; objects and virtual machines must survive.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.consoles import watch
from tests.flows.deployment import Deployment, gone, machine_class
from tests.flows.programs import Program, twistd
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object

MACHINES, SECRETS = kinds.MACHINES.resource, kinds.SECRETS.resource


class _Deployment(Deployment):
    """
    A deployment whose release can be changed between two starts.

    :ivar release: directory of the installed release to start; empty for this one.
    """

    release = ""

    def twistd(self, plugin: str, *options: str) -> Program:
        env = {"PYTHONPATH": self.release} if self.release else {}
        return twistd(plugin, *options, env=env)


class RollbackTests(TestCase):
    """This release, the older one, and this one again."""

    timeout = 240
    skip = needs.older_release()

    async def up(self, release: str) -> None:
        """Start all programs of a release, and wait until the virtual machine runs."""
        self.place.release = release
        await self.place.start_api()
        await self.place.start_runtime("--keep-machines")
        await self.place.start_poollet()

    async def down(self) -> None:
        for program in (self.place.poollet, self.place.runtime, self.place.api):
            await program.stop()

    async def machine(self, name: str) -> Object:
        return await self.place.client.get(MACHINES, name, "default")

    async def check_console(self, name: str) -> None:
        """Wait for the machine, and use its console: the boot loader answers a Return."""
        await self.place.machine_in_state(name, "Running", seconds=60)
        screen = await watch(self.place.admin, name)
        await screen.ask(b"\r", rb"=> ")
        await screen.leave()

    async def test_there_and_back(self) -> None:
        """Objects of both releases are there in the other; virtual machines go on running."""
        self.place = _Deployment(self.mktemp(), unix_streams=True)
        self.addCleanup(self.place.stop)
        await self.up("")
        client = self.place.client
        await client.create(self.place.dialect.workload_class, machine_class("vm", "128Mi"))
        secret = {"metadata": {"name": "password"}, "stringData": {"password": "x"}}
        await client.create(SECRETS, secret, "default")
        await self.place.create_machine("newer", "vm")
        await self.check_console("newer")
        first = (await self.machine("newer"))["status"]["machineID"]
        await self.down()

        await self.up(needs.older_release_directory())
        await self.check_console("newer")
        self.assertEqual((await self.machine("newer"))["status"]["machineID"], first)
        await self.place.create_machine("older", "vm")
        labels = {"metadata": {"labels": {"written-by": "older"}}}
        await self.place.client.patch(MACHINES, "newer", labels, "default")
        second = (await self.machine("older"))["status"]["machineID"]
        await self.down()

        await self.up("")
        for name, expected in (("newer", first), ("older", second)):
            await self.check_console(name)
            self.assertEqual((await self.machine(name))["status"]["machineID"], expected)
        labelled = (await self.machine("newer"))["metadata"]["labels"]
        self.assertEqual(labelled["written-by"], "older")
        await self.place.client.get(SECRETS, "password", "default")
        for name in ("newer", "older"):
            await self.place.client.delete(MACHINES, name, "default")
            await gone(self.place.client, MACHINES, name, "default")
