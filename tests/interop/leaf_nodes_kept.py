"""
Nodes that a node server keeps in a real kube-apiserver, for a leaf that is one as well.

What people see of a Node is the leaf's, what the root's API server dials is ours.  Where that
prefers another address, the Node says so, and what helps does help.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.docs.deploy_roles import NODE_SERVER as NAMESPACE
from tests.docs.deploy_roles import rights_in_root
from tests.interop.hosts import kubectl
from tests.interop.leaf_clusters import (
    LEAF_ADDRESS,
    LEAF_NODE,
    NODE_SERVER,
    ROOT_NODE,
    LeafClusters,
)
from tests.interop.programs import free_port
from twisted_exec.api.kinds import ADDRESS_TYPES

USER, OTHER = "least", "another-replica"


class KeptTests(SynchronousTestCase):
    """A root with the default order of address types of kube-apiserver."""

    timeout = 600
    skip = needs.leaf_clusters()

    def setUp(self) -> None:
        self.clusters = LeafClusters()
        self.addCleanup(self.clusters.stop)
        self.clusters.preferred = ",".join(ADDRESS_TYPES)
        self.clusters.start()
        self.kubectl("create", "namespace", NAMESPACE)

    def kubectl(self, *argv: str, check: bool = True) -> str:
        return kubectl(self.clusters.root.kubeconfig, *argv, check=check)

    def node(self) -> Any:
        told = self.kubectl("get", "node", ROOT_NODE, "-o", "json", check=False)
        return json.loads(told or "{}")

    def until(self, what: str, wanted: Any) -> Any:
        """The Node, when it is as wanted."""
        found: list[Any] = []

        def is_so() -> bool:
            found[:] = [self.node()]
            return bool(wanted(found[0]))

        self.clusters.programs.until(what, is_so)
        return found[0]

    def condition(self, node: Any, type: str) -> str:
        told = node.get("status", {}).get("conditions", [])
        return next((f"{one['status']} {one['reason']}" for one in told if one["type"] == type), "")

    def port(self, node: Any) -> Any:
        return (
            node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
        )

    def exec(self) -> str:
        command = ["echo", "through"]
        return self.kubectl("exec", "web", "-c", "main", "--", *command, check=False).strip()

    def grant(self) -> str:
        """Return an identity in the root with exactly the rights of the manifests."""
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
        for each in rights_in_root():
            if each["kind"] == "ServiceAccount":
                continue
            if "subjects" in each:
                each = {**each, "subjects": [subject]}
            self.clusters.root.apply(each)
        return self.clusters.root.user(USER, [])

    def test_kept(self) -> None:
        """
        The leaf's Hostname address wins, which conditions report; without it, the root dials the
        node server and users see the leaf's INTERNAL-IP; another replica, with only the
        documented rights, takes over.
        """
        where = f"--namespace={NAMESPACE}"
        self.clusters.start_node_server(where)
        for type, wanted in (
            ("AddressPreferred", "False AnotherAddressFirst"),
            ("LeafExecAllowed", "True ExecAllowed"),
            ("ExecReady", "False RootCannotReachUs"),
        ):
            self.until(
                type, lambda node, type=type, wanted=wanted: self.condition(node, type) == wanted
            )
        self.clusters.programs.until(
            "event",
            lambda: f"dials the leaf's Hostname {LEAF_NODE}" in self.kubectl("get", "events"),
        )
        self.clusters.programs.end(NODE_SERVER)

        shown = "--leaf-address-types=InternalIP"
        first = self.clusters.start_node_server(where, shown)
        self.until("port", lambda node: self.port(node) == first)
        self.clusters.add_pod()
        self.clusters.programs.until("exec", lambda: self.exec() == "through")
        self.until("ready", lambda node: self.condition(node, "Ready") == "True LeafReady")
        wide = self.kubectl("get", "nodes", "-o", "wide").splitlines()
        row = dict(zip(wide[0].split(), wide[1].split(), strict=False))
        self.assertEqual((row["INTERNAL-IP"], row["STATUS"]), (LEAF_ADDRESS, "Ready"))

        kubeconfig, second = f"--kubeconfig={self.grant()}", free_port()
        self.clusters.start_node_server(where, shown, kubeconfig, name=OTHER, port=second)
        self.assertEqual(self.port(self.node()), first)
        self.clusters.programs.end(NODE_SERVER)
        self.until("port", lambda node: self.port(node) == second)
        self.clusters.programs.until("exec", lambda: self.exec() == "through")
        # It may not have the root try, and its own look says less.
        wanted = "Unknown NotPermitted"
        self.until("probe", lambda node: self.condition(node, "RootReachesNodeServer") == wanted)
