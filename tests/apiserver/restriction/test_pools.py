"""
Tests for :mod:`twisted_exec.apiserver.restriction.pools`: a poollet and what is not its own.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import (
    ALL_MACHINES,
    CLASSES,
    MACHINES,
    MERGE,
    NAMESPACES,
    POOLS,
    APITestCase,
    machine,
)
from twisted_exec.api import kinds

OWN = "fieldSelector=spec.machinePoolRef.name%3Dpool-a"
OTHER = "fieldSelector=spec.machinePoolRef.name%3Dpool-b"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
ALERTS = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/{}/consolealerts"
OWN_LEASES = LEASES.format("ironcore-machinepool-lease")


class PoolRestrictionTests(APITestCase):
    """The poollet of pool-a."""

    user = "pool-a"

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a")
        self.make_pool("pool-b")
        self.make_machine("mine", "pool-a")
        self.make_machine("theirs", "pool-b")
        self.make_machine("free", "")

    def patch(self, path: str, body: Any, code: int = 200, user: str = "") -> Any:
        return self.answer(
            "PATCH", path, body, content_type=MERGE, user=user or self.user, code=code
        )

    def test_lists_its_own(self) -> None:
        """It lists Machines only with the field selector of its own pool."""
        items = self.answer("GET", f"{ALL_MACHINES}?{OWN}", user=self.user)["items"]
        self.assertEqual([item["metadata"]["name"] for item in items], ["mine"])
        for query in ("", OTHER, "fieldSelector=spec.machinePoolRef.name%21%3Dpool-b"):
            for watch in ("", "&watch=1"):
                message = self.refused(403, "GET", f"{ALL_MACHINES}?{query}{watch}", user=self.user)
                self.assertIn("spec.machinePoolRef.name=pool-a", message)

    def test_watches_its_own(self) -> None:
        """A watch sends no event of a Machine of another pool."""
        watch = self.watch(f"{ALL_MACHINES}?watch=1&{OWN}", user=self.user)
        self.make_machine("also-theirs", "pool-b")
        self.assertEqual(watch.names(), [("ADDED", "mine")])

    def test_gets_its_own(self) -> None:
        """It gets a Machine only if that is bound to its own pool."""
        self.answer("GET", f"{MACHINES}/mine", user=self.user)
        for name in ("theirs", "free"):
            self.refused(404, "GET", f"{MACHINES}/{name}", user=self.user)
            self.refused(404, "GET", f"{MACHINES}/{name}/status", user=self.user)

    def test_changes_its_own(self) -> None:
        """It writes the status, finalizers and annotations of its Machines."""
        self.patch(f"{MACHINES}/mine/status", {"status": {"state": "Running"}})
        self.patch(
            f"{MACHINES}/mine", {"metadata": {"finalizers": ["a/b"], "annotations": {"x": "y"}}}
        )

    def test_leaves_the_rest(self) -> None:
        """It writes no other fields of them, and no Machine of another pool."""
        for body in (
            {"spec": {"power": "Off"}},
            {"metadata": {"labels": {"a": "b"}}},
            {
                "metadata": {
                    "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]
                }
            },
        ):
            message = self.patch(f"{MACHINES}/mine", body, 403)["message"]
            self.assertEqual(
                message, 'the poollet of machine pool "pool-a" may not update machines "mine"'
            )
        for name in ("theirs", "free"):
            self.patch(f"{MACHINES}/{name}", {"metadata": {"annotations": {"x": "y"}}}, 404)
            self.patch(f"{MACHINES}/{name}/status", {"status": {"state": "Running"}}, 404)
            # Not even to make it its own.
            self.patch(f"{MACHINES}/{name}", {"spec": {"machinePoolRef": {"name": "pool-a"}}}, 404)

    def test_its_pool(self) -> None:
        """It creates, writes and deletes its own MachinePool, and no other."""
        self.patch(f"{POOLS}/pool-a/status", {"status": {"state": "Ready"}})
        self.patch(f"{POOLS}/pool-b/status", {"status": {"state": "Ready"}}, 403)
        self.patch(f"{POOLS}/pool-b", {"metadata": {"labels": {"a": "b"}}}, 403)
        self.refused(403, "DELETE", f"{POOLS}/pool-b", user=self.user)
        self.refused(403, "POST", POOLS, {"metadata": {"name": "pool-c"}}, user=self.user)
        self.refused(403, "POST", POOLS, {"metadata": {"generateName": "pool-a"}}, user=self.user)
        self.answer("DELETE", f"{POOLS}/pool-a", user=self.user)
        self.answer("POST", POOLS, {"metadata": {"name": "pool-a"}}, user=self.user, code=201)

    def namespace(self, name: str) -> None:
        self.answer("POST", NAMESPACES, {"metadata": {"name": name}}, code=201)

    def test_leases(self) -> None:
        """It writes the Lease of its own name in the namespace of pool heartbeats."""
        own = {"metadata": {"name": "pool-a"}, "spec": {"holderIdentity": "x"}}
        self.namespace("ironcore-machinepool-lease")
        self.answer("POST", OWN_LEASES, own, user=self.user, code=201)
        self.refused(403, "POST", OWN_LEASES, {"metadata": {"name": "pool-b"}}, user=self.user)

    def test_leases_of_others(self) -> None:
        """It writes no Lease of the same name in other namespaces: of a Node, or of a leader election."""
        own = {"metadata": {"name": "pool-a"}, "spec": {"holderIdentity": "x"}}
        steal = {"spec": {"holderIdentity": "me"}}
        self.namespace("kube-node-lease")
        for namespace in ("kube-system", "kube-node-lease", "default"):
            leases = LEASES.format(namespace)
            self.refused(403, "POST", leases, own, user=self.user)
            self.answer("POST", leases, own, user="admin", code=201)
            self.answer(
                "PATCH", f"{leases}/pool-a", steal, user=self.user, content_type=MERGE, code=403
            )

    def test_console_alerts(self) -> None:
        """It sees the ConsoleAlerts of its Machines' namespaces, and writes its own entry of their status and Events."""
        self.namespace("elsewhere")
        spec = {"spec": {"presets": ["linux"]}}
        for namespace in ("default", "elsewhere"):
            body = {"metadata": {"name": "linux"}, **spec}
            self.answer("POST", ALERTS.format(namespace), body, code=201)
        group = "/apis/console.twisted-exec.dev/v1alpha1/consolealerts"
        listed = self.answer("GET", group, user=self.user)["items"]
        self.assertEqual([each["metadata"]["namespace"] for each in listed], ["default"])
        self.refused(403, "GET", f"{ALERTS.format('elsewhere')}/linux", user=self.user)
        own, other = (
            {"resource": "machinepools.compute.ironcore.dev", "name": name, "machines": 1}
            for name in ("pool-a", "pool-b")
        )
        path = f"{ALERTS.format('default')}/linux"
        self.patch(f"{path}/status", {"status": {"pools": [own]}})
        self.patch(f"{path}/status", {"status": {"pools": [own, other]}}, 403)
        self.patch(f"{path}/status", {"status": {"pools": [other, own]}}, user="pool-b", code=200)
        self.patch(f"{path}/status", {"status": {"pools": [own]}}, 403)
        self.patch(f"{path}/status", {"status": {"pools": [other]}})
        self.patch(path, {"metadata": {"labels": {"a": "b"}}}, 403)
        self.refused(403, "DELETE", path, user=self.user)
        elsewhere = f"{ALERTS.format('elsewhere')}/linux/status"
        self.patch(elsewhere, {"status": {"pools": [own]}}, 403)
        for namespace, code in (("default", 201), ("elsewhere", 403)):
            alert = self.answer("GET", f"{ALERTS.format(namespace)}/linux", user="admin")
            about = {key: alert[key] for key in ("apiVersion", "kind")}
            about |= {key: alert["metadata"][key] for key in ("namespace", "name", "uid")}
            event = {
                "metadata": {"generateName": "linux."},
                "involvedObject": about,
                "reason": "AlertDegraded",
                "type": "Warning",
            }
            events = f"/api/v1/namespaces/{namespace}/events"
            self.answer("POST", events, event, user=self.user, code=code)

    def test_console_recordings(self) -> None:
        """It sees the ConsoleRecordings of its pool, and writes nothing but their status and Events about them."""
        resource = kinds.CONSOLERECORDINGS.resource
        for pool in ("pool-a", "pool-b"):
            obj: dict[str, Any] = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": f"of-{pool}", "namespace": "default", "uid": pool},
                "spec": {
                    "machine": "vm",
                    "machineResource": "machines.compute.ironcore.dev",
                    "machineUID": "u",
                    "pool": pool,
                    "input": "none",
                    "retentionDays": 1,
                },
            }
            obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            self.successResultOf(self.storage.create(resource, obj))
        group = "/apis/console.twisted-exec.dev/v1alpha1"
        own, other = (
            f"{group}/namespaces/default/consolerecordings/of-{pool}"
            for pool in ("pool-a", "pool-b")
        )
        watch = self.watch(f"{group}/consolerecordings?watch=1", user=self.user)
        self.assertEqual(watch.names(), [("ADDED", "of-pool-a")])
        (listed,) = self.answer("GET", f"{group}/consolerecordings", user=self.user)["items"]
        self.assertEqual(listed["metadata"]["name"], "of-pool-a")
        self.refused(404, "GET", other, user=self.user)
        status = {"status": {"phase": "Recording"}}
        self.patch(f"{own}/status", status)
        self.patch(f"{other}/status", status, 404)
        self.patch(own, {"spec": {"ended": True}}, 403)
        self.refused(403, "GET", f"{own}/content", user=self.user)
        self.refused(403, "DELETE", own, user=self.user)
        events = "/api/v1/namespaces/default/events"
        for name, uid, code in (
            ("of-pool-a", "pool-a", 201),
            ("of-pool-b", "pool-b", 403),
            ("of-pool-a", "pool-b", 403),
            ("gone", "pool-a", 403),
        ):
            about = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": "default",
                "name": name,
                "uid": uid,
            }
            event = {
                "metadata": {"name": f"{name}-{uid}", "namespace": "default"},
                "involvedObject": about,
                "reason": "RecordingStarted",
            }
            self.answer("POST", events, event, user=self.user, code=code)

    def test_console_policies(self) -> None:
        """It lists and watches ConsolePolicies, for users who connect to it directly, and changes none."""
        group = "/apis/console.twisted-exec.dev/v1alpha1"
        policies = f"{group}/namespaces/default/consolepolicies"
        watch = self.watch(f"{group}/consolepolicies?watch=1", user=self.user)
        body = {"metadata": {"name": "p"}, "spec": {"people": 2}}
        self.answer("POST", policies, body, code=201)
        self.assertEqual(watch.names(), [("ADDED", "p")])
        for path in (f"{group}/consolepolicies", policies):
            self.assertEqual(len(self.answer("GET", path, user=self.user)["items"]), 1)
        self.refused(403, "DELETE", f"{policies}/p", user=self.user)
        self.patch(f"{policies}/p", {"spec": {"people": 1}}, 403)

    def test_reviews(self) -> None:
        """It may create TokenReviews and SubjectAccessReviews."""
        token = {"spec": {"token": "jane"}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = self.answer("POST", path, token, user=self.user, code=201)
        self.assertEqual(answer["status"]["user"]["username"], "jane")

    def test_no_consoles(self) -> None:
        """It opens no console, whatever roles allow."""
        self.refused(403, "POST", f"{MACHINES}/mine/exec", user=self.user)
        self.everything()
        message = self.refused(403, "POST", f"{MACHINES}/mine/exec", user=self.user)
        self.assertIn("may not open the console of machine mine", message)

    def everything(self) -> None:
        """Bind all poollets to cluster-admin."""
        body = {
            "metadata": {"name": "too-much"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "name": "compute.ironcore.dev:system:machinepools"}],
        }
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        self.answer("POST", path, body, code=201)

    def test_holds_without_rbac(self) -> None:
        """The restriction holds whatever roles allow."""
        self.everything()
        self.refused(403, "POST", MACHINES, machine("new", "pool-a"), user=self.user)
        self.refused(403, "DELETE", f"{MACHINES}/mine", user=self.user)
        self.refused(
            403,
            "DELETE",
            f"{ALL_MACHINES.replace('machines', 'namespaces/default/machines')}",
            user=self.user,
        )
        self.refused(
            403,
            "POST",
            CLASSES,
            {"metadata": {"name": "c"}, "capabilities": {"cpu": 1, "memory": 1}},
            user=self.user,
        )
        self.refused(403, "POST", NAMESPACES, {"metadata": {"name": "n"}}, user=self.user)
        self.refused(403, "DELETE", f"{POOLS}/pool-b", user=self.user)
        role = {"metadata": {"name": "r"}, "rules": []}
        self.refused(
            403, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role, user=self.user
        )

    def test_half_an_identity(self) -> None:
        """
        A poollet's name without the group, or the group without such a name, reads and writes
        nothing.
        """
        self.everything()
        self.bind("compute.ironcore.dev:system:machinepool:pool-a".replace(":", "-"), "admin")
        for user in ("no-pool", "no-group"):
            self.refused(403, "GET", f"{ALL_MACHINES}?{OWN}", user=user)
            self.patch(f"{POOLS}/pool-a", {"metadata": {"labels": {"a": "b"}}}, 403, user=user)
