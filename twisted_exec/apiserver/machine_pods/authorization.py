"""
Who may do what with Pods that are machines.

A Pod has no permissions of its own: to see one is to see its machine, to attach to one is to open
its machine's console.  So what is asked about a Pod is asked about its machine, for requests and
for access reviews alike; rules that name ``pods`` grant nothing.  Where there are machines of several
dialects, what names no Pod is about all of them, and needs to be allowed for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS
from twisted_exec.apiserver.machine_pods.conversion import PodNames
from twisted_exec.auth.interfaces import Attributes, Decision, IRulesAuthorizer, User
from twisted_exec.auth.rbac.rules import ALL, Rule

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
    :param names: which Pod is which machine.
    """

    def __init__(self, authorizer: IRulesAuthorizer, names: PodNames) -> None:
        self._authorizer, self._names = authorizer, names

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        if not _is_pod(attributes):
            return self._decide(attributes)
        return Deferred.fromCoroutine(self._authorize(attributes))

    async def _authorize(self, attributes: Attributes) -> Decision:
        decision = Decision(False, f"{_GRANTS_NOTHING}, and are read-only")
        for asked in machine_attributes(attributes, self._names):
            decision = _explained(await self._decide(asked), asked)
            if not decision.allowed:
                break
        return decision

    def _decide(self, attributes: Attributes) -> Deferred[Decision]:
        decided: Deferred[Decision] = self._authorizer.authorize(attributes)
        return decided

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """As :meth:`IRulesAuthorizer.rules_for`."""
        found: Deferred[tuple[Rule, ...]] = self._authorizer.rules_for(user, namespace)
        return found.addCallback(lambda rules: tuple(dict.fromkeys(self._with_pods(rules))))

    def _with_pods(self, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        """Rules as they are, but what they say of pods is what they say of machines."""
        for rule in rules:
            kept = _without_pods(rule)
            if kept is not None:
                yield kept
            if not _says_all(rule):
                yield from self._pods_of(rule, rules)

    def _pods_of(self, rule: Rule, rules: tuple[Rule, ...]) -> Iterator[Rule]:
        """What a rule on machines allows on their Pods, one rule for each set of verbs."""
        if not rule.resource_names:
            # About all Pods: there must be such a rule for each dialect.
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


def _is_pod(asked: Attributes) -> bool:
    return asked.group == PODS.resource.group and asked.resource == PODS.resource.plural


def machine_attributes(asked: Attributes, names: PodNames) -> tuple[Attributes, ...]:
    """
    What is asked about machines by asking this about a Pod, or about all Pods.

    :return: all of it must be allowed; empty when nothing allows it.
    """
    if asked.verb == "create" and not asked.subresource and asked.name in _NEEDED:
        # kubectl auth can-i create pods/exec asks for a Pod of that name, and means this.
        asked = replace(asked, subresource=asked.name, name="")
    if not asked.name:
        every = ((dialect, _of_machines(asked, dialect)) for dialect in names.dialects)
        return tuple(told for _, told in every if told is not None)
    dialect, name = names.machine(asked.name)
    told = _of_machines(replace(asked, name=name), dialect)
    return () if told is None else (told,)


def _of_machines(asked: Attributes, dialect: Dialect) -> Attributes | None:
    """What is asked about a dialect's machines; ``None``: nothing allows it."""
    needed = _NEEDED.get(asked.subresource, {}).get(asked.verb)
    if needed is None:
        return None
    verb, subresource = needed
    return replace(
        asked,
        verb=verb,
        group=dialect.group,
        version=dialect.version,
        resource=dialect.workload.plural,
        subresource=subresource,
    )


def _explained(decision: Decision, asked: Attributes) -> Decision:
    """A refusal says what would be needed."""
    if decision.allowed or decision.hidden:
        return decision
    needed = f"{asked.verb} {asked.resource}"
    needed += f"/{asked.subresource}" if asked.subresource else ""
    told = f"a pod here is a machine: this needs {needed} in API group {asked.group}"
    return Decision(False, f"{told}; {decision.reason}" if decision.reason else told)


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


_Key = tuple[str, str]
"""A verb, and a subresource of Pods."""
_KEYS: tuple[_Key, ...] = tuple(
    (verb, subresource) for subresource, needed in _NEEDED.items() for verb in sorted(needed)
)


def _allowed(rule: Rule, dialect: Dialect) -> set[_Key]:
    """What a rule on machines of a dialect allows on their Pods, or on those that it names."""
    return {key for key in _KEYS if _allows(rule, dialect, key)}


def _allows(rule: Rule, dialect: Dialect, key: _Key) -> bool:
    name = rule.resource_names[0] if rule.resource_names else ""
    verb, subresource = key
    asked = Attributes(User(""), verb, name=name, subresource=subresource)
    needed = _of_machines(asked, dialect)
    return needed is not None and rule.allows(needed)


def _any_allows(rules: tuple[Rule, ...], dialect: Dialect, key: _Key) -> bool:
    return any(not rule.resource_names and _allows(rule, dialect, key) for rule in rules)


def _rules_of(allowed: set[_Key], names: tuple[str, ...] = ()) -> Iterator[Rule]:
    """Rules on Pods that allow just this, one for each set of verbs."""
    resource = PODS.resource
    by_verbs: dict[tuple[str, ...], list[str]] = {}
    for subresource in _NEEDED:
        verbs = tuple(verb for verb, of in _KEYS if of == subresource and (verb, of) in allowed)
        if verbs:
            told = f"{resource.plural}/{subresource}" if subresource else resource.plural
            by_verbs.setdefault(verbs, []).append(told)
    for verbs, resources in by_verbs.items():
        yield Rule(verbs, (resource.group,), tuple(resources), names)
