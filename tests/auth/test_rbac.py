"""
Tests for :mod:`twisted_exec.auth.rbac` and :mod:`~twisted_exec.auth.rbac`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from twisted_exec.api.dialects import DIALECTS, IRONCORE
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rbac import IRuleSource, RBACAuthorizer, RBACObjects
from twisted_exec.auth.rules import ALL_RULES, Attributes, Rule

GROUP = IRONCORE.group
AUTHENTICATED = "system:authenticated"


def role(name: str, *rules: dict[str, Any], namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": more.pop("labels", {})}
    return {"metadata": metadata, "rules": list(rules), **more}


def allow(verbs: str, resources: str, **more: Any) -> dict[str, Any]:
    return {
        "verbs": verbs.split(),
        "apiGroups": [GROUP],
        "resources": resources.split(),
        **more,
    }


def binding(
    name: str, reference: str, *subjects: dict[str, str], namespace: str = ""
) -> dict[str, Any]:
    kind, _, referred = reference.partition("/")
    return {
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": kind, "name": referred},
        "subjects": list(subjects),
    }


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


@implementer(IRuleSource)
class Source:
    """RBAC objects in memory."""

    def __init__(self, objects: Any) -> None:
        self.objects = objects

    def snapshot(self) -> Deferred[RBACObjects]:
        if isinstance(self.objects, Exception):
            return fail(self.objects)
        return succeed(self.objects)


OBJECTS = bootstrap_objects(DIALECTS)
BOOTSTRAPPED = RBACObjects(
    cluster_roles=[each for each in OBJECTS if each["kind"] == "ClusterRole"],
    cluster_role_bindings=[each for each in OBJECTS if each["kind"] == "ClusterRoleBinding"],
)


class RBACCase(SynchronousTestCase):
    """An authorizer over objects in memory."""

    def use(self, objects: Any) -> None:
        self.source = Source(objects)
        self.authorizer = RBACAuthorizer(self.source)

    def may(
        self,
        who: User | str,
        what: str,
        *,
        namespace: str = "default",
        name: str = "vm-1",
        api_group: str = GROUP,
    ) -> bool:
        asker = who if isinstance(who, User) else User(who, (AUTHENTICATED,))
        verb, target = what.split()
        if target.startswith("/"):
            asked = Attributes(asker, verb, path=target)
        else:
            resource, _, subresource = target.partition("/")
            asked = Attributes(asker, verb, api_group, "v1", resource, subresource, namespace, name)
        return self.successResultOf(self.authorizer.authorize(asked)).allowed


class BindingTests(RBACCase):
    """From bindings to rules."""

    def setUp(self) -> None:
        self.use(
            RBACObjects(
                cluster_roles=[
                    role("console", allow("create", "machines/exec")),
                    role("reader", {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}),
                ],
                roles=[
                    role("one", allow("get", "machines", resourceNames=["vm-1"]), namespace="a")
                ],
                cluster_role_bindings=[
                    binding("all", "ClusterRole/console", user("root"), group("ops")),
                    binding("paths", "ClusterRole/reader", user("prometheus")),
                    binding("wrong", "Role/one", user("mallory")),
                    binding("dangling", "ClusterRole/nowhere", user("mallory")),
                ],
                role_bindings=[
                    binding("here", "ClusterRole/console", user("jane"), namespace="a"),
                    binding("named", "Role/one", user("jane"), namespace="a"),
                    binding("elsewhere", "Role/one", user("joe"), namespace="b"),
                    binding("paths", "ClusterRole/reader", user("jane"), namespace="a"),
                    binding(
                        "robots",
                        "ClusterRole/console",
                        {"kind": "ServiceAccount", "name": "bot", "namespace": "robots"},
                        {"kind": "ServiceAccount", "name": "local"},
                        namespace="a",
                    ),
                ],
            )
        )

    def test_door(self) -> None:
        """The class implements IAuthorizer."""
        verifyObject(IAuthorizer, self.authorizer)

    def test_cluster(self) -> None:
        """A cluster role binding holds in every namespace and in none."""
        for namespace in ("a", "b", ""):
            self.assertTrue(self.may("root", "create machines/exec", namespace=namespace))

    def test_group(self) -> None:
        """A group's binding holds for its members only."""
        self.assertTrue(self.may(User("x", ("ops",)), "create machines/exec"))
        self.assertFalse(self.may(User("ops", ("x",)), "create machines/exec"))
        self.assertFalse(self.may(User("x", ("root",)), "create machines/exec"))

    def test_namespace(self) -> None:
        """A role binding holds in its namespace only, whatever role it names."""
        self.assertTrue(self.may("jane", "create machines/exec", namespace="a"))
        self.assertFalse(self.may("jane", "create machines/exec", namespace="b"))
        self.assertFalse(self.may("jane", "create machines/exec", namespace=""))

    def test_role_of_another_namespace(self) -> None:
        """A role is looked for in the binding's namespace."""
        self.assertTrue(self.may("jane", "get machines", namespace="a"))
        self.assertFalse(self.may("jane", "get machines", namespace="a", name="vm-2"))
        self.assertFalse(self.may("joe", "get machines", namespace="b"))

    def test_dangling(self) -> None:
        """A binding to a role that does not exist, or with an invalid reference, grants nothing."""
        self.assertFalse(self.may("mallory", "get machines", namespace="a"))
        self.assertFalse(self.may("mallory", "get machines", namespace=""))

    def test_paths(self) -> None:
        """Paths are allowed by cluster role bindings only."""
        self.assertTrue(self.may("prometheus", "get /metrics"))
        self.assertFalse(self.may("jane", "get /metrics"))

    def test_service_accounts(self) -> None:
        """A service account is a user of its namespace, by default the binding's."""
        for name, good in (
            ("system:serviceaccount:robots:bot", True),
            ("system:serviceaccount:a:local", True),
            ("system:serviceaccount:a:bot", False),
            ("bot", False),
            ("system:serviceaccount:b:local", False),
        ):
            self.assertEqual(self.may(name, "create machines/exec", namespace="a"), good, name)

    def test_masters(self) -> None:
        """``system:masters`` may do everything, without any object saying so."""
        self.use(RBACObjects())
        root = User("x", ("system:masters",))
        self.assertTrue(self.may(root, "delete anything"))
        self.assertTrue(self.may(root, "get /metrics"))
        self.assertFalse(self.may(User("system:masters"), "get /metrics"))

    def test_reason(self) -> None:
        """The reason for allowing names the binding and the role; a denial has no reason."""
        asked = Attributes(User("jane"), "create", GROUP, "v1", "machines", "exec", "a", "vm-1")
        decision = self.successResultOf(self.authorizer.authorize(asked))
        self.assertEqual(
            decision.reason, "RBAC: allowed by RoleBinding 'a/here' of ClusterRole 'console'"
        )
        decision = self.successResultOf(self.authorizer.authorize(replace(asked, verb="get")))
        self.assertEqual((decision.allowed, decision.reason), (False, ""))

    def test_changed(self) -> None:
        """A change takes effect with the next decision."""
        self.assertTrue(self.may("root", "create machines/exec"))
        self.source.objects = replace(self.source.objects, cluster_role_bindings=[])
        self.assertFalse(self.may("root", "create machines/exec"))

    def test_unchanged(self) -> None:
        """The computed policy is reused until an object changes."""
        self.may("root", "create machines/exec")
        policy = self.authorizer._current  # Decisions are the same without reuse.
        self.may("jane", "create machines/exec")
        self.assertIs(self.authorizer._current, policy)

    def test_cannot_ask(self) -> None:
        """If the source fails, the decision fails too, even after an earlier success."""
        self.may("root", "create machines/exec")
        self.source.objects = ServiceUnavailable("down")
        asked = Attributes(User("root"), "create", GROUP, "v1", "machines", "exec")
        self.failureResultOf(self.authorizer.authorize(asked), ServiceUnavailable)

    def test_odd_objects(self) -> None:
        """Malformed objects grant nothing and do not affect others."""
        odd: list[Any] = [
            {},
            {"metadata": None, "rules": "*", "roleRef": 7, "subjects": "x"},
            {"metadata": {"name": "x"}, "rules": [None, 7, {"verbs": None}]},
            {"roleRef": {"kind": "ClusterRole", "name": "console"}, "subjects": [None, {}, 7]},
            {"metadata": {"name": "y"}, "aggregationRule": "x"},
            {"metadata": {"name": "z"}, "aggregationRule": {"clusterRoleSelectors": [7, "x"]}},
            {
                "metadata": {"name": "w", "labels": "x"},
                "aggregationRule": {
                    "clusterRoleSelectors": [
                        {"matchLabels": 7},
                        {"matchExpressions": 7},
                        {"matchExpressions": [7]},
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": 7}]},
                        {"matchExpressions": [{"key": "a", "operator": "Near"}]},
                    ]
                },
            },
        ]
        self.use(
            RBACObjects(
                cluster_roles=[*odd, role("console", allow("create", "machines/exec"))],
                cluster_role_bindings=[*odd, binding("b", "ClusterRole/console", user("root"))],
                roles=odd,
                role_bindings=odd,
            )
        )
        self.assertTrue(self.may("root", "create machines/exec"))
        self.assertFalse(self.may("", "create machines/exec"))


