"""
The space-aware client with real API servers, over TLS: rotation of credentials during use.
"""

from __future__ import annotations

from typing import Any

from tests.chain import pki
from tests.spaces.hub import SECRET, SPACE, HubTestCase, reactor
from tests.spaces.support import Listener
from twisted_exec.api import spaces
from twisted_exec.api.kinds import NAMESPACES, SELFSUBJECTREVIEWS
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.tls.files import read_file

NAMESPACE = "spaceprovider-default"


class LiveTests(HubTestCase):
    """A client of a cluster with Spaces, and the API server of one of them."""

    async def setUp(self) -> None:
        await super().setUp()
        await self.start_space("t1")
        self.spaces = SpaceClient(self.admin, reactor)
        self.spaces.startService()
        self.addCleanup(self.spaces.stopService)

    async def who(self, client: IKubeClient) -> str:
        """Return the username that the server sees."""
        told = await client.create(SELFSUBJECTREVIEWS.resource, {})
        return str(told["status"]["userInfo"]["username"])

    async def engaged(self) -> IKubeClient:
        await self.until(lambda: self.spaces.synced and self.spaces.all())
        return self.spaces.get("one")

    async def test_rotation(self) -> None:
        """After a rotation, the watch continues and the next request uses the new token."""
        await self.put_space(self.config("t1"))
        client = await self.engaged()
        self.assertEqual(await self.who(client), "space-t1")
        seen: list[str] = []
        listed = await client.list(NAMESPACES.resource)
        watching = client.watch(
            NAMESPACES.resource,
            lambda kind, obj: seen.append(obj["metadata"].get("name", "")),
            resource_version=listed["metadata"]["resourceVersion"],
        )
        ended: list[Any] = []
        watching.addBoth(ended.append)
        await self.put_secret(self.config("t2"))
        connection = self.spaces.connection("one")
        await self.until(lambda: connection.config().token == "t2")
        await self.take("t2")
        self.assertEqual(await self.who(client), "space-t2")
        await client.create(NAMESPACES.resource, {"metadata": {"name": "later"}})
        await self.until(lambda: "later" in seen)
        self.assertEqual(ended, [])
        watching.cancel()

    async def test_certificates(self) -> None:
        """
        A rotation from a token to a certificate, and to another certificate, applies to the next
        request.
        """
        await self.put_space(self.config("t1"))
        client = await self.engaged()
        connection = self.spaces.connection("one")
        for user in ("jane", "admin"):
            pair = pki().pair(f"user-{user}")
            material = [Material(data=read_file(each)) for each in (pair.certificate, pair.key)]
            config = ClientConfig(
                self.behind.url, ca=self.config().ca, certificate=material[0], key=material[1]
            )
            await self.put_secret(config)
            shown = material[0]
            await self.until(lambda shown=shown: connection.config().certificate == shown)
            self.assertEqual(await self.who(client), user)

    async def test_revoked(self) -> None:
        """After a 401 the client reads a new token from the Secret."""
        await self.put_space(self.config("t1"))
        client = await self.engaged()
        await self.take("t2")
        with self.assertRaises(APIError) as caught:
            await self.who(client)
        self.assertEqual(caught.exception.code, 401)
        self.assertIn("replace the credentials there", caught.exception.message)
        # Without the watch, only a read of the Secret can find the new token.
        await self.spaces._secrets.stop()
        await self.put_secret(self.config("t2"))
        self.patch(self.spaces.connection("one")._look, "_not_before", 0.0)  # type: ignore[attr-defined]
        self.assertEqual(await self.who(client), "space-t2")

    async def test_appears_and_vanishes(self) -> None:
        """Creating and deleting a Space in a real API server engages and disengages it."""
        listener = Listener()
        self.spaces.follow(listener)
        await self.put_space(self.config("t1"))
        await self.engaged()
        gone = self.spaces.connection("one").when_gone()
        await self.admin.delete(SPACE, "one", NAMESPACE)
        self.assertEqual(await gone, 'space "default/one" is gone: it was deleted')
        await self.until(lambda: len(listener.told) > 1)
        self.assertEqual([each[0] for each in listener.told], ["engaged", "disengaged"])

    async def test_imported(self) -> None:
        """An imported Space with a user's Secret."""
        await self.admin.create(NAMESPACES.resource, {"metadata": {"name": "lab"}})
        secret = await self.put_secret(self.config("t1"), provider="elsewhere")
        own = {"metadata": {"name": "mine"}, "data": secret["data"]}
        await self.admin.create(SECRET, own, "lab")
        spec = {"Type": spaces.IMPORTED, "externalSecretRef": {"name": "mine"}}
        space = await self.admin.create(SPACE, {"metadata": {"name": "one"}, "spec": spec}, "lab")
        told = {**space, "status": {"Phase": spaces.READY}}
        await self.admin.update(SPACE, told, "lab", subresource="status")
        self.assertEqual(await self.who(await self.engaged()), "space-t1")
