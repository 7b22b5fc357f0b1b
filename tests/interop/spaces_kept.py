"""
A Space Manager over a real kube-apiserver and its controllers: its writes are accepted, its
leftovers are garbage-collected, and a real API server answers its probes.

The cluster behind a Space is that cluster itself, by tokens of its ServiceAccounts; the provider
is in memory.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_world import pause
from tests.interop.hosts import kubectl
from tests.interop.space_clusters import shared_cluster
from tests.spacemanager.live import condition
from twisted_exec.api import spaces
from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import NotFound
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.spacemanager.bounded import NoMetrics
from twisted_exec.spacemanager.interfaces import Physical, ProviderContext
from twisted_exec.spacemanager.registry import ProviderRegistry
from twisted_exec.spacemanager.spaces.loop import SpaceLoop
from twisted_exec.spacemanager.spaces.publishing import PROFILES
from twisted_exec.spacemanager.views import ProviderEnvironment
from twisted_exec.testing.space_provider import MemorySpace, MemorySpaces

reactor: Any = _reactor
CRDS = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes" / "spaces" / "crds"
HOME = spaces.namespace_of("p")
SECONDS = 30.0


class ClusterSpaces(MemorySpaces):
    """
    Physical spaces that are one real cluster, as a user of its own for each generation of
    credentials.
    """

    def __init__(self, kubeconfig: str) -> None:
        super().__init__()
        self._path = kubeconfig
        (self._cluster,) = json.loads(kubectl(kubeconfig, "config", "view", "--raw", "-ojson"))[
            "clusters"
        ]
        self._tokens: dict[str, str] = {}

    def kubeconfig(self, physical: Physical, space: MemorySpace) -> bytes:
        account = f"s-{space.uid[:8]}-{space.generation}"
        if account not in self._tokens:
            kubectl(self._path, "create", "serviceaccount", account, "-n", "default")
            told = kubectl(self._path, "create", "token", account, "-n", "default")
            self._tokens[account] = told.strip()
        context = {"cluster": self._cluster["name"], "user": "u"}
        config = {
            "clusters": [self._cluster],
            "users": [{"name": "u", "user": {"token": self._tokens[account]}}],
            "contexts": [{"name": "x", "context": context}],
            "current-context": "x",
        }
        return json.dumps(config).encode()

    def revoke(self, space: MemorySpace) -> None:
        """The tokens of one are good no more."""
        account = f"s-{space.uid[:8]}-{space.generation}"
        kubectl(self._path, "delete", "serviceaccount", account, "-n", "default")


class KeptTests(TestCase):
    """A manager over a real hub."""

    timeout = 300
    skip = needs.aggregated()

    async def setUp(self) -> None:
        self.cluster = shared_cluster()
        await self.run_kubectl("apply", "--server-side", f"-f={CRDS}")
        await self.run_kubectl(
            "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"
        )
        self.hub = KubeClient(load(self.cluster.kubeconfig), reactor)
        self.world = ClusterSpaces(self.cluster.kubeconfig)
        around = ProviderContext(self.hub, reactor, self.mktemp(), time.time)
        make = {spaces.LOCAL: lambda spec, around: self.world.provider()}
        self.providers = ProviderRegistry(ProviderEnvironment(around, make, NoMetrics()))
        self.loop = SpaceLoop(self.hub, self.providers, reactor)
        self.providers.spaces = self.loop
        desc = {"metadata": {"name": "p"}, "spec": {"ProviderType": spaces.LOCAL}}
        await self.hub.create(spaces.PROVIDERS, _whole(spaces.PROVIDERS, desc))
        self.providers.startService()
        self.loop.startService()
        await self.until(lambda: self.loop.synced and self.providers.get("p") is not None)
        await self.until_there(NAMESPACES.resource, HOME)

    async def tearDown(self) -> None:
        await self.loop.stopService()
        await self.providers.stopService()
        for each in self.loop.all():
            name = each["metadata"]["name"]
            free = {"metadata": {"finalizers": None}}
            with contextlib.suppress(NotFound):
                await self.hub.patch(spaces.SPACES, name, free, each["metadata"]["namespace"])
        await self.hub.delete(spaces.PROVIDERS, "p")
        await self.run_kubectl("delete", "namespace", HOME, "--wait=true", "--timeout=60s")
        await self.hub.close()

    async def run_kubectl(self, *arguments: str) -> str:
        """In a thread: it waits for what the manager in this one does."""
        told: str = await deferToThread(kubectl, self.cluster.kubeconfig, *arguments)
        return told

    async def until(self, true: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if found := true():
                return found
            await pause(0.05)
        raise AssertionError([each.get("status") for each in self.loop.all()])

    async def until_there(self, resource: Any, name: str) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                await self.hub.get(resource, name)
                return
            except NotFound:
                await pause(0.05)
        raise AssertionError(f"{name} was not there")

    def seen(self, name: str) -> Object:
        return self.loop.get(HOME, name) or {"metadata": {}}

    def is_ready(self, name: str) -> bool:
        return (self.seen(name).get("status") or {}).get("Phase") == "Ready"

    def is_refused(self, name: str) -> bool:
        return condition(self.seen(name), "CredentialsValid") == ("False", "Refused")

    def probe(self, name: str) -> None:
        """Run the periodic probe of a Space now, instead of after ten minutes."""
        self.loop._probes.again((HOME, name))

    async def make(self, name: str, **spec: Any) -> None:
        told = {"SpaceProviderDescName": "p", **spec}
        space = {"metadata": {"name": name}, "spec": told}
        await self.hub.create(spaces.SPACES, _whole(spaces.SPACES, space), HOME)

    async def token(self, name: str) -> str:
        told = await self.run_kubectl(
            "get", "secret", name, f"-n={HOME}", "-o=jsonpath={.data.kubeconfig}"
        )
        done = subprocess.run(["base64", "-d"], input=told.encode(), capture_output=True)
        (user,) = json.loads(done.stdout)["users"]
        return str(user["user"]["token"])

    async def test_managed(self) -> None:
        """Made, reached, published, rotated, revoked and renewed; deleted with all that was written."""
        began = time.monotonic()
        await self.make("one")
        await self.until(lambda: self.is_ready("one"))
        self.took = time.monotonic() - began
        table = await self.run_kubectl("get", "spaces", f"-n={HOME}")
        self.assertIn("Ready", table)
        await self.until_profile("True")
        before = await self.token("external-one")
        await self.run_kubectl("annotate", "space", "one", f"-n={HOME}", f"{spaces.ROTATE}=1")
        await self.until(lambda: self.seen("one")["status"].get("rotated") == "1")
        self.assertNotEqual(await self.token("external-one"), before)
        (made,) = self.world.spaces.values()
        self.world.revoke(made)
        generation = made.generation
        # The API server itself takes such a token for ten seconds more.
        await self.until(lambda: self.probe("one") or made.generation > generation)
        await self.until(lambda: self.is_ready("one"))
        await self.run_kubectl("delete", "space", "one", f"-n={HOME}", "--timeout=60s")
        self.assertEqual(self.world.spaces, {})
        left = await self.hub.list(SECRETS.resource, HOME)
        self.assertEqual([each["metadata"]["name"] for each in left["items"]], [])

    async def until_profile(self, healthy: str) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            listed = await self.hub.list(PROFILES, HOME)
            for each in listed["items"]:
                if each.get("status", {}).get("conditions", [{}])[0].get("status") == healthy:
                    (way,) = each["status"]["accessProviders"]
                    self.assertEqual(way["cluster"]["server"], self.cluster.url)
                    self.assertTrue(each["status"]["version"]["kubernetes"].startswith("v1."))
                    return
            await pause(0.05)
        raise AssertionError("no ClusterProfile")

    async def test_discovered(self) -> None:
        """Found, shown, shown again after its object was deleted, and gone."""
        self.world.put(Physical("found"))
        await self.until(lambda: self.is_ready("found"))
        uid = self.seen("found")["metadata"]["uid"]
        await self.run_kubectl("delete", "space", "found", f"-n={HOME}", "--timeout=60s")
        # The manager may hear of the deletion only after kubectl has ended.
        await self.until(
            lambda: self.is_ready("found") and self.seen("found")["metadata"]["uid"] != uid
        )
        self.world.drop(Physical("found"))
        await self.until(lambda: not self.loop.all())

    async def test_imported(self) -> None:
        """ProbeResult; made anew when it is deleted, unless it is forgotten."""
        content = self.world.kubeconfig(Physical("theirs"), MemorySpace())
        path = Path(self.mktemp())
        path.write_bytes(content)
        await self.run_kubectl(
            "create", "secret", "generic", "theirs", f"-n={HOME}", f"--from-file=kubeconfig={path}"
        )
        spec = {"Type": "imported", "externalSecretRef": {"name": "theirs"}}
        space = _whole(spaces.SPACES, {"metadata": {"name": "in"}, "spec": spec})
        await self.hub.create(spaces.SPACES, space, HOME)
        await self.until(lambda: self.is_ready("in"))
        uid = self.seen("in")["metadata"]["uid"]
        await self.run_kubectl("delete", "space", "in", f"-n={HOME}", "--wait=false")
        await self.until(lambda: self.seen("in")["metadata"].get("uid", uid) != uid)
        await self.until(lambda: self.is_ready("in"))
        await self.run_kubectl("annotate", "space", "in", f"-n={HOME}", f"{spaces.FORGET}=true")
        await self.run_kubectl("delete", "space", "in", f"-n={HOME}", "--timeout=60s")
        await pause(2.0)
        self.assertEqual(list(self.loop.all()), [])
        left = await self.hub.list(SECRETS.resource, HOME)
        self.assertEqual([each["metadata"]["name"] for each in left["items"]], ["theirs"])

    async def test_replaced_secret(self) -> None:
        """A replaced Secret counts within seconds: garbage, a refused token, and the right one."""
        good = self.world.kubeconfig(Physical("theirs"), MemorySpace())
        refused = json.loads(good)
        refused["users"][0]["user"]["token"] = "refused"
        await self.import_secret(good)
        await self.until(lambda: self.is_ready("in"))
        for content, reason in (
            (b"garbage", "Unusable"),
            (json.dumps(refused).encode(), "Refused"),
        ):
            await self.replace_secret(content)
            await self.until(
                lambda reason=reason: condition(self.seen("in"), "CredentialsValid")[1] == reason
            )
            self.assertEqual(self.seen("in")["status"]["Phase"], "NotReady")
        await self.replace_secret(good)
        await self.until(lambda: self.is_ready("in"))

    async def import_secret(self, content: bytes) -> None:
        """Create an imported Space ``in`` with the kubeconfig in a Secret."""
        path = Path(self.mktemp())
        path.write_bytes(content)
        await self.run_kubectl(
            "create", "secret", "generic", "theirs", f"-n={HOME}", f"--from-file=kubeconfig={path}"
        )
        spec = {"Type": "imported", "inClusterSecretRef": {"name": "theirs"}}
        space = _whole(spaces.SPACES, {"metadata": {"name": "in"}, "spec": spec})
        await self.hub.create(spaces.SPACES, space, HOME)

    async def replace_secret(self, content: bytes) -> None:
        """Replace the kubeconfig in the Secret."""
        data = {"data": {"kubeconfig": base64.b64encode(content).decode()}}
        await self.hub.patch(SECRETS.resource, "theirs", data, HOME)

    async def test_revoked_elsewhere(self) -> None:
        """Revoked imported credentials are reported, with the remedy."""
        space = MemorySpace()
        await self.import_secret(self.world.kubeconfig(Physical("theirs"), space))
        await self.until(lambda: self.is_ready("in"))
        self.world.revoke(space)
        await self.until(lambda: self.probe("in") or self.is_refused("in"))
        self.assertEqual(self.seen("in")["status"]["Phase"], "NotReady")


def _whole(resource: Any, obj: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
