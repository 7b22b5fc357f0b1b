"""
Tests for :mod:`twisted_exec.apiserver.restriction.nodes`, over HTTP.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import ALL_MACHINES, EVENTS, MERGE, NAMESPACES, APITestCase
from twisted_exec.api.kinds import Object

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
OWN_LEASES = LEASES.format("kube-node-lease")


class NodeRestrictionTests(APITestCase):
    """Each node server reads and writes its own Node and Lease only."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("node-a", "node-b"):
            self.answer("POST", NODES, {"metadata": {"name": name}}, user=name, code=201)

    def patch(self, path: str, body: Object, code: int = 200, user: str = "node-a") -> Any:
        return self.answer("PATCH", path, body, user=user, content_type=MERGE, code=code)

    def test_own_node(self) -> None:
        """It writes the status of its own Node, and of no other."""
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.patch(f"{NODES}/node-a/status", status)
        self.answer("GET", f"{NODES}/node-a/status", user="node-a")
        self.refused(403, "GET", f"{NODES}/node-b/status", user="node-a")
        self.patch(f"{NODES}/node-a", {"spec": {"providerID": "space://a"}})
        status_message = self.patch(f"{NODES}/node-b/status", status, 403)
        self.assertIn('server of node "node-a" may not', status_message["message"])
        self.patch(f"{NODES}/node-b", {"spec": {"unschedulable": True}}, 403)
        self.refused(403, "DELETE", f"{NODES}/node-a", user="node-a")
        body = {"metadata": {"name": "node-c"}}
        self.answer("POST", NODES, body, user="node-a", code=403)

    def test_look(self) -> None:
        """It reads its own Node, by name or with a field selector for the name."""
        self.answer("GET", f"{NODES}/node-a", user="node-a")
        for name in ("node-b", "nowhere"):
            self.refused(403, "GET", f"{NODES}/{name}", user="node-a")
        self.refused(403, "GET", NODES, user="node-a")
        for watch in ("", "&watch=true&timeoutSeconds=1"):
            other = f"{NODES}?fieldSelector=metadata.name%3Dnode-b{watch}"
            self.refused(403, "GET", other, user="node-a")
        own = self.answer("GET", f"{NODES}?fieldSelector=metadata.name%3Dnode-a", user="node-a")
        self.assertEqual([each["metadata"]["name"] for each in own["items"]], ["node-a"])

    def test_what_others_decide(self) -> None:
        """It changes no taints, no owners, and no labels that decide about scheduling."""
        taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
        self.patch(f"{NODES}/node-a", {"spec": {"taints": [taint]}}, 403)
        self.patch(f"{NODES}/node-a", {"spec": {"taints": [taint]}}, user="admin")
        self.patch(f"{NODES}/node-a", {"spec": {"taints": None}}, 403)
        self.patch(f"{NODES}/node-a", {"spec": {"configSource": {"configMap": {}}}}, 403)
        owner = {"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "u"}
        refusal = self.patch(f"{NODES}/node-a", {"metadata": {"ownerReferences": [owner]}}, 403)
        self.assertIn("change its ownerReferences", refusal["message"])
        for label, code in (
            ("example.com/mine", 200),
            ("kubernetes.io/hostname", 200),
            ("topology.kubernetes.io/zone", 200),
            ("kubelet.kubernetes.io/any", 200),
            ("a.node.kubernetes.io/any", 200),
            ("plain", 200),
            ("node-role.kubernetes.io/control-plane", 403),
            ("node-restriction.kubernetes.io/secret", 403),
            ("a.node-restriction.kubernetes.io/b", 403),
            ("kubernetes.io/role", 403),
            ("x.k8s.io/role", 403),
        ):
            refusal = self.patch(f"{NODES}/node-a", {"metadata": {"labels": {label: "x"}}}, code)
            if code != 200:
                self.assertIn(f"change its labels {label}", refusal["message"])
        labels = {"node-role.kubernetes.io/control-plane": ""}
        self.patch(f"{NODES}/node-a", {"metadata": {"labels": labels}}, user="admin")
        removal = {"metadata": {"labels": dict.fromkeys(labels)}}
        self.patch(f"{NODES}/node-a", removal, 403)

    def test_registering(self) -> None:
        """A node server may create its Node with taints, as a kubelet may, but no role labels."""
        self.answer("DELETE", f"{NODES}/node-a")
        labels = {"node-role.kubernetes.io/master": ""}
        body: Object = {"metadata": {"name": "node-a", "labels": labels}}
        self.answer("POST", NODES, body, user="node-a", code=403)
        body["metadata"]["labels"] = {"kubernetes.io/os": "linux"}
        body["spec"] = {"taints": [{"key": "space", "effect": "NoSchedule"}]}
        self.answer("POST", NODES, body, user="node-a", code=201)

    def test_leases(self) -> None:
        """It writes the Lease of its own name in the namespace of node heartbeats."""
        body = {"metadata": {"name": "kube-node-lease"}}
        self.answer("POST", NAMESPACES, body, code=201)
        own = {"metadata": {"name": "node-a"}, "spec": {"holderIdentity": "node-a"}}
        self.answer("POST", OWN_LEASES, own, user="node-a", code=201)
        self.answer("GET", f"{OWN_LEASES}/node-a", user="node-a")
        self.patch(f"{OWN_LEASES}/node-a", {"spec": {"leaseDurationSeconds": 40}})
        other = {"metadata": {"name": "node-b"}}
        self.answer("POST", OWN_LEASES, other, user="node-a", code=403)
        self.answer("POST", LEASES.format("default"), own, user="node-a", code=403)
        self.answer("POST", OWN_LEASES, other, user="node-b", code=201)
        self.refused(403, "GET", f"{OWN_LEASES}/node-b", user="node-a")
        self.patch(f"{OWN_LEASES}/node-b", {"spec": {"holderIdentity": "node-a"}}, 403)
        self.refused(403, "GET", OWN_LEASES, user="node-a")

    def test_events(self) -> None:
        """It creates Events about its own Node only."""
        for kind, name, code in (
            ("Node", "node-a", 201),
            ("Node", "node-b", 403),
            ("Machine", "node-a", 403),
        ):
            event = {
                "metadata": {"name": f"{kind}-{name}".lower(), "namespace": "default"},
                "involvedObject": {"kind": kind, "name": name, "uid": name},
                "reason": "Starting",
            }
            self.answer("POST", EVENTS, event, user="node-a", code=code)

    def test_elsewhere(self) -> None:
        """It reads no other kinds."""
        for path in (ALL_MACHINES, "/api/v1/secrets", "/api/v1/namespaces"):
            self.refused(403, "GET", path, user="node-a")

    def test_nobodys(self) -> None:
        """A member of the group with another name reads and writes nothing."""
        refusal = self.answer("GET", f"{NODES}/node-a", user="no-node", code=403)
        self.assertIn("is not the server of one node", refusal["message"])
        self.answer("POST", NODES, {"metadata": {"name": "x"}}, user="no-node", code=403)
