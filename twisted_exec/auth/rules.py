"""
Attributes of requests, and RBAC rules: matching, and covering of rules by others.

Source: ``k8s.io/kubernetes/pkg/apis/rbac/v1/evaluation_helpers.go`` for matching,
``k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go`` for covering.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import Any

from twisted_exec.api.selectors import EVERYTHING, FieldSelector
from twisted_exec.api.status import BadRequest
from twisted_exec.api.users import User

ALL = "*"
CONSOLE = "console"
"""The virtual subresource of machines; its verbs are the rights of users at consoles."""
_KEYS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
_MOST_COMBINATIONS = 10_000
_MOST_COMPARISONS = 100_000


@dataclass(frozen=True)
class Rule:
    """
    One rule of a role.

    ``resources`` are plurals, ``plural/subresource``, ``*/subresource`` or ``*`` (which includes
    subresources).  Empty ``resource_names`` means every name.
    """

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()

    @classmethod
    def from_object(cls, rule: Mapping[str, Any]) -> Rule:
        """Parse a ``rules`` item of a Role."""
        return cls(*(_strings(rule.get(key)) for key in _KEYS))

    def to_object(self) -> dict[str, list[str]]:
        """Convert to a ``rules`` item; empty fields are left out, except ``verbs``."""
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

    def allows(self, attributes: Attributes) -> bool:
        """Return whether this rule allows the request, regardless of the user."""
        if not _has(self.verbs, attributes.verb):
            return False
        if not attributes.resource:
            return any(_url_covers(url, attributes.path) for url in self.non_resource_urls)
        return (
            _has(self.api_groups, attributes.group)
            and _allows_resource(self.resources, attributes.resource, attributes.subresource)
            and (not self.resource_names or attributes.name in self.resource_names)
        )

    def covers(self, other: Rule) -> bool:
        """Return whether this rule alone allows everything that ``other`` allows."""
        verbs, groups, resources, own_names, urls = self._sets
        return (
            (ALL in verbs or verbs.issuperset(other.verbs))
            and (ALL in groups or groups.issuperset(other.api_groups))
            and all(_resource_covers(resources, each) for each in other.resources)
            and (
                not own_names
                or (bool(other.resource_names) and own_names.issuperset(other.resource_names))
            )
            and all(
                each in urls or each.startswith(self._prefixes) for each in other.non_resource_urls
            )
        )

    # Kept, because a rule that has thousands of values is compared with thousands of rules.

    @cached_property
    def _sets(self) -> tuple[frozenset[str], ...]:
        return tuple(map(frozenset, self._fields()))

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple(url.rstrip(ALL) for url in self.non_resource_urls if url.endswith(ALL))

    def combinations(self) -> Iterator[Rule]:
        """Split into rules of one combination each."""
        for verb, group, resource in product(self.verbs, self.api_groups, self.resources):
            for name in self.resource_names or (None,):
                names = () if name is None else (name,)
                yield Rule((verb,), (group,), (resource,), names)
        for verb, url in product(self.verbs, self.non_resource_urls):
            yield Rule((verb,), non_resource_urls=(url,))

    def size(self) -> int:
        """Number of :meth:`combinations`."""
        names = max(1, len(self.resource_names))
        resources = len(self.api_groups) * len(self.resources) * names
        return len(self.verbs) * (resources + len(self.non_resource_urls))


ALL_RULES = (
    Rule((ALL,), (ALL,), (ALL,)),
    Rule((ALL,), non_resource_urls=(ALL,)),
)
"""The permissions needed to create an aggregated role."""


def uncovered(own: Sequence[Rule], required: Iterable[Rule]) -> list[Rule]:
    """
    Return the part of ``required`` that ``own`` does not allow.

    :return: rules of one combination each.
    :raises BadRequest: there are too many combinations to check.
    """
    missing: list[Rule] = []
    held, looked_at = _Held(own), 0
    for rule in dict.fromkeys(required):
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
    A user's rules, by the values in them.

    A rule is compared only with those that have its rarest value: a namespace's administrator can
    make thousands of rules, and a search through all of them would block the reactor.
    """

    def __init__(self, own: Sequence[Rule]) -> None:
        self._own = own
        self._comparisons = 0
        self._with: dict[tuple[str, str | None], list[Rule]] = {}
        """By key of the rule object and value; ``None`` for all names."""
        for rule in own:
            for key, values in zip(_KEYS, rule._fields(), strict=True):
                posted: set[str | None] = set(values)
                if key == "resourceNames":
                    posted = posted or {None}
                elif any(each.endswith(ALL) for each in values):
                    posted.add(ALL)
                for value in posted:
                    self._with.setdefault((key, value), []).append(rule)

    def covers(self, rule: Rule) -> bool:
        places = (
            (key, value)
            for key, values in zip(_KEYS, rule._fields(), strict=True)
            for value in (values or ((None,) if key == "resourceNames" else ()))
        )
        found = (self._candidates(key, value) for key, value in places)
        candidates = min(found, key=lambda lists: sum(map(len, lists)), default=[self._own])
        return any(self._compare(mine, rule) for mine in chain.from_iterable(candidates))

    def _candidates(self, key: str, value: str | None) -> list[Sequence[Rule]]:
        values = {value, None if key == "resourceNames" else ALL}
        if key == "resources" and value is not None and "/" in value:
            values.add(f"*/{value.partition('/')[2]}")
        return [self._with.get((key, each), ()) for each in values]

    def _compare(self, mine: Rule, rule: Rule) -> bool:
        self._comparisons += 1
        if self._comparisons > _MOST_COMPARISONS:
            raise BadRequest(
                f"the rules cannot be checked with {_MOST_COMPARISONS} comparisons with those of the "
                "user: split the role"
            )
        return mine.covers(rule)


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(each for each in value if isinstance(each, str))


def _has(allowed: Sequence[str], value: str) -> bool:
    return ALL in allowed or value in allowed


def _allows_resource(allowed: Sequence[str], resource: str, subresource: str) -> bool:
    if not subresource:
        return _has(allowed, resource)
    return _has(allowed, f"{resource}/{subresource}") or f"*/{subresource}" in allowed


def _resource_covers(own: Set[str], required: str) -> bool:
    if ALL in own or required in own:
        return True
    _, slash, subresource = required.partition("/")
    return bool(slash) and f"*/{subresource}" in own


def _url_covers(own: str, required: str) -> bool:
    return own == required or (own.endswith(ALL) and required.startswith(own.rstrip(ALL)))


@dataclass(frozen=True)
class Attributes:
    """
    The action that an authorizer decides about: on a resource, or on a path.

    :param verb: a Kubernetes verb, or for a path the HTTP method in lower case.
    :param strict: ``create`` on ``machines/exec`` does not include the verb.
    :param field_selector: of a list, a watch or a deletecollection.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: FieldSelector = EVERYTHING
    strict: bool = False
