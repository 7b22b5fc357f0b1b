"""
Tests for :mod:`twisted_exec.apiserver.identity.service_accounts`: sessions whose credential is
deleted.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.chain import WEBSOCKET, ChainTestCase
from tests.auth import forge
from tests.auth.test_bootstrap_tokens import token_secret
from twisted_exec.api import kinds
from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.settings import Settings

ISSUER = "https://exec.example"


def binding(name: str, subject: Any) -> Any:
    """A role binding of ``edit``."""
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": "edit"},
        "subjects": [subject],
    }


class VoidedTests(ChainTestCase):
    """A ServiceAccount ``robot`` with a session at the console of ``vm``."""

    def settings(self, **more: Any) -> Settings:
        key = self.mktemp()
        with open(key, "wb") as stream:
            stream.write(forge.private_pem(forge.ec_key()))
        who = Identities(accounts=Accounts([ISSUER], signing_key_file=key), bootstrap_tokens=True)
        return super().settings(identities=who, **more)

    async def setUp(self) -> None:
        await super().setUp()
        _, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()
        accounts = kinds.SERVICEACCOUNTS.resource
        await self.admin.create(accounts, {"metadata": {"name": "robot"}}, "default")
        robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        await self.bind("robot", robot)
        await self.admin.create(kinds.SECRETS.resource, {"metadata": {"name": "pin"}}, "default")

    async def bind(self, name: str, subject: Any) -> None:
        await self.admin.create(kinds.ROLEBINDINGS.resource, binding(name, subject), "default")

    async def token(self, **bound: str) -> str:
        spec = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
        answer = await self.admin.create(
            kinds.SERVICEACCOUNTS.resource,
            {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec},
            "default",
            name="robot",
            subresource="token",
        )
        return str(answer["status"]["token"])

    async def session(self, token: str) -> Any:
        header = (b"Authorization", b"Bearer " + token.encode())
        return await self.open(user="", headers=[*WEBSOCKET, header])

    async def test_account_deleted(self) -> None:
        """Deleting a ServiceAccount ends its sessions at once, not in the next round."""
        end = await self.session(await self.token())
        user = "system:serviceaccount:default:robot"
        self.assertEqual(self.audit[-1]["user"], user)
        await self.admin.delete(kinds.SERVICEACCOUNTS.resource, "robot", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])

    async def test_bound_deleted(self) -> None:
        """Deleting the Secret of a bound token ends its sessions; other tokens stay valid."""
        bound = await self.session(await self.token(kind="Secret", name="pin"))
        other = await self.session(await self.token())
        await self.admin.delete(kinds.SECRETS.resource, "pin", "default")
        await self.until(lambda: bound.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])
        self.assertFalse(other.lost)

    async def test_bootstrap_token_changed(self) -> None:
        """Disabling a bootstrap token takes effect at once, too."""
        secret = token_secret()
        del secret["metadata"]["uid"]
        secrets = kinds.SECRETS.resource
        await self.admin.create(secrets, secret, "kube-system")
        await self.bind("starters", {"kind": "Group", "name": "system:bootstrappers"})
        end = await self.session("abc123.0123456789abcdef")
        off = {"stringData": {"usage-bootstrap-authentication": "false"}}
        await self.admin.patch(secrets, "bootstrap-token-abc123", off, "kube-system")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [("AuthorizationWithdrawn", None)])
