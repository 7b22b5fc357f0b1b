"""
Tests for :mod:`twisted_exec.apiserver.controllers.role_aggregation`, within an API server.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EVENTS, MERGE, RBAC, APITestCase
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import CLUSTERROLES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers import role_aggregation
from twisted_exec.apiserver.controllers.role_aggregation import NOT_AGGREGATED, RoleAggregation
from twisted_exec.apiserver.controllers.system_objects import create_system_objects
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.storage.interfaces import Listing
from twisted_exec.storage.memory import MemoryStorage

ROLES = f"{RBAC}/clusterroles"


def rules_on(resource: str) -> list[Object]:
    return [{"verbs": ["get"], "apiGroups": ["x"], "resources": [resource]}]


class FailingStorage(MemoryStorage):
    """A store that refuses all reads while ``fails`` is set."""

    fails = False

    def list(self, resource: Resource, namespace: str = "", **options: Any) -> Deferred[Listing]:
        if self.fails:
            return fail(ServiceUnavailable("etcd cannot be reached"))
        return super().list(resource, namespace, **options)


class StoreFailsTests(SynchronousTestCase):
    """Aggregation over a store that fails for some time."""

    def test_retries(self) -> None:
        """A failed run logs one line without a traceback, and is repeated."""
        storage, clock = FailingStorage(), Clock()
        verbs = Verbs(storage, [], lambda: 0.0)
        aggregation = RoleAggregation(storage, verbs, clock, lambda: 0.0)
        storage.fails = True
        with capturedLogs() as logged:
            aggregation.startService()
        self.addCleanup(aggregation.stopService)
        texts = [formatEvent(event) for event in logged]
        text = "cannot write the rules of aggregated cluster roles: etcd cannot be reached"
        self.assertEqual(texts, [text])
        making = create_system_objects(storage, verbs, bootstrap_objects([DEFAULT]))
        self.successResultOf(Deferred.fromCoroutine(making))
        storage.fails = False
        clock.advance(10)
        role = self.successResultOf(storage.get(CLUSTERROLES.resource, "", "view"))
        self.assertTrue(role["rules"])


class RoleAggregationTests(APITestCase):
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

    def test_one_fails(self) -> None:
        """A role whose rules cannot be made has an Event, and holds up no other."""
        plan_rules = role_aggregation.plan_rules

        def failing(role: Object, *more: Any) -> Object | None:
            if role["metadata"]["name"] == "broken":
                raise ZeroDivisionError
            return plan_rules(role, *more)

        self.patch(role_aggregation, "plan_rules", failing)
        self.gathering("broken", "part-of-all")
        self.gathering("other", "part-of-all")
        self.make("one", rules=rules_on("a"), labels={"part-of-all": "true"})
        self.clock.advance(120)
        self.assertEqual((self.resources("broken"), self.resources("other")), ([], ["a"]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual(event["involvedObject"]["name"], "broken")
        self.assertIn("its log says more", event["message"])

    def test_too_much(self) -> None:
        """Rules that together are larger than any object may be are not shown, and still give."""
        self.gathering("all", "part-of-all")
        self.make("small", rules=rules_on("a"), labels={"part-of-all": "true"})
        for name in ("one", "two", "three"):
            large = [{**rules_on(name)[0], "resourceNames": [name * 100] * 1300}]
            self.make(name, rules=large, labels={"part-of-all": "true"})
        stored = self.stored(CLUSTERROLES, "all")
        self.assertLess(len(json_of(stored)), 1 << 20)
        self.clock.advance(120)
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual((event["reason"], event["count"]), (NOT_AGGREGATED, 1))
        self.assertEqual(event["involvedObject"]["name"], "all")
        self.assertIn("a", self.resources("all"))
        self.answer("DELETE", f"{ROLES}/one")
        self.answer("DELETE", f"{ROLES}/two")
        self.assertEqual(self.resources("all"), ["a", "three"])
