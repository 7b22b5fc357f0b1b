"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.matching`.

The tables are what Kubernetes' documentation of ``rules`` and selectors says.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.aggregated.admission.webhooks import GROUP, JANE, machine, rule
from twisted_exec.api.kinds import Object
from twisted_exec.api.selectors import of_object
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.matching import policy_criteria, webhook_criteria


def asked(operation: str = "CREATE", subresource: str = "", **more: Any) -> AdmissionAttributes:
    """A request about a machine."""
    told: dict[str, Any] = {
        "user": JANE,
        "operation": operation,
        "group": GROUP,
        "version": "v1alpha1",
        "plural": "machines",
        "kind": "Machine",
        "namespace": "default",
        "name": "vm",
        "new": machine(),
        "subresource": subresource,
    }
    return AdmissionAttributes(**(told | more))


class RuleTests(SynchronousTestCase):
    """Requests that a rule matches."""

    def matches(self, told: Object, request: AdmissionAttributes | None = None) -> bool:
        """Return whether a webhook with one rule matches a request."""
        return webhook_criteria({"rules": [told]}).matches_request(request or asked())

    def test_operations(self) -> None:
        """Listed operations, or all."""
        for operations, operation, fits in (
            (["CREATE"], "CREATE", True),
            (["CREATE", "UPDATE"], "UPDATE", True),
            (["CREATE"], "DELETE", False),
            (["*"], "DELETE", True),
            (["*"], "CONNECT", True),
            (["DELETE"], "CONNECT", False),
            ([], "CREATE", False),
        ):
            told = {**rule(), "operations": operations}
            self.assertEqual(self.matches(told, asked(operation)), fits, (operations, operation))

    def test_groups_and_versions(self) -> None:
        """Each in full, or all; the core group is empty."""
        for groups, versions, fits in (
            ([GROUP], ["v1alpha1"], True),
            (["*"], ["*"], True),
            ([""], ["*"], False),
            (["ironcore.dev"], ["*"], False),
            (["apps", GROUP], ["v1", "v1alpha1"], True),
            ([GROUP], ["v1"], False),
        ):
            told = {**rule(), "apiGroups": groups, "apiVersions": versions}
            self.assertEqual(self.matches(told), fits, (groups, versions))

    def test_resources(self) -> None:
        """A resource does not stand for its subresources; ``*`` for all but these."""
        for resources, subresource, fits in (
            (["machines"], "", True),
            (["machines"], "status", False),
            (["machines"], "exec", False),
            (["machines/status"], "status", True),
            (["machines/status"], "", False),
            (["machines/*"], "exec", True),
            (["machines/*"], "", True),
            (["*"], "", True),
            (["*"], "exec", False),
            (["*/*"], "", True),
            (["*/*"], "exec", True),
            (["*/exec"], "exec", True),
            (["*/scale"], "exec", False),
            (["pods", "machinepools"], "", False),
            (["pods/exec", "machines/exec"], "exec", True),
        ):
            told = rule(resources=tuple(resources))
            fitted = self.matches(told, asked(subresource=subresource))
            self.assertEqual(fitted, fits, (resources, subresource))

    def test_scope(self) -> None:
        """Namespaced, cluster-scoped, or both."""
        for scope, namespace, fits in (
            ("*", "default", True),
            ("*", "", True),
            ("Namespaced", "default", True),
            ("Namespaced", "", False),
            ("Cluster", "default", False),
            ("Cluster", "", True),
            ("Galactic", "", False),
        ):
            told = rule(scope=scope)
            self.assertEqual(self.matches(told, asked(namespace=namespace)), fits, scope)

    def test_any_of_them(self) -> None:
        """A single matching rule suffices; a webhook without rules matches nothing."""
        told = [rule("DELETE"), rule("CREATE")]
        self.assertTrue(webhook_criteria({"rules": told}).matches_request(asked()))
        self.assertFalse(webhook_criteria({}).matches_request(asked()))

    def test_policies(self) -> None:
        """Policies may name objects and leave others out; a binding that names none, all."""
        for constraints, fits in (
            (None, True),
            ({}, True),
            ({"resourceRules": [rule()]}, True),
            ({"resourceRules": [rule("DELETE")]}, False),
            ({"resourceRules": [rule(resourceNames=["vm"])]}, True),
            ({"resourceRules": [rule(resourceNames=["other"])]}, False),
            ({"excludeResourceRules": [rule()]}, False),
            ({"resourceRules": [rule()], "excludeResourceRules": [rule()]}, False),
            ({"excludeResourceRules": [rule(resourceNames=["other"])]}, True),
        ):
            self.assertEqual(
                policy_criteria(constraints).matches_request(asked()), fits, constraints
            )


