"""
RBAC: the authorizer for ``rbac.authorization.k8s.io`` objects.

Source: ``k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from twisted_exec.api.display import listed
from twisted_exec.api.selectors import WITH_VALUES
from twisted_exec.api.status import Forbidden
from twisted_exec.api.users import (
    MASTERS,
    SERVICE_ACCOUNT_PREFIX,
)
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import ALL_RULES, Attributes, Rule, uncovered

ReadOnlyObject = Mapping[str, Any]


@dataclass(frozen=True)
class RBACObjects:
    """All RBAC objects at one moment."""

    cluster_roles: Sequence[ReadOnlyObject] = ()
    cluster_role_bindings: Sequence[ReadOnlyObject] = ()
    roles: Sequence[ReadOnlyObject] = ()
    role_bindings: Sequence[ReadOnlyObject] = ()


class IRuleSource(Interface):
    """A source of roles and bindings."""

    def snapshot() -> Deferred[RBACObjects]:
        """
        Return the RBAC objects.

        :return: fires with all current RBAC objects: the *same instance* until one changes, since
            building a policy from a new one takes time.
        """


@implementer(IRulesAuthorizer)
class RBACAuthorizer:
    """Authorizes by the roles and bindings of a source."""

    def __init__(self, source: IRuleSource) -> None:
        self._source = source
        self._objects: RBACObjects | None = None
        self._current: Permissions | None = None

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        return self._policy().addCallback(lambda policy: policy.decide(attributes))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        return self._policy().addCallback(lambda policy: policy.rules_for(user, namespace))

    def confirm_covered(self, user: User, namespace: str, rules: Iterable[Rule]) -> Deferred[None]:
        """
        Check for privilege escalation: users must not grant more than they have.

        :param rules: of the role, or of the bound role; :data:`~twisted_exec.auth.rules.ALL_RULES`
            for a role with an ``aggregationRule``.
        :return: fails with :class:`Forbidden` and the missing rules.
        """
        return Deferred.fromCoroutine(self._confirm_covered(user, namespace, tuple(rules)))

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Deferred[tuple[Rule, ...]]:
        """Return the rules of a binding's ``roleRef``; empty if the role does not exist."""
        return self._policy().addCallback(
            lambda policy: policy.rules_of(reference, namespace) or ()
        )

    async def _confirm_covered(self, user: User, namespace: str, rules: tuple[Rule, ...]) -> None:
        own = await self.rules_for(user, namespace)
        missing = uncovered(own, rules)
        if missing:
            raise Forbidden(
                f"user {user.name!r} is attempting to grant RBAC permissions not currently held: "
                + listed((str(rule.to_object()) for rule in missing), 5, "; ")
            )

    def _policy(self) -> Deferred[Permissions]:
        return self._source.snapshot().addCallback(self._understood)

    def _understood(self, objects: RBACObjects) -> Permissions:
        if self._current is None or objects is not self._objects:
            self._objects, self._current = objects, Permissions(objects)
        return self._current


@dataclass(frozen=True)
class _Grant:
    rules: tuple[Rule, ...]
    description: str


_Subjects = dict[tuple[str, str], list[_Grant]]
"""Grants by ``("User", name)`` or ``("Group", name)``."""


