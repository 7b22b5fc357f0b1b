"""
The space-aware client with a real kube-apiserver on both sides: it has the Spaces, by their
CustomResourceDefinitions, and is itself the cluster behind a Space.  Followers have the documented
rights, in a single namespace.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls, programs
from tests.interop.kube_apiserver import TOKEN, KubeAPIServer
from tests.interop.spaces_crds import CRDS
from twisted_exec.api import kinds, spaces
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.client import SpaceClient

reactor: Any = _reactor
NAMESPACE = "spaceprovider-default"
SECRETS, NAMESPACES = kinds.SECRETS.resource, kinds.NAMESPACES.resource
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ROLE = Path(__file__).parents[2] / "docs" / "howto" / "space-user-role.yaml"


class SpaceClientTests(TestCase):
    """A single server for all cases: starting it takes longer than the requests."""

    timeout = 300
    skip = needs.kube_apiserver() or needs.kubectl()

    async def setUp(self) -> None:
        self.server = KubeAPIServer()
        self.addCleanup(self.server.stop)
        await deferToThread(self.server.start)
        self.kubectl("apply", "--server-side", f"-f={CRDS}", f"-f={ROLE}")
        self.kubectl("create", "namespace", NAMESPACE)
        for account in ("one", "two", "follower"):
            self.kubectl("-n", NAMESPACE, "create", "serviceaccount", account)
        mine = f"--serviceaccount={NAMESPACE}:follower"
        self.kubectl(
            "-n", NAMESPACE, "create", "rolebinding", "f", "--clusterrole=space-user", mine
        )
        for account in ("one", "two"):
            whose = f"--serviceaccount={NAMESPACE}:{account}"
            self.kubectl(
                "create", "clusterrolebinding", account, "--clusterrole=cluster-admin", whose
            )
        self.admin = self.client(TOKEN)
        while not await self.served():
            await deferLater(reactor, 0.2)

    async def served(self) -> bool:
        try:
            await self.admin.list(spaces.SPACES)
        except APIError:
            return False
        return True

    def kubectl(self, *arguments: str) -> str:
        access = [f"--server={self.server.url}", f"--token={TOKEN}", "--insecure-skip-tls-verify"]
        done = subprocess.run(
            ["kubectl", *access, *arguments], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def token(self, account: str) -> str:
        return self.kubectl("-n", NAMESPACE, "create", "token", account)

    def config(self, token: str) -> ClientConfig:
        return ClientConfig(self.server.url, ca=Material(data=self.server.authority), token=token)

    def client(self, token: str) -> KubeClient:
        made = KubeClient(self.config(token), reactor)
        self.addCleanup(made.close)
        return made

    async def put_secret(self, account: str) -> None:
        """The credentials of the Space are this one's from now on."""
        content = written(self.config(self.token(account)), "one")
        data = {spaces.KUBECONFIG_KEY: base64.b64encode(content).decode()}
        labels = {spaces.SPACE_LABEL: "one", spaces.PROVIDER_LABEL: "default"}
        secret = {"metadata": {"name": "external-one", "labels": labels}, "data": data}
        try:
            await self.admin.create(SECRETS, secret, NAMESPACE)
        except APIError:
            await self.admin.patch(SECRETS, "external-one", {"data": data}, NAMESPACE)

    async def put_space(self) -> None:
        spec = {"Type": spaces.MANAGED, "SpaceProviderDescName": "default"}
        space = {
            "apiVersion": spaces.SPACES.api_version,
            "kind": spaces.SPACES.kind,
            "metadata": {"name": "one"},
            "spec": spec,
        }
        await self.admin.create(spaces.SPACES, space, NAMESPACE)
        reference = {"name": "external-one", "namespace": NAMESPACE}
        status = {"Phase": spaces.READY, "externalSecretRef": reference}
        await self.admin.patch(
            spaces.SPACES, "one", {"status": status}, NAMESPACE, subresource="status"
        )

    async def who(self, client: IKubeClient) -> str:
        told = await client.create(kinds.SELFSUBJECTREVIEWS.resource, {})
        return str(told["status"]["userInfo"]["username"]).rpartition(":")[2]

    async def engaged(self, **more: Any) -> SpaceClient:
        made = SpaceClient(
            self.client(self.token("follower")), reactor, namespaces=[NAMESPACE], **more
        )
        made.startService()
        self.addCleanup(made.stopService)
        while not made.all():
            await deferLater(reactor, 0.02)
        return made

    async def test_all(self) -> None:
        """Followed, rotated under a watch, revoked, asked for by kubectl, and gone."""
        await self.put_secret("one")
        await self.put_space()
        await self.rotated(await self.engaged())
        await self.rotated(await self.engaged(secrets_by_name=True))
        await self.revoked(await self.engaged())
        await self.by_kubectl()
        client = await self.engaged()
        gone: Deferred[str] = client.connection("one").when_gone()
        await self.admin.delete(spaces.SPACES, "one", NAMESPACE)
        self.assertIn("it was deleted", await gone)

    async def rotated(self, client: SpaceClient) -> None:
        """The next request is another user's, and a watch goes on."""
        await self.put_secret("one")
        connection, kube = client.connection("one"), client.get("one")
        before = connection.config()
        seen: list[str] = []
        listed = await kube.list(NAMESPACES)
        watching = kube.watch(
            NAMESPACES,
            lambda _, obj: seen.append(obj["metadata"]["name"]),
            resource_version=listed["metadata"]["resourceVersion"],
        )
        watching.addErrback(lambda _: None)
        await self.put_secret("two")
        while await self.who(kube) != "two":
            await deferLater(reactor, 0.01)
        self.assertIsNot(connection.config(), before)
        name = f"made-{len(listed['items'])}"
        await kube.create(NAMESPACES, {"metadata": {"name": name}})
        while name not in seen:
            await deferLater(reactor, 0.01)
        watching.cancel()

    async def revoked(self, client: SpaceClient) -> None:
        """A token whose account is gone is answered 401, and the request is sent once more."""
        kube = client.get("one")
        await self.put_secret("one")
        while await self.who(kube) != "one":
            await deferLater(reactor, 0.01)
        await client._secrets.stop()  # so that the watch does not say it first
        await self.put_secret("two")
        self.kubectl("-n", NAMESPACE, "delete", "serviceaccount", "one")
        while await self.who(kube) != "two":  # their tokens are good for some seconds more
            await deferLater(reactor, 0.2)
        self.kubectl("-n", NAMESPACE, "create", "serviceaccount", "one")

    async def by_kubectl(self) -> None:
        """Try the plugin in each installed kubectl, with the rights of a follower."""
        directory = os.path.abspath(self.mktemp())
        os.makedirs(directory)
        hub, path = (os.path.join(directory, each) for each in ("hub", "one"))
        with open(hub, "wb") as file:
            file.write(written(self.config(self.token("follower")), "hub"))
        words = ("space", "kubeconfig", "one", "--provider=default", f"--output={path}")
        program = programs.script("twisted-exec")
        code, _, output = await kubectls.run(program, *words, env={"KUBECONFIG": hub})
        self.assertEqual(code, 0, output)
        for account in ("one", "two"):
            await self.put_secret(account)
            for kubectl in kubectls.found().values():
                # Older ones ask who they are in a version that newer servers have no more.
                told = ("create", "--raw", REVIEWS, "-f", "-")
                code, out, output = await kubectls.run(
                    kubectl, *told, env={"KUBECONFIG": path}, stdin=b"{}"
                )
                self.assertEqual(code, 0, output)
                username = json.loads(out)["status"]["userInfo"]["username"]
                self.assertEqual(username, f"system:serviceaccount:{NAMESPACE}:{account}")
