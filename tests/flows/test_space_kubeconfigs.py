"""
What leads kubectl to a Space: kubeconfigs of ``twisted-exec space kubeconfig``, and real kubectls.
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
from twisted_exec.api.kinds import NAMESPACES


class SpaceKubeconfigTests(HubTestCase):
    """Oldest and newest kubectl, and one between."""

    timeout = 120
    skip = needs.kubectl()

    async def setUp(self) -> None:
        await super().setUp()
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.hub = os.path.abspath(self.kubeconfig("user-admin"))
        self.kubectl = kubectls.found()

    def environment(self, kubeconfig: str) -> dict[str, str]:
        """Of somebody whose ``$KUBECONFIG`` is this."""
        own = {"KUBECONFIG": kubeconfig, "HOME": str(self.directory), "PATH": os.environ["PATH"]}
        # The program is this package's, wherever it was installed.
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
        """As whom a kubectl is known in the Space."""
        env = self.environment(path)
        words = ("auth", "whoami", "-o", "json")
        code, out, output = await kubectls.run(self.kubectl[kubectl], *words, env=env)
        return json.loads(out)["status"]["userInfo"]["username"] if code == 0 else output

    async def test_rotation(self) -> None:
        """The very file that was written once goes on through a rotation; a static one does not."""
        path, static = await self.write(), await self.write("--static")
        with open(path, "rb") as file:
            self.assertNotIn(b"t1", file.read())
        names = kubectls.some()
        for name in names:
            self.assertEqual(await self.who(name, path), "space-t1")
        self.assertEqual(await self.who(names[0], static), "space-t1")
        await self.put_secret(self.config("t2"))
        await self.take("t2")
        for name in names:
            self.assertEqual(await self.who(name, path), "space-t2")
        self.assertIn("Unauthorized", await self.who(names[0], static))

    async def test_a_watch_goes_on(self) -> None:
        """A watch that a kubectl has open is not ended by a rotation."""
        path = await self.write()
        env = self.environment(path)
        words = ["get", "namespaces", "--watch", "-o", "name"]
        watching = programs.start([self.kubectl[kubectls.some()[-1]], *words], env=env)
        self.addCleanup(watching.stop)
        await watching.until(rb"namespace/default")
        await self.put_secret(self.config("t2"))
        await self.take("t2")
        client = self.space_client("t2")
        await client.create(NAMESPACES.resource, {"metadata": {"name": "later"}})
        await watching.until(rb"namespace/later")

    async def test_by_a_space_that_moved(self) -> None:
        """Credentials are not told for another server than the Space's, and the remedy is said."""
        path = await self.write()
        await self.put_secret(self.config("t2", "https://elsewhere.example:6443"))
        told = await self.who(kubectls.some()[-1], path)
        self.assertIn("space default/one is at https://elsewhere.example:6443, and not at", told)
        self.assertIn("twisted-exec space kubeconfig", told)

    async def test_get_spaces(self) -> None:
        """kubectl shows the Spaces that there are."""
        for name in kubectls.some():
            words = ("get", "spaces", "-A")
            env = self.environment(self.hub)
            code, out, output = await kubectls.run(self.kubectl[name], *words, env=env)
            self.assertEqual(code, 0, output)
            self.assertRegex(out, r"spaceprovider-default\s+one\s+managed\s+default\s+Ready")
