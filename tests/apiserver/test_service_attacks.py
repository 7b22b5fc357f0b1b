"""
A user with read access to machines cannot open a console, however crafted the request.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.threads import deferToThread

from tests.apiserver.attacks import Attack, Attacker, Target, attacks
from tests.apiserver.chain import ChainTestCase
from tests.chain import PATIENCE_SECONDS, pki
from twisted_exec.api import kinds

GROUP = "compute.ironcore.dev"
RBAC = "rbac.authorization.k8s.io"


class AttackTests(ChainTestCase):
    """Against an API server that is alone, with a poollet that lets everyone in."""

    async def setUp(self) -> None:
        await super().setUp()
        self.stand_in, port = await self.poollet()
        self.stand_in.protocol = "v5.channel.k8s.io"
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def grant(self, name: str, verbs: list[str], *resources: str) -> None:
        """Give jane these verbs on some resources, everywhere."""
        named = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
        rules = [{"verbs": verbs, "apiGroups": [GROUP], "resources": list(resources)}]
        role = {**named, "kind": "ClusterRole", "rules": rules}
        await self.admin.create(kinds.CLUSTERROLES.resource, role)
        bound = {
            **named,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "jane"}],
        }
        await self.admin.create(kinds.CLUSTERROLEBINDINGS.resource, bound)

    def attacker(self, user: str = "") -> Attacker:
        address: Any = self.server.address
        pair = pki().pair(f"user-{user}")
        shown = (pair.certificate, pair.key) if user else ()
        return Attacker(address.port, pki().serving_ca, *shown, seconds=PATIENCE_SECONDS)

    async def nothing_opens(self, attacker: Attacker) -> None:
        """No request reaches the poollet, and none is answered as an open console is."""
        codes: dict[int, Attack] = {}
        for attack in attacks(Target()):
            code, _ = await deferToThread(attacker.send, attack)
            codes.setdefault(code, attack)
            self.assertEqual(self.stand_in.requests, [], attack)
        self.assertNotIn(101, codes)
        # Each has an answer; 500 is what Kubernetes says to groups without a user.
        self.assertLessEqual(set(codes), {200, 400, 401, 403, 404, 405, 500, 501}, codes)

    async def test_looking(self) -> None:
        """Users who may get, list and watch machines, or get ``machines/exec``."""
        await self.grant("looking", ["get", "list", "watch"], "machines", "machines/exec")
        await self.nothing_opens(self.attacker("jane"))

    async def test_nobody(self) -> None:
        """Clients without a certificate."""
        await self.nothing_opens(self.attacker())

    async def test_opening(self) -> None:
        """The same requests of one who may create ``machines/exec`` do reach it."""
        await self.grant("opening", ["create"], "machines/exec")
        attacker = self.attacker("jane")
        first = next(attacks(Target()))
        code, told = await deferToThread(attacker.send, first)
        self.assertEqual(code, 101, told)
        self.assertEqual(len(self.stand_in.requests), 1)
