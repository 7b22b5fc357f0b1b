"""
``docs/examples/follow_spaces.py``, started as its docstring describes.
"""

from __future__ import annotations

import os

from tests.apiserver.support import machine
from tests.examples.test_examples import EXAMPLES
from tests.flows.programs import script, start
from tests.spaces.hub import SPACE, HubTestCase
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds


class FollowSpacesTests(HubTestCase):
    """``follow_spaces.py``"""

    starts = PROGRAMS

    async def test_follows(self) -> None:
        """The log names Spaces and machines as they appear and disappear, across a rotation."""
        # Both are good throughout: the watch of machines may start with either.
        await self.start_space("t1", "t2")
        directory = os.path.abspath(self.mktemp())
        os.makedirs(directory)
        environment = {"KUBECONFIG": os.path.abspath(self.kubeconfig("user-admin"))}
        words = [script("twistd"), "-ny", str(EXAMPLES / "follow_spaces.py"), "--pidfile="]
        program = start(words, env=environment, cwd=directory)
        self.addCleanup(program.stop)
        await self.put_space(self.config("t1"))
        await program.until(rb"default/one: is reachable")
        await self.put_secret(self.config("t2"))
        await program.until(rb"default/one: has changed")
        behind = self.space_client("t1")
        await behind.create(kinds.MACHINES.resource, machine("vm", "pool-a"), "default")
        await program.until(rb"default/one: machine vm\n")
        await self.admin.delete(SPACE, "one", "spaceprovider-default")
        await program.until(rb'space "default/one" is gone: it was deleted')
        self.assertNotIn(b"Traceback", program.output)
