"""
Tests for :mod:`twisted_exec.apiserver.machine_pods.authorization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.apiserver.support import MACHINES, PODS, RBAC, APITestCase
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.machine_pods.authorization import PodsAuthorizer
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import Attributes, Rule

COMPUTE = ("compute.ironcore.dev",)
REVIEWS = "/apis/authorization.k8s.io/v1"
SEE = Rule(("get", "list", "watch"), COMPUTE, ("machines",))
OPEN = Rule(("create",), COMPUTE, ("machines/exec",))
NAMES = PodNames([IRONCORE])
READ_LOG = Rule(("get",), COMPUTE, ("machines/log",))


@implementer(IRulesAuthorizer)
class Rules:
    """Everyone has these rules."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        return defer.succeed(Decision(any(rule.allows(attributes) for rule in self.rules)))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        return defer.succeed(self.rules)


@implementer(IRulesAuthorizer)
class Broken:
    """Cannot find anything out."""

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        return defer.fail(ServiceUnavailable("no"))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        return defer.fail(ServiceUnavailable("no"))


class PodNamesTests(SynchronousTestCase):
    """Tests for :class:`PodNames`."""

    def setUp(self) -> None:
        self.names = PodNames([SPHERIC, IRONCORE])

    def test_both_ways(self) -> None:
        """The first dialect's names are plain, the others' carry theirs."""
        for dialect, machine, pod in (
            (SPHERIC, "vm-1", "vm-1"),
            (IRONCORE, "vm-1", "vm-1.ironcore"),
        ):
            self.assertEqual(self.names.pod(dialect, machine), pod)
            self.assertEqual(self.names.machine(pod), (dialect, machine))

    def test_others(self) -> None:
        """Any other dot is part of a name that no machine has."""
        for pod in ("vm.spheric", f"vm.{ONMETAL.name}", "vm.ironcore.ironcore", ".", ""):
            self.assertEqual(self.names.machine(pod), (SPHERIC, pod))


class AuthorizerTests(SynchronousTestCase):
    """Tests for :class:`PodsAuthorizer`."""

    def decide(self, verb: str, subresource: str = "", *rules: Rule, **more: Any) -> Decision:
        asked = {"resource": "pods", "namespace": "default", "name": "a", **more}
        attributes = Attributes(User("jane"), verb, subresource=subresource, **asked)
        decision: Decision = self.successResultOf(
            PodsAuthorizer(Rules(*rules), NAMES).authorize(attributes)
        )
        return decision

    def allowed(self, rules: Sequence[Rule]) -> set[str]:
        """All allowed combinations of verb and subresource."""
        verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
        return {
            f"{verb} {subresource}".strip()
            for verb in (*verbs, "deletecollection", "*")
            for subresource in ("", "status", "attach", "exec", "log", "portforward", "eviction")
            if self.decide(verb, subresource, *rules).allowed
        }

    def test_each(self) -> None:
        """Permissions on Pods that follow from each permission on machines."""
        self.assertEqual(self.allowed([SEE]), {"get", "list", "watch"})
        self.assertEqual(
            self.allowed([OPEN]), {"create attach", "get attach", "create exec", "get exec"}
        )
        self.assertEqual(self.allowed([READ_LOG]), {"get log"})
        status = Rule(("get",), COMPUTE, ("machines/status",))
        self.assertEqual(self.allowed([status]), {"get status"})

    def test_all(self) -> None:
        """Even full permissions change no Pod and forward no port."""
        allowed = self.allowed([Rule(("*",), ("*",), ("*",))])
        self.assertEqual(len(allowed), 9)
        self.assertNotIn("delete", allowed)

    def test_rights_on_pods(self) -> None:
        """Rules that name pods are worth nothing here."""
        self.assertEqual(self.allowed([Rule(("*",), ("",), ("pods", "pods/exec", "*"))]), set())

    def test_one_name(self) -> None:
        """A right on one machine is one on its Pod."""
        mine = Rule(("get",), COMPUTE, ("machines",), ("mine",))
        self.assertTrue(self.decide("get", "", mine, name="mine").allowed)
        self.assertFalse(self.decide("get", "", mine, name="yours").allowed)

    def test_told(self) -> None:
        """A refusal says what is needed instead."""
        self.assertIn("needs create machines/exec", self.decide("get", "exec").reason)
        self.assertIn("read-only", self.decide("delete", "", SEE).reason)

    def test_kubectl_name(self) -> None:
        """``kubectl auth can-i create pods/exec`` names a Pod and means a subresource."""
        self.assertTrue(self.decide("create", "", OPEN, name="exec").allowed)
        self.assertFalse(self.decide("create", "", SEE, name="exec").allowed)
        self.assertFalse(self.decide("create", "", OPEN, name="log").allowed)
        self.assertTrue(self.decide("get", "", SEE, name="exec").allowed)

    def test_others(self) -> None:
        """All else is as it was, pods of other groups too."""
        rule = Rule(("get",), ("metrics.k8s.io",), ("pods",))
        self.assertTrue(self.decide("get", "", rule, group="metrics.k8s.io").allowed)
        self.assertTrue(
            self.decide("create", "exec", OPEN, group=COMPUTE[0], resource="machines").allowed
        )
        self.assertFalse(self.decide("get", "", resource="", path="/version").allowed)

    def test_unknown(self) -> None:
        """A failed decision is a refusal with the reason."""
        asked = Attributes(User("jane"), "get", resource="pods")
        self.failureResultOf(PodsAuthorizer(Broken(), NAMES).authorize(asked), ServiceUnavailable)
        self.failureResultOf(
            PodsAuthorizer(Broken(), NAMES).rules_for(User("jane"), "default"), ServiceUnavailable
        )


