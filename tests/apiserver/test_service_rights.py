"""
Rights as Kubernetes has them, asked of a whole server: names, subresources, paths, acting as
others.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import MACHINES, MERGE, RBAC, APITestCase, machine

AUTHN = "authentication.k8s.io"
REVIEWS = f"/apis/{AUTHN}/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
COMPUTE = "compute.ironcore.dev"


class RightsCase(APITestCase):
    """Jane has what a test gives her."""

    def give(self, *rules: dict[str, Any], everywhere: bool = True) -> None:
        """Give jane these rules, by a role of her own."""
        scope = "" if everywhere else "/namespaces/default"
        kind = "ClusterRole" if everywhere else "Role"
        plural = kind.lower()
        role = {"metadata": {"name": "jane"}, "rules": list(rules)}
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {"kind": kind, "name": "jane"},
            "subjects": [{"kind": "User", "name": "jane"}],
        }
        self.answer("POST", f"{RBAC}{scope}/{plural}s", role, code=201)
        self.answer("POST", f"{RBAC}{scope}/{plural}bindings", binding, code=201)


def rule(verbs: str, resources: str, group: str = COMPUTE, names: str = "") -> dict[str, Any]:
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**found, "resourceNames": names.split()} if names else found


class NameTests(RightsCase):
    """Rules for some names."""

    def setUp(self) -> None:
        super().setUp()
        self.make_machine("vm-1")
        self.make_machine("vm-2")
        self.give(rule("*", "machines", names="vm-1"), everywhere=False)

    def test_one(self) -> None:
        """They are for these, whatever is done with them."""
        self.answer("GET", f"{MACHINES}/vm-1", user="jane")
        labels = {"metadata": {"labels": {"a": "b"}}}
        self.answer("PATCH", f"{MACHINES}/vm-1", labels, user="jane", content_type=MERGE)
        self.refused(403, "GET", f"{MACHINES}/vm-2", user="jane")
        self.refused(403, "DELETE", f"{MACHINES}/vm-2", user="jane")
        self.answer("DELETE", f"{MACHINES}/vm-1", user="jane")

    def test_lists(self) -> None:
        """A list or a watch is allowed when it selects such a name, and gives that one only."""
        self.refused(403, "GET", MACHINES, user="jane")
        self.refused(403, "GET", f"{MACHINES}?watch=1", user="jane")
        chosen = "fieldSelector=metadata.name"
        listed = self.answer("GET", f"{MACHINES}?{chosen}=vm-1", user="jane")
        self.assertEqual([each["metadata"]["name"] for each in listed["items"]], ["vm-1"])
        watching = self.watch(f"{MACHINES}?watch=1&{chosen}%3Dvm-1", user="jane")
        self.make_machine("vm-3")
        self.assertEqual(watching.names(), [("ADDED", "vm-1")])
        for other in (f"{chosen}=vm-2", f"{chosen}!=vm-2", "fieldSelector=", "labelSelector=a"):
            self.refused(403, "GET", f"{MACHINES}?{other}", user="jane")

    def test_create(self) -> None:
        """Creates and collections have no name, so rules by name do not apply."""
        self.refused(403, "POST", MACHINES, machine("vm-1"), user="jane")
        self.refused(403, "DELETE", MACHINES, user="jane")
        self.refused(403, "DELETE", f"{MACHINES}?fieldSelector=metadata.name=vm-1", user="jane")


class SubresourceTests(RightsCase):
    """Rules for subresources, and for paths."""

    def may(self, resource: str, verb: str = "create") -> bool:
        """Return whether jane is allowed, by a review."""
        plural, _, subresource = resource.partition("/")
        asked = {"verb": verb, "group": COMPUTE, "resource": plural, "subresource": subresource}
        spec = {"user": "jane", "resourceAttributes": {**asked, "namespace": "default"}}
        return bool(self.answer("POST", ACCESS, {"spec": spec}, code=201)["status"]["allowed"])

    def test_every_exec(self) -> None:
        """``*/exec`` is exec of everything, and ``machines/*`` nothing."""
        self.give(rule("create", "*/exec machines/*"))
        self.assertTrue(self.may("machines/exec"))
        for other in ("machines", "machines/log", "machines/status", "exec"):
            self.assertFalse(self.may(other), other)
        self.assertFalse(self.may("machines/exec", "get"))

    def test_paths(self) -> None:
        """Paths are allowed by the whole, or by what they begin with."""
        self.refused(403, "GET", "/metrics", user="jane")
        self.give({"verbs": ["get"], "nonResourceURLs": ["/metr*"]})
        self.assertEqual(self.ask("GET", "/metrics", user="jane").code, 200)
        self.assertFalse(self.may("machines", "get"))


class ActingTests(RightsCase):
    """Acting as others."""

    def who(self, **headers: str) -> dict[str, Any]:
        told = [(f"Impersonate-{name.replace('_', '-')}", value) for name, value in headers.items()]
        answer = self.answer("POST", REVIEWS, {}, user="jane", headers=told, code=201)
        found: dict[str, Any] = answer["status"]["userInfo"]
        return found

    def may_not(self, kind: str, **headers: str) -> None:
        told = [(f"Impersonate-{name.replace('_', '-')}", value) for name, value in headers.items()]
        why = self.refused(403, "POST", REVIEWS, {}, user="jane", headers=told)
        self.assertIn(f'User "jane" cannot impersonate resource "{kind}"', why)

    def test_each_part(self) -> None:
        """User, groups, uid and extras are each a right of their own."""
        self.give(
            rule("impersonate", "users", "", "bob"),
            rule("impersonate", "groups", "", "dev"),
            rule("impersonate", "uids", AUTHN, "7"),
            rule("impersonate", "userextras/scopes", AUTHN, "view"),
        )
        told = self.who(User="bob", Group="dev", Uid="7", Extra_Scopes="view")
        self.assertEqual((told["username"], told["uid"]), ("bob", "7"))
        self.assertEqual(told["groups"], ["dev", "system:authenticated"])
        self.assertEqual(told["extra"], {"scopes": ["view"]})
        self.may_not("users", User="eve")
        self.may_not("groups", User="bob", Group="system:masters")
        self.may_not("uids", User="bob", Uid="8")
        self.may_not("userextras/scopes", User="bob", Extra_Scopes="edit")
        self.may_not("userextras/team", User="bob", Extra_Team="view")

    def test_accounts(self) -> None:
        """
        Permission to impersonate users does not include ServiceAccounts, and the other way round.
        """
        robot = "system:serviceaccount:default:robot"
        self.give(rule("impersonate", "serviceaccounts", "", "robot"), everywhere=False)
        told = self.who(User=robot)
        self.assertIn("system:serviceaccounts:default", told["groups"])
        self.may_not("serviceaccounts", User="system:serviceaccount:kube-system:robot")
        self.may_not("users", User="robot")

    def test_bound_accounts(self) -> None:
        """A ServiceAccount is bound by its namespace and name; by default that of the binding."""
        self.give(rule("impersonate", "serviceaccounts", ""))
        binding = {
            "metadata": {"name": "robot"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        }
        self.answer("POST", f"{RBAC}/namespaces/default/rolebindings", binding, code=201)
        for namespace, code in (("default", 200), ("kube-system", 403)):
            acting = [("Impersonate-User", f"system:serviceaccount:{namespace}:robot")]
            self.answer("GET", MACHINES, user="jane", headers=acting, code=code)
