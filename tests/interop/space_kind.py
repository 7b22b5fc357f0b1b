"""
The adaptor of kind over the real program ``kind``, which a played docker serves: all of the contract, with kind's
own output, messages, exit codes and half-built clusters.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause
from tests.spacemanager.providers.kind_world import KindWorld
from twisted_exec.api.spaces import EXTERNAL
from twisted_exec.spacemanager.interfaces import Access, Physical

DOCKER = Path(__file__).with_name("fake_docker.sh")


def version() -> str:
    """Of the program, in a word."""
    program = needs.kind_program()
    if not program:
        return ""
    told = subprocess.run([program, "version", "-q"], capture_output=True, text=True, check=False)
    return f"v{told.stdout.strip()}, a played docker"


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
        # As somebody's kind would have made it.
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