class AggregationTests(RBACCase):
    """Cluster roles that gather others by label."""

    def gathering(self, name: str, **labels: str) -> dict[str, Any]:
        selectors = [{"matchLabels": {f"to-{name}": "true"}}]
        return role(
            name,
            allow("delete", "machines"),
            labels=labels,
            aggregationRule={"clusterRoleSelectors": selectors},
        )

    def test_gathered(self) -> None:
        """
        An aggregated role has the rules of roles that match, also indirectly, and none of its own.
        """
        self.use(
            RBACObjects(
                cluster_roles=[
                    self.gathering("admin"),
                    self.gathering("view", **{"to-admin": "true"}),
                    role("a", allow("get", "machines"), labels={"to-view": "true"}),
                    role("b", allow("create", "machines"), labels={"to-admin": "true"}),
                    role("c", allow("patch", "machines"), labels={"to-admin": "false"}),
                ],
                cluster_role_bindings=[binding("x", "ClusterRole/admin", user("root"))],
            )
        )
        self.assertTrue(self.may("root", "get machines"))
        self.assertTrue(self.may("root", "create machines"))
        self.assertFalse(self.may("root", "patch machines"))
        self.assertFalse(self.may("root", "delete machines"))

    def test_circle(self) -> None:
        """Cycles of aggregated roles are resolved."""
        self.use(
            RBACObjects(
                cluster_roles=[
                    self.gathering("one", **{"to-two": "true", "to-one": "true"}),
                    self.gathering("two", **{"to-one": "true"}),
                    role("a", allow("get", "machines"), labels={"to-one": "true"}),
                ],
                cluster_role_bindings=[binding("x", "ClusterRole/two", user("root"))],
            )
        )
        self.assertTrue(self.may("root", "get machines"))

    def test_expressions(self) -> None:
        """Label expressions have the semantics of Kubernetes; an invalid one selects no role."""
        for expression, good in (
            ({"key": "tier", "operator": "In", "values": ["a", "b"]}, True),
            ({"key": "tier", "operator": "In", "values": ["b"]}, False),
            ({"key": "tier", "operator": "NotIn", "values": ["b"]}, True),
            ({"key": "other", "operator": "NotIn", "values": ["b"]}, True),
            ({"key": "tier", "operator": "Exists"}, True),
            ({"key": "other", "operator": "Exists"}, False),
            ({"key": "other", "operator": "DoesNotExist"}, True),
            ({"key": "tier", "operator": "DoesNotExist"}, False),
            ({"key": "tier", "operator": "NotIn"}, False),
            ({"key": "tier", "operator": "Exists", "values": ["a"]}, False),
            ({"key": "other", "operator": "DoesNotExist", "values": ["a"]}, False),
        ):
            gathering = role(
                "all",
                aggregationRule={"clusterRoleSelectors": [{"matchExpressions": [expression]}]},
                labels={"tier": "none"},
            )
            self.use(
                RBACObjects(
                    cluster_roles=[
                        gathering,
                        role("a", allow("get", "machines"), labels={"tier": "a"}),
                    ],
                    cluster_role_bindings=[binding("x", "ClusterRole/all", user("root"))],
                )
            )
            self.assertEqual(self.may("root", "get machines"), good, expression)


