"""
kubectl access to a Space: kubeconfigs of ``twisted-exec space kubeconfig``, and real kubectls.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import twisted_exec
from tests import needs
from tests.flows import kubectls, programs
from tests.spaces.hub import HubTestCase
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import NAMESPACES

FIRST, NEXT = "before-the-rotation", "behind-the-rotation"
"""Tokens: nothing that base64 could say by chance."""


class SpaceKubeconfigTests(HubTestCase):
    """The oldest kubectl and the newest."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        await super().setUp()
        await self.start_space(FIRST)
        await self.put_space(self.config(FIRST))
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.hub = os.path.abspath(self.kubeconfig("user-admin"))
        self.kubectl = kubectls.found()

    def environment(self, kubeconfig: str) -> dict[str, str]:
        """Return the environment of a user with this ``$KUBECONFIG``."""
        own = {"KUBECONFIG": kubeconfig, "HOME": str(self.directory), "PATH": os.environ["PATH"]}
        # Find this package wherever the program was installed.
        return {**own, "PYTHONPATH": str(Path(twisted_exec.__file__).parents[1])}

    async def twisted_exec(self, *words: str) -> tuple[int, str, str]:
        program = shutil.which("twisted-exec") or "twisted-exec"
        return await kubectls.run(program, *words, env=self.environment(self.hub))

    async def write(self, *words: str) -> str:
        path = str(self.directory / f"{len(words)}.kubeconfig")
        words = ("space", "kubeconfig", "one", "--output", path, "--force", *words)
        code, _, output = await self.twisted_exec(*words)
        self.assertEqual((code, output), (0, f"space default/one: wrote {path}\n"))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        return path

    async def who(self, kubectl: str, path: str) -> str:
        """Return the user name of a kubectl in the Space, or its error output."""
        env = self.environment(path)
        words = ("auth", "whoami", "-o", "json")
        code, out, output = await kubectls.run(self.kubectl[kubectl], *words, env=env)
        return json.loads(out)["status"]["userInfo"]["username"] if code == 0 else output

    async def test_rotation(self) -> None:
        """
        A kubeconfig and an open watch survive the rotation of the Space's credentials.

        A static kubeconfig does not, and no credentials are issued for a server other than the
        Space's.
        """
        path, static = await self.write(), await self.write("--static")
        with open(path, "rb") as file:
            self.assertNotIn(FIRST.encode(), file.read())
        oldest, *_, newest = kubectls.found()
        self.assertEqual(await self.who(oldest, path), f"space-{FIRST}")
        words = ["get", "namespaces", "--watch", "-o", "name"]
        watching = programs.start([self.kubectl[newest], *words], env=self.environment(path))
        self.addCleanup(watching.stop)
        await watching.until(rb"namespace/default")
        await self.put_secret(self.config(NEXT))
        await self.take(NEXT)
        for name in (oldest, newest):
            self.assertEqual(await self.who(name, path), f"space-{NEXT}")
        self.assertIn("Unauthorized", await self.who(newest, static))
        client = self.space_client(NEXT)
        await client.create(NAMESPACES.resource, {"metadata": {"name": "later"}})
        await watching.until(rb"namespace/later")
        await self.put_secret(self.config(NEXT, "https://elsewhere.example:6443"))
        told = await self.who(newest, path)
        self.assertIn("space default/one is at https://elsewhere.example:6443, and not at", told)
        self.assertIn("twisted-exec space kubeconfig", told)

    async def test_get_spaces(self) -> None:
        """kubectl lists the existing Spaces."""
        words = ("get", "spaces", "-A")
        env = self.environment(self.hub)
        for name in kubectls.some():
            code, out, output = await kubectls.run(self.kubectl[name], *words, env=env)
            self.assertEqual(code, 0, output)
            self.assertRegex(out, r"spaceprovider-default\s+one\s+managed\s+default\s+Ready")
