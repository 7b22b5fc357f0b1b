"""
Tests for :mod:`twisted_exec.cli.commands.space`: commands against a real API server.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from twisted.internet.defer import Deferred

from tests.cli.typed import typed
from tests.spaces.hub import SECRET, SPACE, HubTestCase, reactor
from twisted_exec.api import spaces
from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.cli.space import rotation
from twisted_exec.cli.space.exec_credential import INFO, VERSIONS
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.loader import load, load_inline
from twisted_exec.kube.late_credentials import LateCredentials

TOKEN = "token-of-one"  # not part of any temporary path
ELSEWHERE = ClientConfig("https://one.example:6443", token=TOKEN)
NAMESPACE = "spaceprovider-default"


class CommandTestCase(HubTestCase):
    """Commands as a user types them."""

    async def run_command(self, *words: str, user: str = "admin") -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        whole = ["space", *words, "--kubeconfig", self.kubeconfig(f"user-{user}")]
        return await typed(self, *whole)

    async def failure(self, *words: str, **more: Any) -> str:
        code, out, err = await self.run_command(*words, **more)
        self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
        self.assertNotIn(TOKEN, err)
        return err


class KubeconfigTests(CommandTestCase):
    """Tests for ``space kubeconfig``."""

    async def test_asking(self) -> None:
        """No credentials are in it, but what asks for them, of the cluster that it was written by."""
        await self.put_space(ELSEWHERE)
        code, out, _ = await self.run_command(
            "kubeconfig",
            "one",
        )
        self.assertEqual(code, 0)
        self.assertNotIn(TOKEN, out)
        told = json.loads(out)
        self.assertEqual(told["current-context"], "default/one")
        self.assertEqual(told["clusters"][0]["cluster"], {"server": ELSEWHERE.server})
        asking = told["users"][0]["user"]["exec"]
        words = ["space", "exec-credential", "one", "--provider=default"]
        self.assertEqual(asking["args"][:4], words)
        self.assertEqual(asking["interactiveMode"], "Never")
        self.assertTrue(asking["provideClusterInfo"])
        ((name, value),) = [each.values() for each in asking["env"]]
        self.assertEqual((name, os.path.isabs(value)), ("KUBECONFIG", True))

    async def test_static(self) -> None:
        """With credentials in it, which a file keeps for its owner alone."""
        await self.put_space(ELSEWHERE)
        path = os.path.abspath(self.mktemp())
        words = ("kubeconfig", "one", "--static", "--output", path)
        code, out, err = await self.run_command(*words)
        self.assertEqual((code, out, err), (0, "", f"space default/one: wrote {path}\n"))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(load(path).token, TOKEN)
        self.assertIn("exists already: give --force", await self.failure(*words))
        self.assertEqual((await self.run_command(*words, "--force"))[0], 0)

    async def test_none(self) -> None:
        """A missing Space, an ambiguous name, and missing credentials each have their own error."""
        self.assertIn('there is no space "one"', await self.failure("kubeconfig", "one"))
        for provider in ("kcp", "kind"):
            await self.put_space(ELSEWHERE, provider=provider)
        told = await self.failure("kubeconfig", "one")
        self.assertIn('of provider "kcp", of provider "kind"; name the provider', told)
        _, out, _ = await self.run_command("kubeconfig", "one", "--provider", "kind")
        self.assertIn('"kind/one"', out)
        told = await self.failure("kubeconfig", "one", "--provider", "kind", "--in-cluster")
        self.assertIn("no in-cluster kubeconfig, only an external one", told)
        await self.admin.delete(SECRET, "external-one", "spaceprovider-kcp")
        told = await self.failure("kubeconfig", "one", "--provider", "kcp")
        self.assertIn("secret spaceprovider-kcp/external-one does not exist", told)

    async def test_may_not(self) -> None:
        """Without the right to list Spaces, the error suggests ``--provider``."""
        await self.put_space(ELSEWHERE)
        told = await self.failure("kubeconfig", "one", user="jane")
        self.assertIn("name the provider with --provider", told)
        told = await self.failure("kubeconfig", "one", "--provider", "default", user="jane")
        self.assertIn("jane", told)


class ExecCredentialTests(CommandTestCase):
    """Tests for ``space exec-credential``."""

    async def told(self, *words: str, **info: Any) -> dict[str, Any]:
        if info:
            told = json.dumps({"kind": "ExecCredential", **info})
            self.patch(os, "environ", {**os.environ, INFO: told})
        code, out, err = await self.run_command("exec-credential", "one", *words)
        self.assertEqual((code, err), (0, ""))
        found: dict[str, Any] = json.loads(out)
        return found

    async def test_token(self) -> None:
        """The credential has the requested API version, the current token and an expiry time."""
        await self.put_space(ELSEWHERE)
        self.assertEqual((await self.told())["apiVersion"], VERSIONS[0])
        for version in VERSIONS:
            found = await self.told(apiVersion=version)
            self.assertEqual((found["apiVersion"], found["kind"]), (version, "ExecCredential"))
            self.assertEqual(found["status"]["token"], TOKEN)
            self.assertRegex(found["status"]["expirationTimestamp"], r"^\d{4}-.*Z$")
        await self.put_secret(ClientConfig(ELSEWHERE.server, token="t2"))
        self.assertEqual((await self.told())["status"]["token"], "t2")

    async def test_another_server(self) -> None:
        """Credentials of a Space are refused for another server."""
        await self.put_space(ELSEWHERE)
        cluster = {"server": "https://evil.example"}
        info = {"kind": "ExecCredential", "apiVersion": VERSIONS[0], "spec": {"cluster": cluster}}
        self.patch(os, "environ", {**os.environ, INFO: json.dumps(info)})
        told = await self.failure("exec-credential", "one")
        self.assertIn("is at https://one.example:6443, and not at https://evil.example", told)
        # The remedy is a command for a shell, which works also if $KUBECONFIG is the Space's.
        path = os.path.abspath(self.mktemp())
        command = told.strip().rpartition(": ")[2].replace("FILE", path)
        variable, program, *words = shlex.split(command)
        self.assertEqual(program, "twisted-exec")
        with open(path, "w", encoding="ascii") as file:
            file.write("outdated")
        name, _, value = variable.partition("=")
        self.patch(os, "environ", {**os.environ, name: value})
        self.assertEqual((await typed(self, *words))[0], 0)
        self.assertEqual(load(path).server, ELSEWHERE.server)
        cluster["server"] = ELSEWHERE.server
        self.assertEqual((await self.told(**info))["status"]["token"], TOKEN)

    async def test_after_401(self) -> None:
        """After a 401, our clients read the credentials again, as client-go does."""
        await self.start_space("t1")
        await self.put_space(self.config("t1"))
        _, out, _ = await self.run_command("kubeconfig", "one", "--static")
        first = load_inline(out.encode(), "it")
        found: list[ClientConfig] = [first]

        async def again(_: ClientConfig) -> bool:
            told = await self.told()
            found.append(self.config(told["status"]["token"]))
            return True

        credentials = LateCredentials(
            "space",
            lambda: found[-1],
            reread=lambda refused: Deferred.fromCoroutine(again(refused)),
        )
        client = KubeClient(credentials, reactor)
        self.addCleanup(client.close)
        await self.put_secret(self.config("t2"))
        await self.take("t2")
        await client.list(SECRET, "default")


class RotateTests(CommandTestCase):
    """Tests for ``space rotate``, with the manager's part played here."""

    def setUp(self) -> Any:
        self.patch(rotation, "LOOK_SECONDS", 0.02)
        self.patch(rotation, "SETTLE_SECONDS", 0.1)
        return super().setUp()

    async def asked(self) -> str:
        found = await self.admin.get(SPACE, "one", NAMESPACE)
        return str((found["metadata"].get("annotations") or {}).get(spaces.ROTATE, ""))

    async def answer(self) -> None:
        """Act as the manager: acknowledge the rotation request in the status."""
        while not await self.asked():
            pass
        patch = {"status": {"rotated": await self.asked()}}
        await self.admin.patch(SPACE, "one", patch, NAMESPACE, subresource="status")

    async def test_asked(self) -> None:
        """Each ``rotate`` requests a new rotation."""
        await self.put_space(ELSEWHERE)
        code, out, _ = await self.run_command("rotate", "one")
        self.assertEqual((code, out), (0, "space default/one: asked for new credentials\n"))
        first = await self.asked()
        await self.run_command("rotate", "one")
        self.assertNotEqual(await self.asked(), first)

    async def test_wait(self) -> None:
        """``--wait`` returns once the Secret has new credentials."""
        self.patch(rotation, "SETTLE_SECONDS", 600)
        await self.put_space(ELSEWHERE)
        running = Deferred.fromCoroutine(self.run_command("rotate", "one", "--wait"))
        await self.answer()
        await self.put_secret(ClientConfig(ELSEWHERE.server, token="t2"))
        self.assertEqual((await running)[:2], (0, "space default/one: has new credentials\n"))

    async def test_cannot(self) -> None:
        """If the provider cannot rotate, the command fails with the manager's message."""
        space = await self.put_space(ELSEWHERE)
        event = {
            "metadata": {"name": "e", "namespace": NAMESPACE},
            "involvedObject": {
                "kind": "Space",
                "name": "one",
                "namespace": NAMESPACE,
                "uid": space["metadata"]["uid"],
            },
            "reason": "CannotRotate",
            "message": "have that done there",
            "type": "Warning",
        }
        await self.admin.create(EVENTS.resource, event, NAMESPACE)
        running = Deferred.fromCoroutine(self.failure("rotate", "one", "--wait"))
        await self.answer()
        self.assertIn("no new credentials: have that done there", await running)

    async def test_nobody_does(self) -> None:
        """Without a manager, ``--wait`` fails after the timeout."""
        await self.put_space(ELSEWHERE)
        told = await self.failure("rotate", "one", "--wait", "--timeout", "50ms")
        self.assertIn("has no new credentials after 0.05 s; kubectl describe tells", told)

    async def not_synced(self, reason: str, message: str) -> None:
        """Act as the manager: report why the Space is not synchronised."""
        values = {
            "CredentialsValid": ("True", "Accepted", "well"),
            "Synced": ("False", reason, message),
        }
        conditions = with_conditions([], values, "2026-01-01T00:00:00Z", 1)
        patch = {"status": {"conditions": conditions}}
        await self.admin.patch(SPACE, "one", patch, NAMESPACE, subresource="status")

    async def test_trouble(self) -> None:
        """After a timeout the error quotes the failing condition."""
        await self.put_space(ELSEWHERE)
        await self.not_synced("Refused", "the provider's credentials are refused")
        told = await self.failure("rotate", "one", "--wait", "--timeout", "50ms")
        self.assertIn("after 0.05 s; the provider's credentials are refused", told)

    async def test_no_provider(self) -> None:
        """Without a provider, the request is refused at once, and is not recorded."""
        await self.put_space(ELSEWHERE)
        why = 'there is no SpaceProviderDesc "default": make it'
        await self.not_synced("NoProvider", why)
        expected = f"space default/one cannot get new credentials: {why}\n"
        self.assertTrue((await self.failure("rotate", "one")).endswith(expected))
        told = await self.failure("rotate", "one", "--wait", "--timeout", "0")
        self.assertTrue(told.endswith(expected), told)
        self.assertEqual(await self.asked(), "")

    async def test_provider_is_deleted(self) -> None:
        """If the provider is deleted meanwhile, ``--wait`` ends with the reason."""
        await self.put_space(ELSEWHERE)
        running = Deferred.fromCoroutine(self.failure("rotate", "one", "--wait"))
        while not await self.asked():
            pass
        await self.not_synced("NoProvider", "make it")
        self.assertIn("cannot get new credentials: make it", await running)