class EscalationTests(RBACCase):
    """Tests for :meth:`RBACAuthorizer.confirm_covered` and ``rules_for``."""

    def setUp(self) -> None:
        self.use(
            RBACObjects(
                cluster_roles=[role("reader", allow("get list", "machines"))],
                roles=[role("typist", allow("create", "machines/exec"), namespace="a")],
                cluster_role_bindings=[binding("r", "ClusterRole/reader", user("jane"))],
                role_bindings=[binding("t", "Role/typist", user("jane"), namespace="a")],
            )
        )

    def confirm(self, name: str, namespace: str, *wanted: Rule) -> Deferred[None]:
        return self.authorizer.confirm_covered(User(name), namespace, wanted)

    def test_rules_for(self) -> None:
        """The cluster's rules and the namespace's."""
        reader = Rule(("get", "list"), (GROUP,), ("machines",))
        typist = Rule(("create",), (GROUP,), ("machines/exec",))
        for namespace, expected in (("a", (reader, typist)), ("b", (reader,)), ("", (reader,))):
            rules = self.successResultOf(self.authorizer.rules_for(User("jane"), namespace))
            self.assertEqual(rules, expected)
        masters = User("root", ("system:masters",))
        self.assertEqual(self.successResultOf(self.authorizer.rules_for(masters, "a")), ALL_RULES)

    def test_rules_of(self) -> None:
        """The rules that a binding would grant."""
        reference = {"kind": "Role", "name": "typist"}
        for namespace, count in (("a", 1), ("b", 0), ("", 0)):
            rules = self.successResultOf(self.authorizer.rules_of(reference, namespace))
            self.assertEqual(len(rules), count)

    def test_what_one_has(self) -> None:
        """Users may grant permissions that they have in the same namespace."""
        exec_ = Rule(("create",), (GROUP,), ("machines/exec",))
        self.successResultOf(self.confirm("jane", "a", exec_))
        for namespace in ("b", ""):
            self.failureResultOf(self.confirm("jane", namespace, exec_), Forbidden)

    def test_more(self) -> None:
        """Users may not grant more; the error names the missing rules only."""
        many = Rule(("get", "delete"), (GROUP,), tuple(f"r{n}" for n in range(20)))
        failure = self.failureResultOf(self.confirm("jane", "a", many), Forbidden)
        self.assertIn("user 'jane' is attempting to grant", str(failure.value))
        self.assertIn("and 35 more", str(failure.value))
        self.failureResultOf(self.confirm("jane", "a", *ALL_RULES), Forbidden)
