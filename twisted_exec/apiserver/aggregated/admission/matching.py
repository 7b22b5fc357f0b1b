"""
Matching of requests to webhooks, policies and bindings.

Source: ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates`` and
``.../policy/matching``.

``matchPolicy: Equivalent`` also matches other groups and versions of the same resource. Our kinds
have one version, so this equals ``Exact``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.api.selectors import LabelSelector, of_object
from twisted_exec.api.status import InternalError
from twisted_exec.apiserver.aggregated.admission.attributes import AdmissionAttributes
from twisted_exec.apiserver.aggregated.admission.objects import HostNamespaces

_ANY = "*"


@dataclass(frozen=True)
class WebhookRule:
    """
    An entry of ``rules``, ``resourceRules`` or ``excludeResourceRules``.

    :param names: object names; empty matches any.
    """

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[str, ...]
    scope: str = _ANY
    names: frozenset[str] = frozenset()

    def matches(self, attributes: AdmissionAttributes) -> bool:
        return (
            _among(self.operations, attributes.operation)
            and _among(self.groups, attributes.group)
            and _among(self.versions, attributes.version)
            and self._in_scope(attributes)
            and any(_names_resource(each, attributes) for each in self.resources)
            and (not self.names or attributes.name in self.names)
        )

    def _in_scope(self, attributes: AdmissionAttributes) -> bool:
        if self.scope == "Namespaced":
            return bool(attributes.namespace)
        return self.scope == _ANY or (self.scope == "Cluster" and not attributes.namespace)


def _among(items: frozenset[str], item: str) -> bool:
    return _ANY in items or item in items


def _names_resource(named: str, attributes: AdmissionAttributes) -> bool:
    """``machines`` excludes ``machines/status``; ``*`` means all resources, ``*/*`` everything."""
    resource, _, subresource = named.partition("/")
    return resource in (_ANY, attributes.plural) and subresource in (_ANY, attributes.subresource)


@dataclass(frozen=True)
class MatchCriteria:
    """
    The requests that a webhook, policy or binding applies to.

    :param rules: one of them must match; ``None`` matches every request.
    :param excluded: none of them may match.
    :param problem: why the selectors are invalid.
    """

    rules: tuple[WebhookRule, ...] | None = None
    excluded: tuple[WebhookRule, ...] = ()
    objects: LabelSelector = LabelSelector()
    namespaces: LabelSelector = LabelSelector()
    problem: str = ""

    def matches_request(self, attributes: AdmissionAttributes) -> bool:
        """Return whether rules and object selector match; the namespace's labels may also matter."""
        if any(rule.matches(attributes) for rule in self.excluded):
            return False
        if self.rules is not None and not any(rule.matches(attributes) for rule in self.rules):
            return False
        return not self.objects.requirements or any(
            self.objects.matches(_labels(obj))
            for obj in (attributes.new, attributes.old)
            if _has_labels(obj)
        )

    def depends_on_namespace(self, attributes: AdmissionAttributes) -> bool:
        """Return whether the namespace's labels matter."""
        return bool(self.namespaces.requirements and attributes.namespace)

    def matches_namespace(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of the namespace match."""
        return self.namespaces.matches(labels)


def _has_labels(obj: Object | None) -> bool:
    # The options of a stream are no object, so an object selector never matches them.
    return obj is not None and "metadata" in obj


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def webhook_criteria(webhook: Mapping[str, Any]) -> MatchCriteria:
    """The requests of a webhook; without rules there are none."""
    return _criteria(webhook, _rules(webhook.get("rules")), ())


def policy_criteria(constraints: Mapping[str, Any] | None) -> MatchCriteria:
    """The requests of ``matchConstraints`` or ``matchResources``; no ``resourceRules`` means all resources."""
    selection = constraints or {}
    rules = _rules(selection.get("resourceRules"))
    return _criteria(selection, rules or None, _rules(selection.get("excludeResourceRules")))


def _criteria(
    selection: Mapping[str, Any],
    rules: tuple[WebhookRule, ...] | None,
    excluded: tuple[WebhookRule, ...],
) -> MatchCriteria:
    try:
        objects = of_object(selection.get("objectSelector"))
        namespaces = of_object(selection.get("namespaceSelector"))
    except ValueError as error:
        return MatchCriteria(rules, excluded, problem=str(error))
    return MatchCriteria(rules, excluded, objects, namespaces)


def _rules(entries: Iterable[Mapping[str, Any]] | None) -> tuple[WebhookRule, ...]:
    return tuple(
        WebhookRule(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            tuple(rule.get("resources") or ()),
            rule.get("scope") or _ANY,
            frozenset(rule.get("resourceNames") or ()),
        )
        for rule in entries or ()
    )


@dataclass(frozen=True)
class NamedExpression:
    """A CEL expression and its name: a condition, a variable or an annotation."""

    name: str
    expression: str


def named_expressions(
    entries: Iterable[Mapping[str, Any]] | None,
) -> tuple[NamedExpression, ...]:
    """Parse ``matchConditions`` or ``variables``."""
    return tuple(
        NamedExpression(str(each.get("name")), str(each.get("expression")))
        for each in entries or ()
    )


class Matcher:
    """Matches requests, with the labels of the host's namespaces."""

    def __init__(self, namespaces: HostNamespaces) -> None:
        self.namespaces = namespaces

    async def matches(self, criteria: MatchCriteria, attributes: AdmissionAttributes) -> bool:
        """
        Return whether a request matches.

        :raises APIError: that cannot be decided.
        """
        if not criteria.matches_request(attributes):
            return False
        if criteria.problem:
            raise InternalError(criteria.problem)
        if not criteria.depends_on_namespace(attributes):
            return True
        return criteria.matches_namespace(await self.namespaces.labels(attributes.namespace))
