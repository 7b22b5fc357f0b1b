"""
The rights at consoles in the answers to SelfSubjectRulesReviews.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from twisted_exec.api.agents import is_agent
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS
from twisted_exec.apiserver.interfaces import Strictness
from twisted_exec.auth.console_rights import OPENS_PODS, VERBS
from twisted_exec.auth.interfaces import IRulesAuthorizer, User
from twisted_exec.auth.rules import CONSOLE, Attributes, Rule
from twisted_exec.wire.session_terms import Right

_VERBS = tuple(sorted(VERBS))
_AGENT = "an agent may do only what its person may do, too: ask for each right"
_DRIVING = {Right.DRIVE.verb, Right.TAKEOVER.verb}
_PODS, _GROUP = PODS.resource.plural, PODS.resource.group
_POD_CONSOLE = f"{_PODS}/{CONSOLE}"
_POD_STREAMS = tuple(f"{_PODS}/{each}" for each in sorted(OPENS_PODS))


class ConsoleRules:
    """
    Lists the rules of users.

    :param authorizer: its rules for Pods follow from its rules for machines.
    """

    def __init__(
        self,
        authorizer: IRulesAuthorizer,
        dialects: Sequence[Dialect],
        strictness: Callable[[str, User], Strictness],
    ) -> None:
        self._authorizer, self._dialects, self._strictness = authorizer, dialects, strictness

    async def rules_for(self, user: User, namespace: str) -> tuple[Sequence[Rule], str]:
        """Return a user's rules in a namespace, and why the list is incomplete, if it is."""
        rules = await self._authorizer.rules_for(user, namespace)
        strictness = self._strictness(namespace, user)
        several = (self._with_consoles(each, strictness.strict) for each in rules)
        unique = dict.fromkeys(rule for each in several for rule in each)
        return tuple(unique), _AGENT if is_agent(user.name) else strictness.problem

    def _with_consoles(self, rule: Rule, strict: bool) -> Iterator[Rule]:
        if _GROUP in rule.api_groups and {_POD_CONSOLE, *_POD_STREAMS} & {*rule.resources}:
            yield from _pod_rules(rule, strict)
            return
        yield rule
        if not strict:
            yield from self._included(rule)

    def _included(self, rule: Rule) -> Iterator[Rule]:
        name = rule.resource_names[0] if rule.resource_names else ""
        for dialect in self._dialects:
            machines = dialect.workload
            opening = Attributes(
                User(""), "create", machines.group, "", machines.plural, "exec", name=name
            )
            has_verbs = all(
                rule.allows(replace(opening, verb=verb, subresource=CONSOLE)) for verb in VERBS
            )
            if rule.allows(opening) and not has_verbs:
                console = (f"{machines.plural}/{CONSOLE}",)
                yield Rule(_VERBS, (machines.group,), console, rule.resource_names)


def _pod_rules(rule: Rule, strict: bool) -> Iterator[Rule]:
    opens = not strict and {*_POD_STREAMS} & {*rule.resources}
    drives = _POD_CONSOLE in rule.resources and _DRIVING & {*rule.verbs}
    others = tuple(each for each in rule.resources if each not in _POD_STREAMS)
    if others:
        yield replace(rule, resources=others)
    if opens or drives:
        yield Rule(("create", "get"), (_GROUP,), _POD_STREAMS, rule.resource_names)
    if opens:
        yield Rule(_VERBS, (_GROUP,), (_POD_CONSOLE,), rule.resource_names)