class SelectorTests(SynchronousTestCase):
    """Selectors by labels."""

    def test_objects(self) -> None:
        """The new object's labels or the old one's; options of a stream have none."""
        chosen = {
            "rules": [rule(resources=("*/*",))],
            "objectSelector": {"matchLabels": {"a": "b"}},
        }
        criteria = webhook_criteria(chosen)
        with_label, without = machine(a="b"), machine()
        for new, old, fits in (
            (with_label, None, True),
            (without, None, False),
            (without, with_label, True),
            (with_label, without, True),
            (None, with_label, True),
            (None, without, False),
        ):
            self.assertEqual(criteria.matches_request(asked(new=new, old=old)), fits)
        options = {"kind": "MachineExecOptions"}
        self.assertFalse(criteria.matches_request(asked("CONNECT", "exec", new=options)))
        absent = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
        criteria = webhook_criteria({**chosen, "objectSelector": absent})
        self.assertFalse(criteria.matches_request(asked("CONNECT", "exec", new=options)))
        criteria = webhook_criteria({**chosen, "objectSelector": {}})
        self.assertTrue(criteria.matches_request(asked("CONNECT", "exec", new=options)))

    def test_namespaces(self) -> None:
        """Only of what is in one, and only if anything is chosen by them."""
        criteria = webhook_criteria(
            {"rules": [rule()], "namespaceSelector": {"matchLabels": {"a": "b"}}}
        )
        self.assertTrue(criteria.depends_on_namespace(asked()))
        self.assertFalse(criteria.depends_on_namespace(asked(namespace="")))
        self.assertTrue(criteria.matches_namespace({"a": "b", "c": "d"}))
        self.assertFalse(criteria.matches_namespace({}))
        self.assertFalse(webhook_criteria({"namespaceSelector": {}}).depends_on_namespace(asked()))

    def test_expressions(self) -> None:
        """Operators of expressions; all must match."""
        for expressions, labels, fits in (
            ([("a", "In", ["x", "y"])], {"a": "y"}, True),
            ([("a", "In", ["x"])], {}, False),
            ([("a", "NotIn", ["x"])], {"a": "x"}, False),
            ([("a", "NotIn", ["x"])], {}, True),
            ([("a", "Exists", None)], {"a": ""}, True),
            ([("a", "Exists", None)], {}, False),
            ([("a", "DoesNotExist", None)], {}, True),
            ([("a", "DoesNotExist", None)], {"a": "x"}, False),
            ([("a", "Exists", None), ("b", "Exists", None)], {"a": ""}, False),
        ):
            told = [
                {"key": key, "operator": op, "values": values} for key, op, values in expressions
            ]
            found = of_object({"matchExpressions": told})
            self.assertEqual(found.matches(labels), fits, (expressions, labels))
        self.assertTrue(of_object(None).matches({}))

    def test_unusable(self) -> None:
        """A selector that cannot be read makes no one exempt."""
        bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
        for key in ("objectSelector", "namespaceSelector"):
            criteria = webhook_criteria({"rules": [rule()], key: bad})
            self.assertTrue(criteria.matches_request(asked()))
            self.assertIn("'Near' is not a valid", criteria.problem)
