"""
A person's agent at a whole API server.
"""

from __future__ import annotations

import base64
from typing import Any

from twisted.internet.task import deferLater

from tests.apiserver.chain import ChainTestCase, Poollet
from tests.chain import endpoint, patient, pki, reactor
from twisted_exec.api import kinds
from twisted_exec.api.kinds.certificates import certificate_of
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.settings import Settings
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.apiserver.signing.interfaces import AGENT
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.pki.directory import CLIENT
from twisted_exec.tls.pki.requests import request_client

CSRS, BINDINGS = kinds.CERTIFICATESIGNINGREQUESTS.resource, kinds.ROLEBINDINGS.resource
RBAC = "rbac.authorization.k8s.io"
STDIN = "?stdin=true&stdout=true&tty=true"
AGENT_RULES = (
    {
        "verbs": ["observe", "drive"],
        "apiGroups": ["compute.ironcore.dev"],
        "resources": ["machines/console"],
    },
    {"verbs": ["get", "list"], "apiGroups": ["compute.ironcore.dev"], "resources": ["machines"]},
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
)
OWNER_RULES = (
    {
        "verbs": ["create", "get"],
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/agentclient"],
    },
)


class AgentCase(ChainTestCase):
    """Jane, by her group, edits a namespace with a machine, and has an agent."""

    async def setUp(self) -> None:
        self.identities_of_agents: dict[str, Issued] = {}
        await super().setUp()
        await self.grant("owner", OWNER_RULES, "dev", cluster=True)
        await self.grant("agents", AGENT_RULES, "agents")
        body = {
            "metadata": {"name": "dev-edit"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "dev"}],
        }
        await self.admin.create(BINDINGS, body, "default")
        policy = {
            "metadata": {"name": "agents"},
            "spec": {"subjects": [{"kind": "Group", "name": "agents"}]},
        }
        await self.admin.create(kinds.CONSOLEPOLICIES.resource, policy, "default")
        self.poollet_: Poollet
        self.poollet_, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        self.agent = await self.login("jane", "bot")

    def settings(self, **more: Any) -> Settings:
        pair = pki().pair(CLIENT)
        return super().settings(client_signing=CAPair(pair.certificate, pair.key), **more)

    async def grant(self, name: str, rules: Any, group: str, *, cluster: bool = False) -> None:
        """Give a group a role of its own, in the namespace or everywhere."""
        role = {"metadata": {"name": name}, "rules": list(rules)}
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
        }
        if cluster:
            await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, binding)
        else:
            await self.admin.create(BINDINGS, binding, "default")

    async def ask(self, client: KubeClient, name: str) -> bytes:
        """Create a request for an agent of a name; return the key."""
        request = request_client(name, [])
        csr = {
            "metadata": {"name": "csr"},
            "spec": {
                "request": base64.b64encode(request.request_pem).decode("ascii"),
                "signerName": AGENT,
                "usages": ["digital signature", "client auth"],
            },
        }
        await client.create(CSRS, csr)
        return request.key_pem

    async def login(self, person: str, label: str) -> KubeClient:
        """Return a client of a new agent of a person."""
        client = self.client(person)
        key = await self.ask(client, f"agent:{person}:{label}")
        while not (certificate := certificate_of(await client.get(CSRS, "csr"))):
            await deferLater(reactor, 0, lambda: None)
        await self.admin.delete(CSRS, "csr")
        found = Issued(base64.b64decode(certificate), key)
        self.identities_of_agents[label] = found
        config = ClientConfig(
            self.server.url,
            ca=Material(path=pki().serving_ca),
            certificate=Material(data=found.certificate_pem),
            key=Material(data=found.key_pem),
        )
        made = patient(config)
        self.addCleanup(made.close)
        return made

    def endpoint(self, user: str) -> Any:
        if user in self.identities_of_agents:
            return endpoint(self.server.address, self.identities_of_agents[user])
        return super().endpoint(user)

    async def refusal(self, asking: Any) -> str:
        """Return the message of a refused request of a client."""
        with self.assertRaises(APIError) as caught:
            await asking
        self.assertEqual(caught.exception.code, 403)
        return caught.exception.message
