"""
Tests for :mod:`twisted_exec.apiserver.controllers.role_aggregation`, within an API server.
"""

from __future__ import annotations

from tests.apiserver.support import MERGE, RBAC, APITestCase
from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import CLUSTERROLES, Object

ROLES = f"{RBAC}/clusterroles"


def rules_on(resource: str) -> list[Object]:
    return [{"verbs": ["get"], "apiGroups": ["x"], "resources": [resource]}]


class GatheredRulesTests(APITestCase):
    """Tests for :class:`RoleAggregation`."""

    def make(self, name: str, **more: object) -> None:
        labels = more.pop("labels", {})
        body = {"metadata": {"name": name, "labels": labels}, **more}
        self.answer("POST", ROLES, body, code=201)

    def gathering(self, name: str, label: str, **labels: str) -> None:
        selector = {"matchLabels": {label: "true"}}
        rule = {"clusterRoleSelectors": [selector]}
        self.make(name, aggregationRule=rule, labels=labels)

    def resources(self, name: str) -> list[str]:
        rules = self.answer("GET", f"{ROLES}/{name}").get("rules", [])
        return sorted(resource for rule in rules for resource in rule["resources"])

    def test_from_the_start(self) -> None:
        """The roles that everyone knows show what they give."""
        self.assertIn("machines", self.resources("view"))
        self.assertIn("machines/exec", self.resources("edit"))
        self.assertIn("rolebindings", self.resources("admin"))

    def test_followed(self) -> None:
        """The rules follow changes of the aggregated roles."""
        self.gathering("all", "part-of-all")
        self.assertEqual(self.resources("all"), [])
        self.make("one", rules=rules_on("a"), labels={"part-of-all": "true"})
        self.make("two", rules=rules_on("b"), labels={"part-of-all": "true"})
        self.make("other", rules=rules_on("c"))
        self.assertEqual(self.resources("all"), ["a", "b"])
        self.answer("PATCH", f"{ROLES}/one", {"rules": rules_on("d")}, content_type=MERGE)
        self.assertEqual(self.resources("all"), ["b", "d"])
        self.answer("DELETE", f"{ROLES}/two")
        self.assertEqual(self.resources("all"), ["d"])

    def test_circles(self) -> None:
        """Roles that gather each other come to rest."""
        self.gathering("x", "in-x", **{"in-y": "true"})
        self.gathering("y", "in-y", **{"in-x": "true"})
        self.make("one", rules=rules_on("a"), labels={"in-y": "true"})
        self.assertEqual((self.resources("x"), self.resources("y")), (["a"], ["a"]))
        version = self.storage.version()
        self.clock.pump([1.0] * 5)
        self.assertEqual(self.storage.version(), version)

    def test_written_by_hand(self) -> None:
        """Manual changes are overwritten."""
        self.answer("PATCH", f"{ROLES}/view", {"rules": rules_on("a")}, content_type=MERGE)
        self.assertNotIn("a", self.resources("view"))

    def test_too_much(self) -> None:
        """Rules that together are larger than any object may be are not shown, and still give."""
        self.gathering("all", "part-of-all")
        self.make("small", rules=rules_on("a"), labels={"part-of-all": "true"})
        for name in ("one", "two", "three"):
            large = [{**rules_on(name)[0], "resourceNames": [name * 100] * 1300}]
            self.make(name, rules=large, labels={"part-of-all": "true"})
        stored = self.stored(CLUSTERROLES, "all")
        self.assertLess(len(json_of(stored)), 1 << 20)
        self.assertIn("a", self.resources("all"))
        self.answer("DELETE", f"{ROLES}/one")
        self.answer("DELETE", f"{ROLES}/two")
        self.assertEqual(self.resources("all"), ["a", "three"])
