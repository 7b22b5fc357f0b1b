"""
Tests for :mod:`twisted_exec.cli.commands.token`: commands against a real API server.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor

from tests.apiserver.chain import ChainTestCase
from tests.cli.typed import typed
from twisted_exec.api import kinds
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.settings import Settings
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load

SECRETS = kinds.SECRETS.resource


class TokenTests(ChainTestCase):
    """Each command, as a user types it."""

    def settings(self, **more: Any) -> Settings:
        return super().settings(identities=Identities(bootstrap_tokens=True), **more)

    async def run_command(self, *arguments: str, user: str = "admin") -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        words = ["token", *arguments, "--kubeconfig", self.kubeconfig(f"user-{user}")]
        return await typed(self, *words)

    async def failure(self, *arguments: str, **more: Any) -> str:
        code, out, err = await self.run_command(*arguments, **more)
        self.assertEqual((code, out, err.count("\n")), (1, "", 1))
        return err

    async def secret(self, text: str) -> dict[str, bytes]:
        """Return the content of a token's Secret."""
        name = f"bootstrap-token-{text.partition('.')[0]}"
        return values_of(await self.admin.get(SECRETS, name, "kube-system"))

    async def test_create(self) -> None:
        """``create`` prints a token and the next command; the token identifies a bootstrapper."""
        path = os.path.join(os.path.abspath(self.mktemp()) + ".kubeconfig")
        words = ("create", "--bootstrap-kubeconfig", path, "--description", "rack 2")
        code, out, err = await self.run_command(*words)
        self.assertEqual(code, 0)
        self.assertRegex(out, r"\A[a-z0-9]{6}\.[a-z0-9]{16}\n\Z")
        self.assertIn(f"twistd exec-poollet --bootstrap-kubeconfig={path} --cert-dir=", err)
        self.assertIn("--requestheader-client-ca-file=", err)
        self.assertNotIn(out.strip(), err)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        client = KubeClient(load(path), reactor)
        self.addCleanup(client.close)
        review = await client.create(kinds.SELFSUBJECTREVIEWS.resource, {})
        info = review["status"]["userInfo"]
        self.assertEqual(info["username"], f"system:bootstrap:{out[:6]}")
        group = "system:bootstrappers:compute-ironcore-dev:machinepools"
        self.assertEqual(info["groups"], ["system:bootstrappers", group, "system:authenticated"])
        self.assertEqual((await self.secret(out))["description"], b"rack 2")
        self.assertIn("exists already: give --force", await self.failure(*words))
        self.assertEqual((await self.run_command(*words, "--force"))[0], 0)

    async def test_unwritable(self) -> None:
        """If the kubeconfig cannot be written, the token is not created."""
        words = ("create", "--bootstrap-kubeconfig", os.path.join(self.mktemp(), "b.kubeconfig"))
        self.assertIn("No such file or directory", await self.failure(*words))
        self.assertEqual((await self.admin.list(SECRETS, "kube-system"))["items"], [])

    async def test_for_how_long(self) -> None:
        """A token expires after a day by default, and never with ``--ttl 0``."""
        for words, has in (((), True), (("--ttl", "2h"), True), (("--ttl", "0"), False)):
            _, out, err = await self.run_command("create", *words)
            self.assertEqual("expiration" in await self.secret(out), has)
            self.assertIn("--bootstrap-kubeconfig=bootstrap.kubeconfig", err)

    async def test_groups(self) -> None:
        """
        ``--group`` and ``--dialect`` set the groups; a group outside the bootstrappers is refused.
        """
        _, out, _ = await self.run_command("create", "--group", "system:bootstrappers:a")
        found = await self.secret(out)
        self.assertEqual(found["auth-extra-groups"], b"system:bootstrappers:a")
        _, out, _ = await self.run_command("create", "--dialect", "spheric")
        self.assertIn(b"spheric", (await self.secret(out))["auth-extra-groups"])
        told = await self.failure("create", "--group", "system:masters")
        self.assertIn("must match system:bootstrappers:", told)

    async def test_list(self) -> None:
        """The list shows each token's id, expiry and description, and never its secret."""
        self.assertEqual(await self.run_command("list"), (0, "", "No tokens found\n"))
        _, first, _ = await self.run_command("create", "--ttl", "90s", "--description", "x\x1b[2J")
        _, second, _ = await self.run_command("create", "--ttl", "0")
        _, out, _ = await self.run_command("list")
        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}
        self.assertEqual(set(rows), {first[:6], second[:6]})
        self.assertRegex(rows[first[:6]][0], r"^\d+s$")
        self.assertEqual((rows[first[:6]][1], rows[first[:6]][3]), ("yes", "x?[2J"))
        self.assertEqual((rows[second[:6]][0], rows[second[:6]][3]), ("<forever>", "<none>"))
        for made in (first, second):
            self.assertNotIn(made[7:23], out)

    async def test_delete(self) -> None:
        """
        ``delete`` takes a token or its id; an invalid token is not repeated, as it may be secret.
        """
        _, first, _ = await self.run_command("create")
        _, second, _ = await self.run_command("create")
        code, out, _ = await self.run_command("delete", first[:6], second.strip())
        self.assertEqual(
            (code, out), (0, f"token {first[:6]} deleted\ntoken {second[:6]} deleted\n")
        )
        self.assertIn("not found", await self.failure("delete", first[:6]))
        told = await self.failure("delete", "s3cret-thing")
        self.assertNotIn("s3cret", told)

    async def test_may_not(self) -> None:
        """Without the right to use tokens, each command fails with one line."""
        for words in (("create",), ("list",), ("delete", "abc123")):
            told = await self.failure(*words, user="jane")
            self.assertIn(f"twisted-exec token {words[0]}: ", told)
            self.assertIn('User "jane" cannot', told)
