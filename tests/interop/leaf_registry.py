"""
The registry of leaf clusters before real kube-apiservers: what it may there and no more, Secrets
and Clusters of Kosmos that come, are replaced and go, and leaves that refuse us.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.leaf_clusters import NODE_SERVER, LeafClusters
from twisted_exec.api.kinds.pods.machine_pods import PODS as POD_KIND
from twisted_exec.api.status import NotFound
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.nodeserver import root_pods
from twisted_exec.nodeserver.leaves.registry import LeafRegistry
from twisted_exec.nodeserver.leaves.settings import RegistrySettings

reactor: Any = _reactor
US = "leaf-user"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "clusters.kosmos.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    },
    "spec": {
        "group": "kosmos.io",
        "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def role(kind: str, name: str, rules: list[Any], user: str, namespace: str = "") -> list[Any]:
    """A role, and its binding to one user."""
    api, metadata = "rbac.authorization.k8s.io", {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return [
        {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        },
    ]


def pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]},
    }


class LeafRegistryTests(TestCase):
    """One pair of clusters for all of it: they take seconds to start."""

    timeout = 300
    skip = needs.kube_apiserver() or needs.kubectl()

    async def setUp(self) -> None:
        clusters = LeafClusters("registry")
        self.addCleanup(clusters.stop)
        self.root, self.leaf = clusters.root, clusters.leaf
        self.root.start_store(clusters.store_program)
        clusters._start_kube(self.root, "/root")
        clusters._start_kube(self.leaf, "/leaf")
        self.root.apply(CRD, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "l"}})
        secrets = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]}
        clusters_of_kosmos = {"apiGroups": ["kosmos.io"], "resources": ["clusters"]}
        look = {"verbs": ["list", "watch"]}
        self.root.apply(
            *role("ClusterRole", "ns", [PODS, clusters_of_kosmos | look], NODE_SERVER),
            *role("Role", "one", [secrets | look], NODE_SERVER, "l"),
        )
        self.leaf.apply(*role("ClusterRole", "us", [PODS], US))
        path = Path(self.mktemp()).absolute()
        path.write_text(yaml.safe_dump({"leaves": [self.told()]}))
        config = load(self.root.user(NODE_SERVER, []))
        self.client = KubeClient(config, reactor)
        self.addCleanup(self.client.close)
        settings = RegistrySettings(str(path), kosmos=True)
        self.registry = LeafRegistry(settings, self.client, reactor)
        self.registry.start()
        self.addCleanup(self.registry.stop)

    def told(self) -> dict[str, Any]:
        secret = {"namespace": "l", "name": "one"}
        return {"name": "one", "kubeconfig": {"secret": secret}, "nodes": [{"name": "leaf-one"}]}

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(600):
            if condition():
                return
            await deferLater(reactor, 0.05)
        leaves = [(leaf.name, leaf.problem) for leaf in self.registry.leaves.all()]
        self.fail(f"{what}: never; {leaves} {self.registry.problems} {self.registry.synced}")

    async def apply(self, cluster: HostCluster, *objects: dict[str, Any]) -> None:
        """Apply in a thread, so that watches continue meanwhile."""
        await deferToThread(cluster.apply, *objects)

    async def delete(self, *what: str) -> None:
        await deferToThread(kubectl, self.root.kubeconfig, "delete", "--wait=false", *what)

    def kubeconfig(self, user: str, of: HostCluster | None = None, **cluster: Any) -> str:
        """The leaf's, for a user who has a certificate of the leaf's CA, or of another's."""
        document = yaml.safe_load(Path(self.leaf.user(US, [])).read_text())
        document["clusters"][0]["cluster"] |= cluster
        if of is not None:
            other = yaml.safe_load(Path(of.user(user, [])).read_text())
            document["users"] = other["users"]
            document["contexts"][0]["context"]["user"] = other["users"][0]["name"]
        return json.dumps(document)

    async def put_secret(self, content: str) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "one", "namespace": "l"},
        }
        await self.apply(self.root, secret | {"stringData": {"kubeconfig": content}})

    async def test_registry(self) -> None:
        """From nothing to a leaf that is reached, through what may happen to it, to nothing."""
        leaves, roots = self.registry.leaves, self.registry.roots
        one = leaves.get("one")
        await self.until(lambda: "does not exist; create it" in one.problem, "a missing Secret")

        await self.put_secret(self.kubeconfig(US))
        await self.until(lambda: one.problem == "", "a Secret")

        await self.apply(self.root, pod("web", "leaf-one"))
        root = await roots.get("default", "web")
        with self.assertRaises(NotFound):
            await one.pod(root)
        marks = one.marks(root)
        await self.apply(self.leaf, pod("web", "worker", **marks))
        found = await one.pod(root)
        self.assertEqual((found.leaf, found.name), (one, "web"))
        await self.until(lambda: len(list(one.pods())) == 1, "the leaf's Pod in the copy")
        await self.until(lambda: roots.seen("default", "web") is not None, "the root's Pod")

        # Credentials that the leaf does not know: told with whose they are, and mended in place.
        config = one.config()
        await self.put_secret(self.kubeconfig(US, of=self.root))
        await self.until(lambda: one.config() != config, "other credentials")
        with self.assertRaises(Exception) as caught:
            await one.client.get(POD_KIND.resource, "web", "default")
        self.assertEqual(getattr(caught.exception, "code", 0), 401)
        self.assertIn("secret l/one", str(getattr(caught.exception, "message", "")))
        self.assertIs(leaves.get("one"), one)

        # A name in the certificate instead of the address; the CA is the leaf's, and no other.
        await self.put_secret(self.kubeconfig(US, **{"tls-server-name": "localhost"}))
        await self.until(lambda: one.config().tls_server_name == "localhost", "a name")
        await one.client.get(POD_KIND.resource, "web", "default")

        # From here on all Pods of the root are followed by one watch.
        self.patch(root_pods, "MAX_NODE_WATCHES", 0)
        # Kosmos's own objects; each of its leaves beside the file's.
        content = base64.b64encode(self.kubeconfig(US).encode()).decode()
        cluster = {
            "apiVersion": "kosmos.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "two"},
            "spec": {"kubeconfig": content, "clusterTreeOptions": {"enable": True}},
        }
        await self.apply(self.root, cluster)
        await self.until(lambda: "kosmos-two" in leaves.nodes(), "a Cluster")
        two = leaves.of_node("kosmos-two")
        await self.until(lambda: two.problem == "", "the Cluster's leaf")
        await self.apply(self.root, pod("db", "kosmos-two"))
        await self.apply(self.leaf, pod("db", "worker", labels={"kosmos-io/pod": "true"}))
        self.assertEqual((await two.pod(await roots.get("default", "db"))).name, "db")
        await self.until(lambda: self.registry.synced, "everything")
        await self.until(lambda: roots.seen("default", "db") is not None, "Pods of all Nodes")
        self.assertEqual(list(roots._sources), [""])

        await self.delete("clusters.kosmos.io/two")
        await self.until(lambda: "kosmos-two" not in leaves.nodes(), "the Cluster's end")
        await self.delete("-n", "l", "secret/one")
        await self.until(lambda: "does not exist" in one.problem, "the Secret's end")
        self.assertEqual(self.registry.problems, [])
