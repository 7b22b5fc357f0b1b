"""
Tests for :mod:`twisted_exec.cli.mcp.login`, with a whole API server that signs.
"""

from __future__ import annotations

import argparse
import os
import stat
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.defer import Deferred

from tests.apiserver.agents import CSRS, RBAC, STDIN, AgentCase
from tests.chain import client_config, patient, pki, reactor
from twisted_exec.api import kinds
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.mcp.login import login
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.wire.session_terms import Right

MANIFEST = Path(__file__).parents[3] / "docs/howto/agents.yaml"
POLICIES = kinds.CONSOLEPOLICIES.resource
AGENTS = [{"kind": "Group", "name": "agents"}]


class LoginTests(AgentCase):
    """``twisted-exec mcp login`` of jane."""

    async def setUp(self) -> None:
        await super().setUp()
        self.path = self.mktemp()

    async def run_login(self, *, agent: str = "helper", user: str = "jane", **more: Any) -> str:
        """Run the command as a user; return what it prints."""
        client = CommandClient(client_config(self.server.url, f"user-{user}", pki()), reactor)
        self.addCleanup(client.close)
        return await login(client, self.options(agent=agent, **more))

    def options(self, **more: Any) -> argparse.Namespace:
        """Return the options of the command."""
        defaults = {"output": self.path, "duration": 28800.0, "reactor": reactor}
        return argparse.Namespace(**{**defaults, **more})

    def content(self) -> bytes:
        """Return what the kubeconfig has now."""
        with open(self.path, "rb") as stream:
            return stream.read()

    async def fails(self, **more: Any) -> str:
        """Run the command, which must make no identity; return the message."""
        with self.assertRaises(InputError) as caught:
            await self.run_login(**more)
        return str(caught.exception)

    async def make_policy(self, **spec: Any) -> None:
        await self.admin.create(POLICIES, {"metadata": {"name": "p"}, "spec": spec}, "default")

    async def test_login(self) -> None:
        """The kubeconfig is the agent's alone, and nobody else reads the file."""
        await self.make_policy(subjects=AGENTS, approval="Once")
        printed = await self.run_login(duration=3600.0)
        self.assertIn('agent "agent:jane:helper", until ', printed)
        self.assertIn(f"twisted-exec mcp --kubeconfig {self.path} -n default", printed)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        config = load(self.path)
        self.assertEqual(config.server, self.server.url)
        self.assertEqual((config.token, config.plugin, config.impersonate.user), ("", None, ""))
        client = patient(config)
        self.addCleanup(client.close)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await client.create(kinds.SELFSUBJECTREVIEWS.resource, review)
        self.assertEqual(answer["status"]["userInfo"]["username"], "agent:jane:helper")
        with self.assertRaises(InputError) as caught:
            await login(client, self.options(agent="sub", output=self.mktemp()))
        self.assertIn("an agent has no agents of its own", str(caught.exception))

    async def test_no_right(self) -> None:
        """A user without the right for agents reads which role has it, and who sees no policies which one shows them."""
        await self.make_policy(subjects=AGENTS)
        await self.admin.delete(kinds.CLUSTERROLEBINDINGS.resource, "owner")
        message = await self.fails()
        self.assertIn('User "jane" cannot create resource "certificatesigningrequests"', message)
        command = "kubectl create clusterrolebinding jane-agent-owner --clusterrole=agent-owner --user=jane"
        self.assertTrue(message.endswith(command), message)
        await self.admin.delete(kinds.ROLEBINDINGS.resource, "dev-edit", "default")
        self.assertIn("--clusterrole=view --user=jane -n default", await self.fails())

    async def test_again(self) -> None:
        """The same agent's file is replaced, and no other file."""
        await self.make_policy(subjects=AGENTS)
        await self.run_login()
        before = self.content()
        await self.run_login()
        after = self.content()
        self.assertNotEqual(after, before)
        message = await self.fails(agent="other")
        self.assertIn("is not a kubeconfig of agent", message)
        self.assertEqual(self.content(), after)
        with open(self.path, "wb") as stream:
            stream.write(b"mine")
        self.assertIn("exists, and is not a kubeconfig", await self.fails())
        self.assertEqual(self.content(), b"mine")

    async def test_no_policy(self) -> None:
        """Without a policy that restricts agents at all machines of the namespace there is no identity."""
        await self.admin.delete(POLICIES, "agents", "default")
        self.assertIn("no ConsolePolicy in the namespace", await self.fails())
        await self.make_policy(subjects=[{"kind": "User", "name": "agents"}])
        self.assertIn('has the subject group "agents"', await self.fails())
        await self.admin.delete(POLICIES, "p", "default")
        await self.make_policy(subjects=AGENTS, selector={"matchLabels": {"tier": "gold"}})
        self.assertIn('has the subject group "agents"', await self.fails())
        self.assertFalse(os.path.exists(self.path))
        self.assertEqual((await self.admin.list(CSRS))["items"], [])
        await self.admin.delete(POLICIES, "p", "default")
        await self.make_policy(selector={})  # for everybody: it was not written for agents
        self.assertIn('has the subject group "agents"', await self.fails())

    async def test_options(self) -> None:
        """Names and durations that no agent can have are refused before the server is asked."""
        for agent in ("", "A", "a:b", "../x"):
            self.assertIn("the name of an agent has", await self.fails(agent=agent))
        for seconds in (599.0, 28801.0):
            self.assertIn("--duration is 10m to 8h", await self.fails(duration=seconds))

    async def test_denied(self) -> None:
        """A request that an administrator denies ends the command with the reason."""
        await self.make_policy(subjects=AGENTS)
        await self.admin.delete(kinds.CLUSTERROLEBINDINGS.resource, "owner")
        rules = [
            {
                "verbs": ["create", "get"],
                "apiGroups": ["certificates.k8s.io"],
                "resources": ["certificatesigningrequests"],
            }
        ]
        await self.grant("asks", rules, "dev", cluster=True)
        failing = Deferred.fromCoroutine(self.fails())
        while not (found := (await self.admin.list(CSRS))["items"]):
            pass  # the request takes its time
        name = found[0]["metadata"]["name"]
        denied = {"type": "Denied", "status": "True", "reason": "No", "message": "not today"}
        patch = {"status": {"conditions": [denied]}}
        await self.admin.patch(CSRS, name, patch, subresource="approval")
        self.assertIn(f'"{name}" was not signed: not today', await failing)

    async def test_manifest(self) -> None:
        """With the manifest of the docs, and a binding for its owners, an agent asks before it types."""
        for resource in (kinds.CLUSTERROLEBINDINGS, kinds.CLUSTERROLES):
            await self.admin.delete(resource.resource, "owner")
        await self.admin.delete(kinds.ROLEBINDINGS.resource, "agents", "default")
        await self.admin.delete(POLICIES, "agents", "default")
        await self.admin.delete(kinds.CLUSTERROLES.resource, "agents")
        by_kind = {
            each.resource.kind: each.resource
            for each in (kinds.CLUSTERROLES, kinds.ROLEBINDINGS, kinds.CONSOLEPOLICIES)
        }
        for obj in yaml.safe_load_all(MANIFEST.read_text()):
            resource = by_kind[obj["kind"]]
            await self.admin.create(resource, obj, "default" if resource.namespaced else "")
        binding = {
            "metadata": {"name": "owners"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "agent-owner"},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "dev"}],
        }
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, binding)
        await self.run_login(agent="bot")
        config = load(self.path)
        self.identities_of_agents["bot"] = Issued(config.certificate.read(), config.key.read())
        message = await self.refused(403, user="bot", query=STDIN)
        self.assertIn("requires a reason", message)
        self.assertIn("requires the approval of another user", message)
        await self.open(user="bot", query="?stdout=true&tty=true")
        (session,) = self.server._parts.sessions.live()
        self.assertIs(session.terms.right, Right.OBSERVE)
