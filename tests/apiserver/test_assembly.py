"""
Tests for :mod:`twisted_exec.apiserver.assembly`: one API server with machines of every dialect.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import MERGE, PODS, APITestCase
from twisted_exec.api.dialects import DIALECTS, IRONCORE, ONMETAL, SPHERIC, Dialect
from twisted_exec.api.kinds import Object

REVIEWS = "/apis/authorization.k8s.io/v1"
CLUSTERROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


class SeveralDialectsTests(APITestCase):
    """Kinds, Pods, rights and pools of all dialects at once."""

    dialects = DIALECTS
    pods_view = True

    def setUp(self) -> None:
        super().setUp()
        for dialect in DIALECTS:
            self.make(dialect)

    def make(self, dialect: Dialect, name: str = "vm", pool: str = "p") -> Object:
        """A machine, stored."""
        spec = {dialect.class_reference: {"name": "small"}, dialect.pool_reference: {"name": pool}}
        path = dialect.workload.path("default")
        made: Object = self.answer(
            "POST", path, {"metadata": {"name": name}, "spec": spec}, code=201
        )
        return made

    def pods(self) -> dict[str, str]:
        """The API versions and kinds that Pods stand for, by their names."""
        found = {}
        for pod in self.answer("GET", PODS)["items"]:
            (owner,) = pod["metadata"]["ownerReferences"]
            self.assertEqual(owner["name"], "vm")
            found[pod["metadata"]["name"]] = f"{owner['apiVersion']} {owner['kind']}"
        return found

    def grant(self, user: str, dialect: Dialect, verb: str, resources: str) -> None:
        """A right on a dialect's machines."""
        name = f"{user}-{dialect.name}-{verb}"
        rule = {"verbs": [verb], "apiGroups": [dialect.group], "resources": [resources]}
        body = {"metadata": {"name": name}, "rules": [rule]}
        self.answer("POST", CLUSTERROLES, body, code=201)
        self.bind(user, name)

    def test_resources(self) -> None:
        """Discovery tells each dialect's kinds; two of one group share its document."""
        for dialect in DIALECTS:
            path = f"/apis/{dialect.group}/{dialect.version}"
            told = {each["name"]: each["kind"] for each in self.answer("GET", path)["resources"]}
            plural = dialect.workload.plural
            self.assertEqual(told[plural], dialect.workload.kind)
            self.assertEqual(told[f"{plural}/exec"], dialect.exec_options)
            self.assertEqual(told[dialect.pool.plural], dialect.pool.kind)
            self.assertEqual(told[dialect.workload_class.plural], dialect.workload_class.kind)
            self.assertIn(f"{plural}/log", told)

    def test_openapi(self) -> None:
        """Every group has its schemas."""
        for dialect in DIALECTS:
            path = f"/openapi/v3/apis/{dialect.group}/{dialect.version}"
            schemas = self.answer("GET", path)["components"]["schemas"]
            kinds = {name.rsplit(".", 1)[1] for name in schemas}
            wanted = {dialect.workload.kind, dialect.pool.kind, dialect.workload_class.kind}
            self.assertEqual(wanted - kinds, set())

    def test_pods(self) -> None:
        """Equal names are distinct; the first dialect's Pods have the names of their machines."""
        self.assertEqual(
            self.pods(),
            {
                "vm": "compute.ironcore.dev/v1alpha1 Machine",
                "vm.onmetal": "compute.api.onmetal.de/v1alpha1 Machine",
                "vm.spheric": "core.spheric.cloud/v1alpha1 Instance",
                "vm.spheric-machines": "core.spheric.cloud/v1alpha1 Machine",
            },
        )

    def test_pods_are_followed(self) -> None:
        """Changes of one machine change its Pod, and no other of its name."""
        watch = self.watch(f"{PODS}?watch=1&resourceVersion=0")
        self.assertEqual(len(watch.names()), len(DIALECTS))
        path = SPHERIC.workload.path("default", "vm", "status")
        self.answer("PATCH", path, {"status": {"state": "Running"}}, content_type=MERGE)
        self.assertEqual(watch.names(), [("MODIFIED", "vm.spheric")])
        self.assertEqual(self.answer("GET", f"{PODS}/vm.spheric")["status"]["phase"], "Unknown")
        self.assertEqual(self.answer("GET", f"{PODS}/vm")["status"]["phase"], "Pending")
        self.answer("POST", SPHERIC.pool.path(), {"metadata": {"name": "p"}}, code=201)
        self.assertEqual(watch.names(), [("MODIFIED", "vm.spheric")])
        self.assertEqual(self.answer("GET", f"{PODS}/vm.spheric")["status"]["phase"], "Running")
        self.answer("DELETE", SPHERIC.workload.path("default", "vm"))
        self.assertEqual(watch.names(), [("DELETED", "vm.spheric")])
        self.assertNotIn("vm.spheric", self.pods())

    def test_no_such_pod(self) -> None:
        """A dialect behind a dot that there is not, or that needs none, is part of the name."""
        for name in ("vm.ironcore", "vm.other", "vm.spheric.spheric", "vm."):
            self.refused(404, "GET", f"{PODS}/{name}")

    def test_one_pod(self) -> None:
        """To see a Pod is to see its own machine."""
        self.grant("jane", SPHERIC, "get", "instances")
        self.answer("GET", f"{PODS}/vm.spheric", user="jane")
        for name in ("vm", "vm.onmetal", "vm.spheric-machines"):
            told = self.refused(403, "GET", f"{PODS}/{name}", user="jane")
            self.assertIn("this needs get machines in API group", told)

    def test_all_pods(self) -> None:
        """To list Pods one must be allowed to list the machines of every dialect."""
        for dialect in DIALECTS:
            told = self.refused(403, "GET", PODS, user="jane")
            self.assertIn(f"list {dialect.workload.plural} in API group {dialect.group}", told)
            self.grant("jane", dialect, "list", dialect.workload.plural)
        self.assertEqual(len(self.answer("GET", PODS, user="jane")["items"]), len(DIALECTS))

    def told_rules(self) -> list[Any]:
        review = {"spec": {"namespace": "default"}}
        told = self.answer(
            "POST", f"{REVIEWS}/selfsubjectrulesreviews", review, code=201, user="jane"
        )
        rules = told["status"]["resourceRules"]
        return [rule["verbs"] for rule in rules if "pods" in rule["resources"]]

    def test_rules(self) -> None:
        """Permissions on all Pods are those on all machines."""
        for dialect in DIALECTS:
            self.assertEqual(self.told_rules(), [])
            self.grant("jane", dialect, "list", dialect.workload.plural)
        self.assertEqual(self.told_rules(), [["list"]])

    def test_view(self) -> None:
        """``view`` sees the machines of all dialects, and opens none."""
        self.bind("jane", "view")
        self.assertEqual(len(self.answer("GET", PODS, user="jane")["items"]), len(DIALECTS))
        for dialect in DIALECTS:
            self.answer("GET", dialect.workload.path("default", "vm"), user="jane")
            path = dialect.workload.path("default", "vm", "exec")
            self.refused(403, "POST", path, user="jane")

    def test_writes_to_pods(self) -> None:
        """Writes to a Pod are refused with the object to change instead."""
        told = self.refused(405, "DELETE", f"{PODS}/vm.spheric")
        self.assertIn('delete instance "vm" in API group core.spheric.cloud instead', told)
        told = self.refused(405, "DELETE", f"{PODS}/vm")
        self.assertIn('delete machine "vm" in API group compute.ironcore.dev instead', told)

    def test_poollets(self) -> None:
        """
        A poollet of one dialect has no permissions in another, even with pools of equal names.
        """
        self.make(IRONCORE, "mine", "pool-a")
        self.make(ONMETAL, "theirs", "pool-a")
        self.answer("GET", IRONCORE.workload.path("default", "mine"), user="pool-a")
        for dialect in DIALECTS[1:]:
            path = f"{dialect.workload.path()}?fieldSelector={dialect.pool_field}%3Dpool-a"
            self.refused(403, "GET", path, user="pool-a")
            self.refused(403, "GET", f"{dialect.pool.path()}/pool-a", user="pool-a")
            path = dialect.pool.path()
            self.refused(403, "POST", path, {"metadata": {"name": "pool-a"}}, user="pool-a")

    def test_consoles_of_poollets(self) -> None:
        """No poollet opens a console, whatever role it was given besides."""
        self.bind(SPHERIC.pool_identity("fleet-a"), "edit")
        self.answer("POST", PODS.replace("pods", "events"), self.event(), code=403, user="fleet-a")
        for dialect in DIALECTS:
            path = dialect.workload.path("default", "vm", "exec")
            told = self.refused(403, "POST", path, user="fleet-a")
            self.assertIn("the poollet of", told)

    def event(self) -> Object:
        """An Event of a machine that is not the poollet's."""
        return {
            "metadata": {"name": "e"},
            "involvedObject": {
                "apiVersion": IRONCORE.workload.api_version,
                "kind": "Machine",
                "namespace": "default",
                "name": "vm",
                "uid": "u",
            },
        }
