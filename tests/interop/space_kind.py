"""
The adaptor of kind over the real program ``kind``, which a played docker serves: all of the
contract, with kind's own output, messages, exit codes and half-built clusters.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause, who_am_i
from tests.interop.space_clusters import shared_cluster
from tests.spacemanager.providers.kind.world import KindWorld, reactor
from twisted_exec.api.kinds import NAMESPACES, NODES
from twisted_exec.api.spaces import EXTERNAL, OWNER
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.spacemanager.interfaces import USABLE, Access, Physical, SpaceRequest

DOCKER = Path(__file__).with_name("fake_docker.sh")


def version() -> str:
    """Of the program, in a word."""
    program = needs.kind_program()
    if not program:
        return ""
    told = subprocess.run([program, "version", "-q"], capture_output=True, text=True, check=False)
    return f"v{told.stdout.strip()}, a fake docker"


class RealKindWorld(KindWorld):
    """The real program."""

    title = "kind"
    seconds = 60.0

    async def start(self) -> None:
        await super().start()
        program = needs.kind_program()
        assert program is not None
        (self.kind / "kind").unlink()
        (self.kind / "kind").symlink_to(os.path.abspath(program))
        shutil.copy(DOCKER, self.kind / "docker")
        (self.kind / "docker").chmod(0o755)

    async def make_foreign(self, physical: Physical) -> None:
        # As if another user had made it with kind.
        self.put(physical.name)

    def environ(self) -> Mapping[str, str]:
        return {**super().environ(), "KIND_EXPERIMENTAL_PROVIDER": "docker"}

    async def works(self, access: Access, viewpoint: str) -> None:
        if viewpoint == EXTERNAL:
            await SpaceWorld.works(self, access, viewpoint)
        else:  # a name in the network of the nodes, which is not here
            assert b"-control-plane:6443" in access.kubeconfig

    async def turn(self) -> None:
        await pause(0.05)


class RealKindTests(SpaceProviderContract, TestCase):
    """:class:`KindProvider` and kind."""

    timeout = 300
    skip = needs.kind()
    version = version()

    def make_world(self) -> SpaceWorld:
        return RealKindWorld(self.mktemp())


class RealClusterTests(TestCase):
    """kind, and a real kube-apiserver where it says that its cluster is."""

    timeout = 300
    skip = needs.kind() or needs.aggregated()

    async def test_real(self) -> None:
        """A cluster is made by kind, known by the label of its node, opened, and deleted."""
        world, owner = RealKindWorld(self.mktemp()), "7c9e6679-7425-40de-944b-e07fc1f90ae7"
        await world.start()
        self.addCleanup(world.stop)
        cluster = await deferToThread(shared_cluster)
        (world.kind / "admin.conf").write_text(Path(cluster.kubeconfig).read_text())
        lines = (world.kind / "server").read_text().splitlines()
        server = "\n".join([f"https://127.0.0.1:{cluster.port}", *lines[1:], ""])
        (world.kind / "server").write_text(server)
        admin = KubeClient(load(cluster.kubeconfig), reactor)
        self.addCleanup(admin.close)
        node = {"metadata": {"name": "red-control-plane", "labels": {OWNER: owner}}}
        await admin.create(NODES.resource, node)
        provider, red = world.make(), Physical("red")
        self.addCleanup(provider.close)
        await provider.create(red, SpaceRequest(owner))
        while (info := await provider.get(red)).state != USABLE:
            await pause(0.1)
        self.assertEqual(info.owner, owner)
        system = await admin.get(NAMESPACES.resource, "kube-system")
        self.assertEqual(info.uid, system["metadata"]["uid"])
        access = info.access[EXTERNAL]
        self.assertEqual(await who_am_i(access.kubeconfig), "admin")
        self.assertIsNotNone(access.expires)
        await provider.delete(red, owner)
        self.assertEqual(await world.there(), [])
        await admin.delete(NODES.resource, "red-control-plane")