class Permissions:
    """All permissions at one moment."""

    def __init__(self, objects: RBACObjects) -> None:
        self._cluster_roles = aggregated_rules(objects.cluster_roles)
        self._roles = {
            (_namespace(role), _name(role)): _rules(role.get("rules")) for role in objects.roles
        }
        self._scopes: dict[str, _Subjects] = {}
        """By namespace; empty for the whole cluster."""
        for binding in objects.cluster_role_bindings:
            self._bind(binding, "")
        for binding in objects.role_bindings:
            self._bind(binding, _namespace(binding))

    def decide(self, attributes: Attributes) -> Decision:
        """Return whether the request is allowed, with the reason."""
        if MASTERS in attributes.user.groups:
            return Decision(True, f"RBAC: group {MASTERS!r} may do everything")
        namespace = attributes.namespace if attributes.resource else ""
        for grant in self._grants(attributes.user, namespace):
            if any(rule.allows(attributes) for rule in grant.rules):
                return Decision(True, f"RBAC: allowed by {grant.description}")
        return Decision(False, "")

    def rules_for(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return a user's rules in a namespace (empty: cluster-wide only), each once."""
        if MASTERS in user.groups:
            return ALL_RULES
        grants = self._grants(user, namespace)
        return tuple(dict.fromkeys(rule for grant in grants for rule in grant.rules))

    def rules_of(self, reference: ReadOnlyObject, namespace: str) -> tuple[Rule, ...] | None:
        """
        Return the rules of a ``roleRef``, or ``None`` if the role does not exist.

        :param namespace: of the binding; empty for a cluster role binding.
        """
        name = str(reference.get("name", ""))
        if reference.get("kind") == "ClusterRole":
            return self._cluster_roles.get(name)
        if reference.get("kind") == "Role" and namespace:
            return self._roles.get((namespace, name))
        return None

    def _grants(self, user: User, namespace: str) -> Iterator[_Grant]:
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in dict.fromkeys(("", namespace)):
            granted = self._scopes.get(scope, {})
            for subject in subjects:
                yield from granted.get(subject, ())

    def _bind(self, binding: ReadOnlyObject, namespace: str) -> None:
        reference = binding.get("roleRef")
        if not isinstance(reference, Mapping):
            return
        # A role that does not exist grants nothing until it is created.
        rules = self.rules_of(reference, namespace)
        if not rules:
            return
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        where = f"{namespace}/{_name(binding)}" if namespace else _name(binding)
        role = f"{reference.get('kind')} {str(reference.get('name'))!r}"
        grant = _Grant(rules, f"{kind} {where!r} of {role}")
        scope = self._scopes.setdefault(namespace, {})
        for subject in dict.fromkeys(subjects(binding, namespace)):
            scope.setdefault(subject, []).append(grant)


def subjects(binding: ReadOnlyObject, namespace: str) -> Iterator[tuple[str, str]]:
    for subject in _objects(binding.get("subjects")):
        kind, name = subject.get("kind"), str(subject.get("name") or "")
        if kind == "ServiceAccount":
            home = str(subject.get("namespace") or namespace)
            if home and name:
                yield "User", f"{SERVICE_ACCOUNT_PREFIX}{home}:{name}"
        elif kind in ("User", "Group") and name:
            yield str(kind), name


def aggregated_rules(roles: Sequence[ReadOnlyObject]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of each ClusterRole, with those of the roles that it aggregates."""
    by_name = {_name(role): role for role in roles}
    gathered: dict[str, tuple[Rule, ...]] = {}
    for name, role in by_name.items():
        rules: dict[Rule, None] = {}
        for part in _reachable(role, roles):
            if not _selectors(part):
                rules.update(dict.fromkeys(_rules(part.get("rules"))))
        gathered[name] = tuple(rules)
    return gathered


def _reachable(role: ReadOnlyObject, roles: Sequence[ReadOnlyObject]) -> Iterator[ReadOnlyObject]:
    visited = {_name(role)}
    waiting = [role]
    while waiting:
        part = waiting.pop()
        yield part
        selectors = _selectors(part)
        for other in roles if selectors else ():
            labels = _labels(other)
            if _name(other) not in visited and any(_selects(each, labels) for each in selectors):
                visited.add(_name(other))
                waiting.append(other)


def _selectors(role: ReadOnlyObject) -> list[ReadOnlyObject]:
    aggregation = role.get("aggregationRule")
    if not isinstance(aggregation, Mapping):
        return []
    return list(_objects(aggregation.get("clusterRoleSelectors")))


def _selects(selector: ReadOnlyObject, labels: Mapping[str, str]) -> bool:
    """Match a ``metav1.LabelSelector``.  An invalid one selects nothing."""
    match_labels = selector.get("matchLabels") or {}
    if not isinstance(match_labels, Mapping):
        return False
    if any(labels.get(key) != value for key, value in match_labels.items()):
        return False
    expressions = selector.get("matchExpressions") or []
    return isinstance(expressions, list) and all(_holds(each, labels) for each in expressions)


def _holds(expression: object, labels: Mapping[str, str]) -> bool:
    if not isinstance(expression, Mapping):
        return False
    key = str(expression.get("key", ""))
    values, operator = expression.get("values") or [], expression.get("operator")
    if not isinstance(values, list) or bool(values) is not (operator in WITH_VALUES):
        return False
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _objects(value: object) -> Iterable[ReadOnlyObject]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return [each for each in value if isinstance(each, Mapping)]


def _rules(value: object) -> tuple[Rule, ...]:
    return tuple(Rule.from_object(each) for each in _objects(value))


def _metadata(obj: ReadOnlyObject) -> ReadOnlyObject:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _name(obj: ReadOnlyObject) -> str:
    return str(_metadata(obj).get("name", ""))


def _namespace(obj: ReadOnlyObject) -> str:
    return str(_metadata(obj).get("namespace", ""))


def _labels(obj: ReadOnlyObject) -> Mapping[str, str]:
    labels = _metadata(obj).get("labels")
    return labels if isinstance(labels, Mapping) else {}