class RulesTests(SynchronousTestCase):
    """Rules in reviews."""

    def rules(self, *rules: Rule) -> tuple[Rule, ...]:
        told: tuple[Rule, ...] = self.successResultOf(
            PodsAuthorizer(Rules(*rules), NAMES).rules_for(User("jane"), "default")
        )
        return told

    def test_added(self) -> None:
        """Permissions on machines appear as rules for pods."""
        self.assertEqual(
            self.rules(SEE, OPEN, READ_LOG),
            (
                SEE,
                Rule(("get", "list", "watch"), ("",), ("pods",)),
                OPEN,
                Rule(("create", "get"), ("",), ("pods/attach", "pods/exec")),
                READ_LOG,
                Rule(("get",), ("",), ("pods/log",)),
            ),
        )

    def test_names(self) -> None:
        """Rights on single machines are rights on single Pods."""
        rule = Rule(("get",), COMPUTE, ("machines",), ("a", "b"))
        self.assertEqual(self.rules(rule)[1], Rule(("get",), ("",), ("pods",), ("a", "b")))

    def test_removed(self) -> None:
        """Rules for pods are removed, since they allow nothing."""
        self.assertEqual(self.rules(Rule(("*",), ("",), ("pods", "pods/exec"))), ())
        anywhere = Rule(("*",), ("*",), ("pods", "pods/exec"))
        self.assertEqual(self.rules(anywhere), ())
        mixed = Rule(("get",), ("",), ("pods", "namespaces"))
        self.assertEqual(self.rules(mixed), (Rule(("get",), ("",), ("namespaces",)),))

    def test_all(self) -> None:
        """A rule for everything says it all already."""
        everything = Rule(("*",), ("*",), ("*",))
        paths = Rule(("get",), non_resource_urls=("/version",))
        self.assertEqual(self.rules(everything, paths), (everything, paths))

    def test_wild(self) -> None:
        """Wildcards for groups or verbs appear as what they amount to."""
        told = self.rules(Rule(("*",), COMPUTE, ("*",)))
        self.assertEqual(
            {resource: rule.verbs for rule in told[1:] for resource in rule.resources},
            {
                "pods": ("get", "list", "watch"),
                "pods/status": ("get",),
                "pods/console": ("drive", "observe", "takeover"),
                "pods/log": ("get",),
                "pods/attach": ("create", "get"),
                "pods/exec": ("create", "get"),
            },
        )


