"""
Which requests the host's admission is about, without I/O.

A webhook names the requests that it wants to see by rules (operation, group, version, resource
and subresource, scope) and by two label selectors, one on the object and one on its namespace; a
policy does likewise, and may also leave out what other rules name.  All of it must fit.  Source:
``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates`` and ``.../policy/matching``.

``matchPolicy: Equivalent`` looks for the same object under other groups and versions.  Each of our
kinds is served under one alone, so it comes to the same as ``Exact``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api.kinds import Object
from twisted_exec.api.selectors import LabelSelector, Requirement
from twisted_exec.auth.interfaces import User

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
"""Operations as an AdmissionReview has them."""

_ANY = "*"
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


@dataclass(frozen=True)
class Asked:
    """
    A request as admission sees it.

    :param kind: of ``new`` or ``old``, in ``group`` and ``version``.
    :param namespace: empty for cluster-scoped kinds.
    :param name: may be empty for an object whose name is still to be made.
    :param new: ``None`` for a delete; for a CONNECT the stream's options.
    :param old: ``None`` unless there is an object already.
    :param options: such as ``CreateOptions``, whole; ``None`` for a CONNECT.
    :param warn: told what the client is to be told.
    """

    user: User
    operation: str
    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None = None
    subresource: str = ""
    options: Object | None = None
    dry_run: bool = False
    warn: Callable[[str], None] = field(default=lambda text: None, compare=False)

    @property
    def qualified(self) -> str:
        """``machines.compute.ironcore.dev``, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True)
class Rule:
    """
    One of ``rules``, ``resourceRules`` or ``excludeResourceRules``.

    :param names: of objects; none at all is any.
    """

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[str, ...]
    scope: str = _ANY
    names: frozenset[str] = frozenset()

    def matches(self, asked: Asked) -> bool:
        """Whether a request is one that this rule names."""
        return (
            _among(self.operations, asked.operation)
            and _among(self.groups, asked.group)
            and _among(self.versions, asked.version)
            and self._in_scope(asked)
            and any(_fits(each, asked) for each in self.resources)
            and (not self.names or asked.name in self.names)
        )

    def _in_scope(self, asked: Asked) -> bool:
        if self.scope == "Namespaced":
            return bool(asked.namespace)
        return self.scope == _ANY or (self.scope == "Cluster" and not asked.namespace)


def _among(items: frozenset[str], wanted: str) -> bool:
    return _ANY in items or wanted in items


def _fits(named: str, asked: Asked) -> bool:
    """``machines`` is not ``machines/status``; ``*`` is every resource, ``*/*`` everything."""
    resource, _, subresource = named.partition("/")
    return resource in (_ANY, asked.plural) and subresource in (_ANY, asked.subresource)


@dataclass(frozen=True)
class Reach:
    """
    What a webhook, a policy or a binding is about.

    :param rules: one must name the request; ``None`` for all requests there are.
    :param excluded: none may.
    :param objects: on the labels of the object, new or old.
    :param namespaces: on the labels of its namespace.
    :param problem: why the selectors cannot be used; then nobody can tell whether it is about
        a request that its rules name.
    """

    rules: tuple[Rule, ...] | None = None
    excluded: tuple[Rule, ...] = ()
    objects: LabelSelector = LabelSelector()
    namespaces: LabelSelector = LabelSelector()
    problem: str = ""

    def names(self, asked: Asked) -> bool:
        """Whether the rules and the selector on the object fit; see :meth:`fits_namespace`."""
        if any(rule.matches(asked) for rule in self.excluded):
            return False
        if self.rules is not None and not any(rule.matches(asked) for rule in self.rules):
            return False
        return not self.objects.requirements or any(
            self.objects.matches(_labels(obj)) for obj in (asked.new, asked.old) if _has_labels(obj)
        )

    def asks_namespace(self, asked: Asked) -> bool:
        """Whether the labels of the request's namespace count; a cluster-scoped one has none."""
        return bool(self.namespaces.requirements and asked.namespace)

    def fits_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels of a namespace fit."""
        return self.namespaces.matches(labels)


def _has_labels(obj: Object | None) -> bool:
    # The options of a stream are no object: what selects objects does not select them.
    return obj is not None and "metadata" in obj


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def webhook_reach(webhook: Mapping[str, Any]) -> Reach:
    """What an entry of a webhook configuration is about; without rules that is nothing."""
    return _reach(webhook, _rules(webhook.get("rules")), ())


def policy_reach(constraints: Mapping[str, Any] | None) -> Reach:
    """What ``matchConstraints`` or ``matchResources`` are about; without any that is everything."""
    told = constraints or {}
    rules = _rules(told.get("resourceRules"))
    return _reach(told, rules or None, _rules(told.get("excludeResourceRules")))


def _reach(
    told: Mapping[str, Any], rules: tuple[Rule, ...] | None, excluded: tuple[Rule, ...]
) -> Reach:
    try:
        objects = selector(told.get("objectSelector"))
        namespaces = selector(told.get("namespaceSelector"))
    except ValueError as error:
        return Reach(rules, excluded, problem=str(error))
    return Reach(rules, excluded, objects, namespaces)


def _rules(told: Iterable[Mapping[str, Any]] | None) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            tuple(rule.get("resources") or ()),
            rule.get("scope") or _ANY,
            frozenset(rule.get("resourceNames") or ()),
        )
        for rule in told or ()
    )


def selector(told: Mapping[str, Any] | None) -> LabelSelector:
    """
    A ``LabelSelector`` object; an empty one selects everything.

    :raises ValueError: an operator that nobody defined.
    """
    told = told or {}
    found = [
        Requirement(key, "in", frozenset([value]))
        for key, value in sorted((told.get("matchLabels") or {}).items())
    ]
    for each in told.get("matchExpressions") or ():
        operator = _OPERATORS.get(str(each.get("operator")))
        if operator is None:
            raise ValueError(f"{each.get('operator')!r} is not a valid label selector operator")
        found.append(Requirement(each.get("key"), operator, frozenset(each.get("values") or ())))
    return LabelSelector(tuple(found))
