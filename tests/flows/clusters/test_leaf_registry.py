"""
Leaves that change during sessions: real kubectls through root, node server and leaf.
"""

from __future__ import annotations

import json
import os
import re

from tests.chain import NODE_SERVER
from tests.nodeserver.clusters import POD, ROOT_NODE
from tests.testing.callers import until

from .test_leaves import ECHO, LeafTestCase


class ChangedTests(LeafTestCase):
    """The file of leaves and the kubeconfigs that it names are replaced."""

    def leaves(self, *names: str) -> None:
        """Replace the leaves file atomically."""
        kubeconfig = {"file": self.clusters.leaf.kubeconfig(NODE_SERVER)}
        nodes = [{"name": ROOT_NODE}]
        told = [{"name": each, "kubeconfig": kubeconfig, "nodes": nodes} for each in names]
        path = os.path.join(self.clusters.root.directory, "leaves.json")
        with open(f"{path}.new", "w") as file:
            json.dump({"leaves": told}, file)
        os.replace(f"{path}.new", path)

    def leaf_users(self) -> set[str]:
        return {str(each["user"]) for each in self.clusters.leaf.audit}

    async def test_rotated(self) -> None:
        """New credentials apply to the next session; an open session continues."""
        program = self.begin("exec", "-i", POD, "--", *ECHO)
        program.type(b"before\n")
        await program.until(b"<before>")
        self.assertEqual(self.leaf_users(), {NODE_SERVER})
        used = self.clusters.leaf.kubeconfig(NODE_SERVER)
        os.replace(self.clusters.leaf.kubeconfig("admin"), used)
        code, _, told = await self.kubectl("exec", POD, "--", "true")
        self.assertEqual(code, 0, told)
        await until(lambda: "admin" in self.leaf_users())
        program.type(b"after\n")
        await program.until(b"<after>")
        await program.stop()

    async def test_removed(self) -> None:
        """Removing a leaf from the file ends its sessions with the reason."""
        program = self.begin("exec", "-i", POD, "--", *ECHO)
        program.type(b"on\n")
        await program.until(b"<on>")
        self.leaves()
        self.assertNotEqual(await program.ended, 0)
        self.assertTrue(re.search(b"does not stand for leaf", program.output), program.output)
        code, _, told = await self.kubectl("exec", POD, "--", "true")
        self.assertEqual(code, 1)
        self.assertIn("(NotFound)", told)
