"""
Authorization of requests for Pods that are machines, by the rights on the machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.auth.default_roles import CONSOLE_LOG_READER, CONSOLE_USER, smallest_role
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import ALL, Attributes, Rule

_OPEN = {"create": ("create", "exec"), "get": ("create", "exec")}
"""A browser opens a WebSocket with GET, which must need no lesser permission."""

_NEEDED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "": {verb: (verb, "") for verb in ("get", "list", "watch")},
    "status": {"get": ("get", "status")},
    "attach": _OPEN,
    "exec": _OPEN,
    "console": {verb: (verb, "console") for verb in ("observe", "drive", "takeover")},
    "log": {"get": ("get", "log")},
}
"""By the Pod's subresource and verb: verb and subresource for the machine."""

_GRANTS_NOTHING = "pods here are machines, seen by clients that know only pods"

_ROLES_TO_OPEN = f"; for kubectl logs {CONSOLE_LOG_READER}, for kubectl attach {CONSOLE_USER}"
"""kubectl reads the Pod first: a user who gets only the role for that would be refused again."""

_Key = tuple[str, str]
"""A verb, and a subresource of Pods."""
_KEYS: tuple[_Key, ...] = tuple(
    (verb, subresource) for subresource, needed in _NEEDED.items() for verb in sorted(needed)
)


@implementer(IRulesAuthorizer)
class PodsAuthorizer:
    """
    Decides for Pods as for their machines; passes everything else on.

    A Pod has no permissions of its own: reading a Pod is reading its machine, attaching to it is
    opening the machine's console. Rules for ``pods`` grant nothing.
    """

    def __init__(self, authorizer: IRulesAuthorizer, names: PodNames) -> None:
        self._authorizer, self._names = authorizer, names

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        if not is_pod(attributes):
            return self._decide(attributes)
        return Deferred.fromCoroutine(self._authorize(attributes))

    async def _authorize(self, attributes: Attributes) -> Decision:
        decision = Decision(False, f"{_GRANTS_NOTHING}, and are read-only")
        for each in machine_attributes(attributes, self._names):
            decision = _explained(await self._decide(each), each)
            if decision.visibility is not None:
                # It judges machines, and would be given their Pods: a machine of another name.
                decision = Decision(False, f"{_GRANTS_NOTHING}; you may see some machines only")
            if not decision.allowed:
                break
        return decision

    def _decide(self, attributes: Attributes) -> Deferred[Decision]:
        decided: Deferred[Decision] = self._authorizer.authorize(attributes)
        return decided

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        current: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        return current.addCallback(lambda rules: tuple(dict.fromkeys(self._with_pods(rules))))

    def _with_pods(self, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        for rule in rules:
            remaining = _without_pods(rule)
            if remaining is not None:
                yield remaining
            if not _says_all(rule):
                yield from self._pods_of(rule, rules)

    def _pods_of(self, rule: Rule, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        if not rule.resource_names:
            # For all Pods: each dialect needs such a rule.
            first, *others = self._names.dialects
            yield from _rules_of(
                {
                    key
                    for key in _allowed(rule, first)
                    if all(_any_allows(rules, dialect, key) for dialect in others)
                }
            )
            return
        for dialect in self._names.dialects:
            pods = tuple(self._names.pod(dialect, name) for name in rule.resource_names)
            yield from _rules_of(_allowed(rule, dialect), pods)


def is_pod(attributes: Attributes) -> bool:
    """Return whether a request is about a Pod, or about Pods."""
    return attributes.group == PODS.resource.group and attributes.resource == PODS.resource.plural


def machine_attributes(attributes: Attributes, names: PodNames) -> tuple[Attributes, ...]:
    """
    Return the requests for machines that a request for Pods stands for.

    :return: empty when nothing can allow the request; else all of them must be allowed.
    """
    if attributes.verb == "create" and not attributes.subresource and attributes.name in _NEEDED:
        # kubectl auth can-i create pods/exec sends the subresource as the name.
        attributes = replace(attributes, subresource=attributes.name, name="")
    if not attributes.name:
        every = ((dialect, _machine_attributes(attributes, dialect)) for dialect in names.dialects)
        return tuple(each for _, each in every if each is not None)
    dialect, name = names.machine(attributes.name)
    each = _machine_attributes(replace(attributes, name=name), dialect)
    return () if each is None else (each,)


def _machine_attributes(attributes: Attributes, dialect: Dialect) -> Attributes | None:
    required = _NEEDED.get(attributes.subresource, {}).get(attributes.verb)
    if required is None:
        return None
    verb, subresource = required
    return replace(
        attributes,
        verb=verb,
        group=dialect.group,
        version=dialect.version,
        resource=dialect.workload.plural,
        subresource=subresource,
    )


def _explained(decision: Decision, attributes: Attributes) -> Decision:
    if decision.allowed or decision.hidden:
        return decision
    needed = f"{attributes.verb} {attributes.resource}"
    needed += f"/{attributes.subresource}" if attributes.subresource else ""
    message = f"a pod here is a machine: this needs {needed} in API group {attributes.group}"
    role = smallest_role(
        attributes.verb, attributes.group, attributes.resource, attributes.subresource
    )
    if role:
        message += f" (the default role {role} suffices{_ROLES_TO_OPEN if role == 'view' else ''})"
    return Decision(False, f"{message}; {decision.reason}" if decision.reason else message)


def _without_pods(rule: Rule) -> Rule | None:
    if PODS.resource.group not in rule.api_groups and ALL not in rule.api_groups:
        return rule
    pods = PODS.resource.plural
    remaining = tuple(each for each in rule.resources if each.partition("/")[0] != pods)
    if len(remaining) == len(rule.resources):
        return rule
    return replace(rule, resources=remaining) if remaining else None


def _says_all(rule: Rule) -> bool:
    return ALL in rule.api_groups and ALL in rule.resources


def _allowed(rule: Rule, dialect: Dialect) -> set[_Key]:
    return {key for key in _KEYS if _allows(rule, dialect, key)}


def _allows(rule: Rule, dialect: Dialect, key: _Key) -> bool:
    name = rule.resource_names[0] if rule.resource_names else ""
    verb, subresource = key
    attributes = Attributes(User(""), verb, name=name, subresource=subresource)
    needed = _machine_attributes(attributes, dialect)
    return needed is not None and rule.allows(needed)


def _any_allows(rules: tuple[Rule, ...], dialect: Dialect, key: _Key) -> bool:
    return any(not rule.resource_names and _allows(rule, dialect, key) for rule in rules)


def _rules_of(allowed: set[_Key], names: tuple[str, ...] = ()) -> Iterator[Rule]:
    resource = PODS.resource
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for subresource in _NEEDED:
        verbs = tuple(verb for verb, of in _KEYS if of == subresource and (verb, of) in allowed)
        if verbs:
            name = f"{resource.plural}/{subresource}" if subresource else resource.plural
            by_verbs.setdefault(verbs, []).append(name)
    for verbs, resources in by_verbs.items():
        yield Rule(verbs, (resource.group,), tuple(resources), names)
