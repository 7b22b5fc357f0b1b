"""
``--sync-pods`` between real kube-apiservers: a Pod's life, with what it names, both ways.

The leaf has a kube-apiserver and no controllers: the trial binds Pods there, says that they run,
and ends them, as its scheduler and its kubelet would.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.docs.deploy_roles import more_rights, rights_in_leaf
from tests.interop.hosts import HostCluster, kubectl
from tests.interop.leaf_clusters import LEAF_NODE, NODE_SERVER, ROOT_NODE, LeafClusters
from twisted_exec.nodeserver.rbac_rules import sync_leaf_rules

MANY = 200
RUNNING = {
    "phase": "Running",
    "hostIP": "127.0.0.7",
    "podIP": "10.1.0.7",
    "podIPs": [{"ip": "10.1.0.7"}],
    "startTime": "2026-01-01T00:00:01Z",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "main",
            "ready": True,
            "restartCount": 0,
            "image": "none",
            "imageID": "none",
            "state": {"running": {"startedAt": "2026-01-01T00:00:02Z"}},
        }
    ],
}


class LeafWorker(SynchronousTestCase):
    """One pair of clusters for all."""

    timeout = 600
    skip = needs.leaf_clusters()

    def setUp(self) -> None:
        with ExitStack() as ending:
            self.clusters = clusters = LeafClusters("sync")
            ending.callback(clusters.stop)
            clusters.start()
            self.known_as = self.allowed(clusters)
            clusters.start_node_server("--sync-pods", leaf_kubeconfig=self.known_as)
            clusters.wait_for_node()
            self.addCleanup(ending.pop_all().close)
        self.root, self.leaf = clusters.root, clusters.leaf

    def allowed(self, clusters: LeafClusters) -> str:
        """Return the kubeconfig of a user with exactly the rights of the manifests in the leaf."""
        user = "a-syncer"
        for each in [*rights_in_leaf(), *more_rights("sync-pods", sync_leaf_rules())]:
            if each["kind"] == "ClusterRoleBinding":
                group = "rbac.authorization.k8s.io"
                each = {**each, "subjects": [{"kind": "User", "name": user, "apiGroup": group}]}
            clusters.leaf.apply(each)
        return clusters.leaf.user(user, [])

    def until(self, what: str, condition: Callable[[], Any]) -> None:
        self.clusters.programs.until(what, condition)

    def get(self, cluster: HostCluster, what: str, path: str, namespace: str = "team") -> str:
        query = ["-n", namespace, "get", *what.split(), "-o", f"jsonpath={path}"]
        return kubectl(cluster.kubeconfig, *query, check=False)

    def pod(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "labels": {"app": "web"}},
            "spec": {
                "nodeName": ROOT_NODE,
                "terminationGracePeriodSeconds": 5,
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "envFrom": [{"configMapRef": {"name": "settings"}}],
                    }
                ],
            },
        }

    def runs(self, name: str) -> None:
        """The leaf's scheduler and kubelet take a Pod up."""
        bound = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": "team"},
            "target": {"kind": "Node", "name": LEAF_NODE},
        }
        kubectl(
            self.leaf.kubeconfig,
            "create",
            "--raw",
            f"/api/v1/namespaces/team/pods/{name}/binding",
            "-f",
            self.leaf.programs.write("binding.json", json.dumps(bound)),
        )
        self.clusters.patch_status(self.leaf, f"namespaces/team/pods/{name}", RUNNING)

    def test_life(self) -> None:
        """A Pod is made with its namespace and its ConfigMap, runs, is debugged, and ends."""
        kubectl(self.root.kubeconfig, "create", "namespace", "team")
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "team"},
            "data": {"a": "1"},
        }
        self.root.apply(settings)
        self.root.apply(self.pod("web"))
        self.until("pod", lambda: self.get(self.leaf, "pod web", "{.metadata.uid}"))
        self.assertEqual(self.get(self.leaf, "configmap settings", "{.data.a}"), "1")
        self.runs("web")
        self.until("status", lambda: self.get(self.root, "pod web", "{.status.podIP}"))
        self.assertEqual(self.get(self.root, "pod web", "{.status.phase}"), "Running")

        self.root.apply({**settings, "data": {"a": "2"}})
        self.until(
            "settings", lambda: self.get(self.leaf, "configmap settings", "{.data.a}") == "2"
        )
        kubectl(self.root.kubeconfig, "-n", "team", "label", "pod", "web", "tier=1", "app-")
        self.until(
            "label", lambda: self.get(self.leaf, "pod web", "{.metadata.labels.tier}") == "1"
        )
        self.assertEqual(self.get(self.leaf, "pod web", "{.metadata.labels.app}"), "")
        kubectl(
            self.root.kubeconfig,
            *("-n", "team", "debug", "web", "--image=tools", "--container=looking"),
            *("--profile=general", "--", "true"),
        )
        path = "{.spec.ephemeralContainers[0].name}"
        self.until("debug", lambda: self.get(self.leaf, "pod web", path) == "looking")
        self.quiet()

        kubectl(self.root.kubeconfig, "-n", "team", "delete", "pod", "web", "--wait=false")
        path = "{.metadata.deletionGracePeriodSeconds}"
        self.until("deletion", lambda: self.get(self.leaf, "pod web", path) == "5")
        self.assertTrue(self.get(self.root, "pod web", "{.metadata.uid}"))
        kubectl(
            self.leaf.kubeconfig,
            *("-n", "team", "delete", "pod", "web"),
            "--force",
            "--grace-period=0",
        )
        self.until("gone", lambda: not self.get(self.root, "pod web", "{.metadata.uid}"))
        self.until("copy", lambda: not self.get(self.leaf, "configmap settings", "{.data.a}"))

    def comes_up(self, name: str) -> None:
        self.root.apply(self.pod(name))
        self.until(name, lambda: self.get(self.leaf, f"pod {name}", "{.metadata.uid}"))
        self.runs(name)
        self.until(name, lambda: self.get(self.root, f"pod {name}", "{.status.podIP}"))

    def test_lost(self) -> None:
        """A Pod that is taken from the leaf has failed in the root; one that is forced away goes."""
        kubectl(self.root.kubeconfig, "create", "namespace", "team")
        for name in ("lost", "forced"):
            self.comes_up(name)
        force = ("--force", "--grace-period=0")
        kubectl(self.leaf.kubeconfig, "-n", "team", "delete", "pod", "lost", *force)
        self.until(
            "lost", lambda: self.get(self.root, "pod lost", "{.status.reason}") == "LeafPodGone"
        )
        kubectl(self.root.kubeconfig, "-n", "team", "delete", "pod", "forced", *force)
        path = "{.metadata.deletionTimestamp}"
        self.until("forced", lambda: self.get(self.leaf, "pod forced", path))

    def test_many(self) -> None:
        """After many Pods are created, writes cease, whichever replica leads."""
        kubectl(self.root.kubeconfig, "create", "namespace", "team")
        pods = "\n---\n".join(json.dumps(self.pod(f"web-{number}")) for number in range(MANY))
        create = ("create", "--validate=false", "-f", "-")
        kubectl(self.root.kubeconfig, *create, input=pods)
        query = ("-n", "team", "get", "pods", "-o", "name")
        self.until("pods", lambda: kubectl(self.leaf.kubeconfig, *query).count("pod/") == MANY)
        self.quiet()
        self.clusters.programs.end(NODE_SERVER)
        self.clusters.start_node_server("--sync-pods", name="second", leaf_kubeconfig=self.known_as)
        self.quiet()

    def quiet(self) -> None:
        """Wait until no Pod changes any more, in both clusters."""

        def versions() -> list[str]:
            path = "{.items[*].metadata.resourceVersion}"
            return [self.get(cluster, "pods", path) for cluster in (self.root, self.leaf)]

        last: list[list[str]] = [[]]

        def is_quiet() -> bool:
            before, last[0] = last[0], versions()
            return before == last[0]

        self.until("quiet", is_quiet)
        before = versions()
        for _ in range(20):
            kubectl(self.root.kubeconfig, "get", "nodes")
        self.assertEqual(versions(), before)
