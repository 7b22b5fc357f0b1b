"""
Tests for :mod:`twisted_exec.apiserver.identity.console_rules`: what reviews tell about consoles.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.consoles.policies_support import COMPUTE, PolicyTestCase
from tests.apiserver.support import RBAC
from twisted_exec.api.kinds import Object

REVIEWS = "/apis/authorization.k8s.io/v1"
GOLD = {"matchLabels": {"tier": "gold"}}
RIGHTS = {"observe", "drive", "takeover"}


class ReviewCase(PolicyTestCase):
    """Machines are Pods; old may only ``create machines/exec``, and eve may only observe."""

    pods_view = True

    def setUp(self) -> None:
        super().setUp()
        self.give("old", "create", "machines/exec")
        self.give("eve", "observe", "machines/console")
        self.give("dora", "drive", "machines/console")

    def give(self, user: str, verb: str, resource: str, *names: str) -> None:
        rule: Object = {"verbs": [verb], "apiGroups": [COMPUTE], "resources": [resource]}
        if names:
            rule["resourceNames"] = list(names)
        role = {"metadata": {"name": user}, "rules": [rule]}
        self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
        self.bind(user, user)

    def ask_as(self, user: str, path: str, body: Object) -> Any:
        """Send a request of a user, as ``kubectl --as`` does."""
        headers = [("Impersonate-User", user)] if user != "admin" else []
        return self.answer("POST", path, body, headers=headers, code=201)

    def may(self, user: str, verb: str, subresource: str, name: str = "", **more: str) -> bool:
        """Return the answer to a user's question about pods."""
        asked = {"namespace": "default", "resource": "pods", "verb": verb, "name": name, **more}
        spec = {"resourceAttributes": {**asked, "subresource": subresource}}
        path = f"{REVIEWS}/selfsubjectaccessreviews"
        review = self.ask_as(user, path, {"spec": spec})
        return bool(review["status"]["allowed"])

    def review(self, user: str) -> Any:
        """Return a user's rules as ``kubectl auth can-i --list`` gets them."""
        spec = {"spec": {"namespace": "default"}}
        path = f"{REVIEWS}/selfsubjectrulesreviews"
        return self.ask_as(user, path, spec)["status"]

    def listed(self, user: str, resource: str) -> set[str]:
        """Return the listed verbs for a resource."""
        rules = self.review(user)["resourceRules"]
        return {verb for each in rules if resource in each["resources"] for verb in each["verbs"]}


class CompatibleTests(ReviewCase):
    """``create machines/exec`` includes the verbs."""

    def test_open(self) -> None:
        """Users who may type at the console may open the Pod's."""
        for user in ("old", "dora", "jane"):
            for subresource in ("exec", "attach"):
                for name in ("vm-1", ""):
                    for verb in ("create", "get"):
                        self.assertTrue(self.may(user, verb, subresource, name), user)
            self.assertTrue(self.may(user, "create", "", "exec"))
        for user in ("carl", "eve"):
            self.assertFalse(self.may(user, "create", "exec", "vm-1"), user)
        self.assertTrue(self.may("eve", "observe", "console", "vm-1"))

    def test_rules(self) -> None:
        """The list shows the included verbs, and what Pods follow from them."""
        self.assertEqual(self.listed("old", "machines/console"), RIGHTS)
        self.assertEqual(self.listed("old", "pods/console"), RIGHTS)
        self.assertEqual(self.listed("eve", "pods/exec"), set())
        for user in ("old", "dora"):
            for resource in ("pods/exec", "pods/attach"):
                self.assertEqual(self.listed(user, resource), {"create", "get"})
        self.assertEqual(self.listed("eve", "pods/console"), {"observe"})
        self.assertFalse(self.review("old")["incomplete"])

    def test_names(self) -> None:
        """Rules for some machines are rules for some Pods."""
        self.give("ned", "create", "machines/exec", "vm-1")
        rules = self.review("ned")["resourceRules"]
        of_consoles = [
            each for each in rules if {"pods/exec", "pods/console"} & {*each["resources"]}
        ]
        self.assertEqual([each["resourceNames"] for each in of_consoles], [["vm-1"]] * 2)


class StrictTests(ReviewCase):
    """Only the verbs themselves count."""

    def settings(self) -> dict[str, Any]:
        return {"strict_verbs": True}

    def test_open(self) -> None:
        """``create machines/exec`` opens no Pod; the verbs do."""
        for user, allowed in (("old", False), ("eve", False), ("dora", True), ("jane", True)):
            for name in ("vm-1", ""):
                for verb in ("create", "get"):
                    self.assertIs(self.may(user, verb, "exec", name), allowed, (user, name))
            self.assertIs(self.may(user, "create", "", "exec"), allowed)

    def test_rules(self) -> None:
        """The list shows nothing that would be refused."""
        for resource in ("machines/console", "pods/console", "pods/exec", "pods/attach"):
            self.assertEqual(self.listed("old", resource), set(), resource)
        self.assertEqual(self.listed("dora", "pods/exec"), {"create", "get"})
        self.assertFalse(self.review("old")["incomplete"])

    def test_everything(self) -> None:
        """Roles for everything include the verbs."""
        self.assertTrue(self.may("admin", "create", "exec", "vm-1"))
        self.assertEqual(self.listed("admin", "*"), {"*"})


class PolicyTests(ReviewCase):
    """ConsolePolicies make the verbs strict."""

    def test_some(self) -> None:
        """For some machines: a question about one is exact, and the list is incomplete."""
        self.make_policy(selector=GOLD, verbs="Strict")
        self.assertTrue(self.may("old", "create", "exec", "vm-1"))
        self.assertTrue(self.may("old", "drive", "console", "vm-1"))
        self.label(tier="gold")
        self.assertFalse(self.may("old", "create", "exec", "vm-1"))
        self.assertFalse(self.may("old", "drive", "console", "vm-1"))
        self.assertTrue(self.may("dora", "create", "exec", "vm-1"))
        # All machines of the namespace are meant.
        self.assertFalse(self.may("old", "create", "exec"))
        self.assertFalse(self.may("old", "create", "", "exec"))
        self.assertTrue(self.may("dora", "create", "exec"))
        self.assertFalse(self.may("old", "drive", "console", group=COMPUTE, resource="machines"))
        self.assertEqual(self.listed("old", "pods/exec"), set())
        review = self.review("old")
        self.assertTrue(review["incomplete"])
        self.assertIn(
            'ConsolePolicy "default/p" has strict verbs for some machines',
            review["evaluationError"],
        )
        self.assertIn("can-i drive machines/NAME --subresource=console", review["evaluationError"])

    def test_all(self) -> None:
        """For all machines of the namespace the list is complete."""
        self.make_policy(verbs="Strict")
        self.assertFalse(self.may("old", "create", "exec", "vm-1"))
        self.assertEqual(self.listed("old", "pods/exec"), set())
        self.assertEqual(self.listed("dora", "pods/exec"), {"create", "get"})
        self.assertEqual(self.listed("eve", "pods/console"), {"observe"})
        review = self.review("old")
        self.assertEqual((review["incomplete"], review.get("evaluationError")), (False, None))

    def test_elsewhere(self) -> None:
        """Policies of other namespaces, and other conditions, change nothing."""
        self.make_policy(reason="Required")
        self.assertTrue(self.may("old", "create", "exec"))
        self.assertFalse(self.review("old")["incomplete"])
        self.assertEqual(self.listed("old", "pods/console"), RIGHTS)
