"""
Tests for :mod:`twisted_exec.apiserver.auditing.policy`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY, AuditLevel, load, parse
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.config_file import ConfigError

JANE = User("jane", ("dev", "system:authenticated"))
GROUP = "compute.ironcore.dev"


def policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A policy with these rules."""
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}


def on(verb: str, resource: str, **more: str) -> Attributes:
    """A request of jane's for an object of the namespace lab."""
    facts = {"group": GROUP, "namespace": "lab", "name": "vm", **more}
    return Attributes(JANE, verb, version="v1", resource=resource, **facts)


class RuleTests(SynchronousTestCase):
    """Rules, as kube-apiserver applies them."""

    def test_conditions(self) -> None:
        """Each condition of a rule selects requests; an empty rule selects all."""
        machine, status = on("patch", "machines"), on("patch", "machines", subresource="status")
        path = Attributes(JANE, "post", path="/healthz/x")
        cases: list[tuple[dict[str, Any], Attributes, bool]] = [
            ({}, machine, True),
            ({}, path, True),
            ({"users": ["jane"]}, machine, True),
            ({"users": ["bob"]}, machine, False),
            ({"userGroups": ["ops", "dev"]}, machine, True),
            ({"userGroups": ["ops"]}, machine, False),
            ({"verbs": ["patch"]}, machine, True),
            ({"verbs": ["delete"]}, machine, False),
            ({"namespaces": ["lab"]}, machine, True),
            ({"namespaces": [""]}, machine, False),
            ({"namespaces": [""]}, on("delete", "machinepools", namespace=""), True),
            ({"namespaces": ["lab"]}, path, False),
            ({"resources": [{"group": GROUP}]}, status, True),
            ({"resources": [{"group": ""}]}, status, False),
            ({"resources": [{"group": GROUP, "resources": ["machines"]}]}, machine, True),
            ({"resources": [{"group": GROUP, "resources": ["machines"]}]}, status, False),
            ({"resources": [{"group": GROUP, "resources": ["machines/status"]}]}, status, True),
            ({"resources": [{"group": GROUP, "resources": ["machines/*"]}]}, status, True),
            ({"resources": [{"group": GROUP, "resources": ["*/status"]}]}, status, True),
            ({"resources": [{"group": GROUP, "resources": ["*/status"]}]}, machine, False),
            ({"resources": [{"group": GROUP, "resources": ["*"]}]}, status, True),
            ({"nonResourceURLs": ["/healthz*"]}, path, True),
            ({"nonResourceURLs": ["/healthz"]}, path, False),
            ({"nonResourceURLs": ["/healthz*"]}, machine, False),
        ]
        named = {"group": GROUP, "resources": ["machines"], "resourceNames": ["vm"]}
        cases += [
            ({"resources": [named]}, machine, True),
            ({"resources": [named]}, on("patch", "machines", name="other"), False),
        ]
        for rule, attributes, matches in cases:
            level = parse(policy({"level": "Metadata", **rule})).rule_for(attributes).level
            self.assertEqual(level is AuditLevel.METADATA, matches, (rule, attributes))

    def test_order(self) -> None:
        """The first rule that matches decides; without a match nothing is recorded."""
        rules = parse(
            policy(
                {"level": "None", "verbs": ["get"]},
                {"level": "RequestResponse", "namespaces": ["lab"]},
                {"level": "Request", "users": ["bob"]},
            )
        )
        self.assertEqual(rules.rule_for(on("get", "machines")).level, AuditLevel.NONE)
        self.assertEqual(rules.rule_for(on("patch", "machines")).level, AuditLevel.REQUEST_RESPONSE)
        other = on("patch", "machines", namespace="prod")
        self.assertEqual(rules.rule_for(other).level, AuditLevel.NONE)

    def test_reads(self) -> None:
        """A policy knows whether it may record a read."""
        self.assertTrue(parse(policy({"level": "Metadata"})).covers_reads)
        self.assertTrue(parse(policy({"level": "Metadata", "verbs": ["watch"]})).covers_reads)
        self.assertFalse(parse(policy({"level": "None"})).covers_reads)
        self.assertFalse(DEFAULT_POLICY.covers_reads)

    def test_default(self) -> None:
        """By default changes are recorded without bodies; reads, Events, leases and reviews are not."""
        for verb, group, resource, level in (
            ("create", GROUP, "machines", AuditLevel.METADATA),
            ("deletecollection", "", "secrets", AuditLevel.METADATA),
            ("patch", "console.twisted-exec.dev", "consolerequests", AuditLevel.METADATA),
            ("get", GROUP, "machines", AuditLevel.NONE),
            ("create", "", "events", AuditLevel.NONE),
            ("update", "coordination.k8s.io", "leases", AuditLevel.NONE),
            ("create", "authorization.k8s.io", "subjectaccessreviews", AuditLevel.NONE),
        ):
            attributes = on(verb, resource, group=group)
            self.assertEqual(DEFAULT_POLICY.rule_for(attributes).level, level, attributes)


class FileTests(SynchronousTestCase):
    """Policies in files."""

    def refused(self, document: object, *words: str) -> None:
        with self.assertRaises(ConfigError) as caught:
            parse(document, "audit.yaml")
        for word in ("audit.yaml", *words):
            self.assertIn(word, str(caught.exception))

    def test_file(self) -> None:
        """A policy of kube-apiserver is read as it is."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(
                "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n"
                "omitManagedFields: true\nrules:\n- level: Metadata\n  resources:\n"
                "  - group: ''\n    resources: [secrets, configmaps]\n- level: Request\n"
                "  omitManagedFields: false\n"
            )
        first, second = load(path).rules
        self.assertEqual((first.level, first.omits_managed_fields), (AuditLevel.METADATA, True))
        self.assertEqual((second.level, second.omits_managed_fields), (AuditLevel.REQUEST, False))
        self.assertRaises(ConfigError, load, f"{path}.missing")

    def test_refused(self) -> None:
        """What is not a policy is refused, with the rule and the remedy."""
        rule = {"level": "Metadata"}
        self.refused([], "must be a mapping")
        self.refused(policy(rule) | {"apiVersion": "audit.k8s.io/v1beta1"}, "audit.k8s.io/v1")
        self.refused(policy(rule) | {"kind": "Polici"}, "Policy")
        self.refused(policy(), "rules is empty")
        self.refused(policy({"users": ["a"]}), "rules[0]", "None, Metadata")
        self.refused(policy(rule, {"level": "All"}), "rules[1]", "RequestResponse")
        self.refused(policy({**rule, "user": ["a"]}), "rules[0]", "users")
        self.refused(policy({**rule, "users": "jane"}), "users", "list")
        self.refused(policy({**rule, "verbs": [1]}), "verbs", "strings")
        self.refused(policy({**rule, "resources": ["pods"]}), "resources[0]", "mapping")
        self.refused(policy({**rule, "resources": [{"resourceNames": ["a"]}]}), "needs resources")
        both = {"nonResourceURLs": ["/x"], "namespaces": ["lab"]}
        self.refused(policy({**rule, **both}), "two rules")
        self.refused(policy(rule, omitStages=["ResponseComplete"]), "level None")
        self.refused(policy(rule, omitStages=["Later"]), "RequestReceived")