class ServerTests(APITestCase):
    """A server with the view: requests and reviews agree."""

    pods_view = True

    def may(self, user: str, verb: str, subresource: str = "", name: str = "a") -> bool:
        """As a SelfSubjectAccessReview answers."""
        attributes = {
            "namespace": "default",
            "verb": verb,
            "resource": "pods",
            "subresource": subresource,
            "name": name,
        }
        review = self.answer(
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": attributes}},
            code=201,
            user=user,
        )
        return bool(review["status"]["allowed"])

    def test_viewer(self) -> None:
        """``view`` of machines includes viewing Pods."""
        self.make_machine("a")
        self.assertFalse(self.may("jane", "get"))
        told = self.refused(403, "GET", f"{PODS}/a", user="jane")
        self.assertEqual(
            told,
            'pods "a" is forbidden: User "jane" cannot get resource "pods" in API group "" in the '
            'namespace "default": a pod here is a machine: this needs get machines in API group '
            "compute.ironcore.dev (the default role view suffices; for kubectl logs console-log-reader, "
            "for kubectl attach console-user)",
        )
        self.bind("jane", "view")
        self.assertTrue(self.may("jane", "get"))
        self.answer("GET", f"{PODS}/a", user="jane")
        self.answer("GET", PODS, user="jane")
        self.assertFalse(self.may("jane", "create", "exec"))
        self.refused(403, "GET", "/api/v1/pods", user="jane")

    def test_editor(self) -> None:
        """``edit`` may attach."""
        self.bind("jane", "edit")
        self.bind("jane", "view")
        self.assertTrue(self.may("jane", "create", "attach"))
        self.assertTrue(self.may("jane", "create", "exec"))
        self.assertTrue(self.may("jane", "create", name="exec"))
        self.assertFalse(self.may("jane", "delete"))
        self.assertFalse(self.may("admin", "delete"))
        self.assertFalse(self.may("admin", "create", "portforward"))

    def test_someone_else(self) -> None:
        """A SubjectAccessReview answers for the one that it names."""
        self.bind("jane", "edit")
        spec = {
            "user": "jane",
            "resourceAttributes": {
                "namespace": "default",
                "verb": "create",
                "resource": "pods",
                "subresource": "exec",
            },
        }
        for user, allowed in (("jane", True), ("bob", False)):
            review = self.answer(
                "POST", f"{REVIEWS}/subjectaccessreviews", {"spec": spec | {"user": user}}, code=201
            )
            self.assertEqual(review["status"]["allowed"], allowed)

    def test_rules(self) -> None:
        """``kubectl auth can-i --list`` shows what one may do with Pods."""
        self.bind("jane", "edit")
        review = self.answer(
            "POST",
            f"{REVIEWS}/selfsubjectrulesreviews",
            {"spec": {"namespace": "default"}},
            code=201,
            user="jane",
        )
        rules = [
            rule for rule in review["status"]["resourceRules"] if "pods/exec" in rule["resources"]
        ]
        self.assertEqual([rule["verbs"] for rule in rules], [["create", "get"]])

    def test_poollet(self) -> None:
        """A poollet sees machines of its own pool, and no Pods at all."""
        self.make_pool("pool-a")
        self.make_machine("a", "pool-b")
        for path in (PODS, f"{PODS}/a", f"{PODS}?watch=1"):
            self.assertIn("may not see pods", self.refused(403, "GET", path, user="pool-a"))
        path = f"{MACHINES}?fieldSelector=spec.machinePoolRef.name=pool-a"
        self.answer("GET", path, user="pool-a")

    def test_role_for_pods(self) -> None:
        """A role that names pods can be made, and gives nothing."""
        self.make_machine("a")
        rules = [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["*"]}]
        role = {"metadata": {"name": "podder"}, "rules": rules}
        self.answer("POST", f"{RBAC}/clusterroles", role, code=201)
        self.bind("jane", "podder")
        self.refused(403, "GET", f"{PODS}/a", user="jane")
        self.assertFalse(self.may("jane", "create", "exec"))
