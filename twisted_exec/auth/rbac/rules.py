"""
RBAC's rules: what one allows, and whether some cover others.

Pure functions on plain values.  Source:
``k8s.io/kubernetes/pkg/apis/rbac/v1/evaluation_helpers.go`` for matching,
``k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go`` for covering.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from twisted_exec.api.status import BadRequest
from twisted_exec.auth.interfaces import Attributes

ALL = "*"
_MOST_COMBINATIONS = 10_000


@dataclass(frozen=True)
class Rule:
    """
    One rule of a role.

    ``resources`` are plurals, ``plural/subresource``, ``*/subresource`` or ``*`` (which means
    subresources as well).  Empty ``resource_names`` means every name.
    """

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()

    @classmethod
    def from_object(cls, rule: Mapping[str, Any]) -> Rule:
        """From the ``rules`` item of a Role.  What is not a list of strings is as if absent."""
        return cls(*(_strings(rule.get(key)) for key in _KEYS))

    def to_object(self) -> dict[str, list[str]]:
        """As a ``rules`` item; empty fields are left out, except ``verbs``."""
        values = zip(_KEYS, self._fields(), strict=True)
        return {key: list(value) for key, value in values if value or key == "verbs"}

    def _fields(self) -> tuple[tuple[str, ...], ...]:
        return (
            self.verbs,
            self.api_groups,
            self.resources,
            self.resource_names,
            self.non_resource_urls,
        )

    def allows(self, asked: Attributes) -> bool:
        """Whether this rule allows what is asked.  Who asks does not matter here."""
        if not _has(self.verbs, asked.verb):
            return False
        if not asked.resource:
            return any(_url_covers(url, asked.path) for url in self.non_resource_urls)
        return (
            _has(self.api_groups, asked.group)
            and _allows_resource(self.resources, asked.resource, asked.subresource)
            and (not self.resource_names or asked.name in self.resource_names)
        )

    def covers(self, other: Rule) -> bool:
        """Whether whatever ``other`` allows is allowed by this one rule."""
        return (
            _has_all(self.verbs, other.verbs)
            and _has_all(self.api_groups, other.api_groups)
            and all(_resource_covers(self.resources, each) for each in other.resources)
            and _names_cover(self.resource_names, other.resource_names)
            and all(
                any(_url_covers(url, each) for url in self.non_resource_urls)
                for each in other.non_resource_urls
            )
        )

    def combinations(self) -> Iterator[Rule]:
        """This rule as rules of one verb, group, resource and name each, or one verb and URL."""
        for verb, group, resource in product(self.verbs, self.api_groups, self.resources):
            for name in self.resource_names or (None,):
                names = () if name is None else (name,)
                yield Rule((verb,), (group,), (resource,), names)
        for verb, url in product(self.verbs, self.non_resource_urls):
            yield Rule((verb,), non_resource_urls=(url,))

    def size(self) -> int:
        """How many :meth:`combinations` there are."""
        names = max(1, len(self.resource_names))
        resources = len(self.api_groups) * len(self.resources) * names
        return len(self.verbs) * (resources + len(self.non_resource_urls))


_KEYS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")

EVERYTHING = (
    Rule((ALL,), (ALL,), (ALL,)),
    Rule((ALL,), non_resource_urls=(ALL,)),
)
"""What one must have to make a role that gathers others by label."""


def uncovered(own: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """
    What of ``wanted`` is not allowed by ``own``: the escalation check.

    :return: rules of one combination each; empty when all is covered.
    :raises BadRequest: there are too many combinations to look at.
    """
    missing: list[Rule] = []
    held, looked_at = _Held(own), 0
    for rule in dict.fromkeys(wanted):
        is_covered = held.covers(rule)
        looked_at += 1 if is_covered else max(1, rule.size())
        if looked_at > _MOST_COMBINATIONS:
            raise BadRequest(
                "the rules have too many combinations of verbs, groups, resources and names "
                f"to be checked (more than {_MOST_COMBINATIONS}): split the role"
            )
        if not is_covered:
            missing += [each for each in rule.combinations() if not held.covers(each)]
    return missing


class _Held:
    """
    The rules that someone has, by what they are about: to look through all of them for thousands of
    others takes seconds, of everybody's time.
    """

    def __init__(self, own: Sequence[Rule]) -> None:
        self._own = own
        self._about: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Rule]] = {}

    def covers(self, rule: Rule) -> bool:
        """Whether one of them allows whatever ``rule`` allows."""
        key = rule.verbs, rule.api_groups
        if key not in self._about:
            self._about[key] = [
                mine
                for mine in self._own
                if _has_all(mine.verbs, rule.verbs) and _has_all(mine.api_groups, rule.api_groups)
            ]
        return any(mine.covers(rule) for mine in self._about[key])


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(each for each in value if isinstance(each, str))


def _has(allowed: Sequence[str], asked: str) -> bool:
    return ALL in allowed or asked in allowed


def _has_all(allowed: Sequence[str], asked: Iterable[str]) -> bool:
    return ALL in allowed or set(asked) <= set(allowed)


def _allows_resource(allowed: Sequence[str], resource: str, subresource: str) -> bool:
    if not subresource:
        return _has(allowed, resource)
    return _has(allowed, f"{resource}/{subresource}") or f"*/{subresource}" in allowed


def _resource_covers(own: Sequence[str], wanted: str) -> bool:
    if _has(own, wanted):
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in own


def _names_cover(own: Sequence[str], wanted: Sequence[str]) -> bool:
    return not own or (bool(wanted) and set(wanted) <= set(own))


def _url_covers(own: str, wanted: str) -> bool:
    return own == wanted or (own.endswith(ALL) and wanted.startswith(own.rstrip(ALL)))
