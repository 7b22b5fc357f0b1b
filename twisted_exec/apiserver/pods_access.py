"""
Who may do what with Pods that are machines.

A Pod has no permissions of its own: to see one is to see its machine, to attach to one is to open
its machine's console.  So what is asked about a Pod is asked about its machine, for requests and
for access reviews alike; rules that name ``pods`` grant nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twisted.internet import defer
from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import MACHINES, PODS
from twisted_exec.auth.interfaces import Attributes, Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import ALL, Rule

_OPEN = {"create": ("create", "exec"), "get": ("create", "exec")}
"""A browser opens a WebSocket with GET, which must not be cheaper."""

_NEEDED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "": {verb: (verb, "") for verb in ("get", "list", "watch")},
    "status": {"get": ("get", "status")},
    "attach": _OPEN,
    "exec": _OPEN,
    "log": {"get": ("get", "log")},
}
"""By a Pod's subresource and the verb on it: verb and subresource that its machine needs."""

_GRANTS_NOTHING = "pods here are machines, seen by clients that know only pods"


@implementer(IRulesAuthorizer)
class PodsAuthorizer:
    """
    Decides about Pods as about their machines, and about all else as another one does.

    :param authorizer: that other one.
    """

    def __init__(self, authorizer: IRulesAuthorizer) -> None:
        self._authorizer = authorizer

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        if not _is_pod(attributes):
            return self._decide(attributes)
        asked = machine_attributes(attributes)
        if asked is None:
            return defer.succeed(Decision(False, f"{_GRANTS_NOTHING}, and are read-only"))
        return self._decide(asked).addCallback(_explained, asked)

    def _decide(self, attributes: Attributes) -> Deferred[Decision]:
        decided: Deferred[Decision] = self._authorizer.authorize(attributes)
        return decided

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """As :meth:`IRulesAuthorizer.rules_for`."""
        found: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        return found.addCallback(lambda rules: tuple(dict.fromkeys(_with_pods(rules))))


def _is_pod(asked: Attributes) -> bool:
    return asked.group == PODS.resource.group and asked.resource == PODS.resource.plural


def machine_attributes(asked: Attributes) -> Attributes | None:
    """What is asked about a machine by asking this about its Pod; ``None``: nothing allows it."""
    if asked.verb == "create" and not asked.subresource and asked.name in _NEEDED:
        # kubectl auth can-i create pods/exec asks for a Pod of that name, and means this.
        asked = replace(asked, subresource=asked.name, name="")
    needed = _NEEDED.get(asked.subresource, {}).get(asked.verb)
    if needed is None:
        return None
    verb, subresource = needed
    resource = MACHINES.resource
    return replace(
        asked,
        verb=verb,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=subresource,
    )


def _explained(decision: Decision, asked: Attributes) -> Decision:
    """A refusal says what would be needed."""
    if decision.allowed:
        return decision
    needed = f"{asked.verb} {MACHINES.resource.plural}"
    needed += f"/{asked.subresource}" if asked.subresource else ""
    told = f"a pod here is a machine: this needs {needed} in API group {asked.group}"
    return Decision(False, f"{told}; {decision.reason}" if decision.reason else told)


def _with_pods(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    """Rules as they are, but what they say of pods is what they say of machines."""
    for rule in rules:
        kept = _without_pods(rule)
        if kept is not None:
            yield kept
        if not _says_all(rule):
            yield from _pods_of(rule)


def _without_pods(rule: Rule) -> Rule | None:
    """``None`` when nothing is left.  No other group here has pods."""
    if PODS.resource.group not in rule.api_groups and ALL not in rule.api_groups:
        return rule
    pods = PODS.resource.plural
    kept = tuple(each for each in rule.resources if each.partition("/")[0] != pods)
    if len(kept) == len(rule.resources):
        return rule
    return replace(rule, resources=kept) if kept else None


def _says_all(rule: Rule) -> bool:
    return ALL in rule.api_groups and ALL in rule.resources


def _pods_of(rule: Rule) -> Iterator[Rule]:
    """What a rule on machines allows on their Pods, one rule for each set of verbs."""
    resource = PODS.resource
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for subresource, needed in _NEEDED.items():
        allowed = tuple(verb for verb in sorted(needed) if _allows(rule, verb, subresource))
        if allowed:
            name = f"{resource.plural}/{subresource}" if subresource else resource.plural
            by_verbs.setdefault(allowed, []).append(name)
    for verbs, names in by_verbs.items():
        yield Rule(verbs, (resource.group,), tuple(names), rule.resource_names)


def _allows(rule: Rule, verb: str, subresource: str) -> bool:
    name = rule.resource_names[0] if rule.resource_names else ""
    asked = Attributes(User(""), verb, resource=PODS.resource.plural, subresource=subresource)
    needed = machine_attributes(replace(asked, name=name))
    return needed is not None and rule.allows(needed)
