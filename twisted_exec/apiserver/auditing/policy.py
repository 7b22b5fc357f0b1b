"""
The audit policy, which selects the requests that are recorded.

It has the format of Kubernetes: ``audit.k8s.io/v1``, kind ``Policy``. Source:
``k8s.io/apiserver/pkg/audit/policy/checker.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from twisted_exec.auth.rules import Attributes
from twisted_exec.program.config_file import Reader, read_yaml

API_VERSIONS = ("audit.k8s.io/v1",)
READS = frozenset({"get", "list", "watch"})
_STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_COMPLETE = "ResponseComplete"


class AuditLevel(IntEnum):
    """The recorded parts of a request; each level includes the lower ones."""

    NONE = 0
    METADATA = 1
    """User, verb, object and result."""
    REQUEST = 2
    """Also the body of the request."""
    REQUEST_RESPONSE = 3
    """Also the body of the response."""


_LEVELS = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}


@dataclass(frozen=True)
class Resources:
    """
    Resources of one API group.

    :param resources: such as ``pods``, ``pods/status``, ``pods/*``, ``*/status`` or ``*``; empty
        for all of the group.
    :param names: names of objects; empty for all.
    """

    group: str
    resources: Sequence[str] = ()
    names: Sequence[str] = ()

    def match(self, attributes: Attributes) -> bool:
        """Return whether a request is about one of these resources."""
        if self.group != attributes.group:
            return False
        if not self.resources:
            return True
        if self.names and attributes.name not in self.names:
            return False
        resource, subresource = attributes.resource, attributes.subresource
        patterns = {"*", f"{resource}/*", f"{resource}/{subresource}" if subresource else resource}
        if subresource:
            patterns.add(f"*/{subresource}")
        return not patterns.isdisjoint(self.resources)


@dataclass(frozen=True)
class AuditRule:
    """
    One rule; an empty sequence places no condition on requests.

    :param paths: of requests without a resource; a final ``*`` stands for any rest.
    """

    level: AuditLevel
    users: Sequence[str] = ()
    groups: Sequence[str] = ()
    verbs: Sequence[str] = ()
    resources: Sequence[Resources] = ()
    namespaces: Sequence[str] = ()
    paths: Sequence[str] = ()
    omits_managed_fields: bool = False

    @property
    def covers_reads(self) -> bool:
        """Return whether the rule may record a read."""
        reads = not self.verbs or "*" in self.verbs or not READS.isdisjoint(self.verbs)
        return self.level > AuditLevel.NONE and reads

    def match(self, attributes: Attributes) -> bool:
        """Return whether the rule decides on a request."""
        user = attributes.user
        if self.users and user.name not in self.users:
            return False
        if self.groups and set(self.groups).isdisjoint(user.groups):
            return False
        if self.verbs and "*" not in self.verbs and attributes.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._match_resource(attributes)
        return not self.paths or self._match_path(attributes)

    def _match_resource(self, attributes: Attributes) -> bool:
        if not attributes.resource:
            return False
        if self.namespaces and attributes.namespace not in self.namespaces:
            return False
        return not self.resources or any(each.match(attributes) for each in self.resources)

    def _match_path(self, attributes: Attributes) -> bool:
        if attributes.resource:
            return False
        path = attributes.path
        return any(
            path.startswith(each[:-1]) if each.endswith("*") else path == each
            for each in self.paths
        )


@dataclass(frozen=True)
class AuditPolicy:
    """The rules, in order."""

    rules: Sequence[AuditRule] = ()

    @property
    def covers_reads(self) -> bool:
        """Return whether any rule may record a read."""
        return any(rule.covers_reads for rule in self.rules)

    def rule_for(self, attributes: Attributes) -> AuditRule:
        """Return the rule that decides on a request."""
        return next((rule for rule in self.rules if rule.match(attributes)), _NO_RULE)


_NO_RULE = AuditRule(AuditLevel.NONE)


def load(path: str) -> AuditPolicy:
    """
    Read a policy from a file.

    :raises ConfigError: it cannot be read, or is not a policy.
    """
    return parse(read_yaml(path), path)


def parse(document: object, source: str = "audit policy") -> AuditPolicy:
    """
    Read a policy.

    :param source: its name in messages.
    :raises ConfigError: it is not a policy, or has unknown fields.
    """
    reader = Reader(document, source)
    reader.choice("apiVersion", API_VERSIONS, "")
    reader.choice("kind", ("Policy",), "")
    reader.take("metadata", dict, {})
    _check_stages(reader)
    omits = reader.take("omitManagedFields", bool, False)
    entries = reader.take("rules", list)
    if not entries:
        raise reader.error("rules is empty: give at least one rule, such as - level: Metadata")
    rules = [_rule(each, f"{source}: rules[{i}]", omits) for i, each in enumerate(entries)]
    reader.done()
    return AuditPolicy(tuple(rules))


def _rule(document: object, where: str, omits: bool) -> AuditRule:
    reader = Reader(document, where)
    if not reader.has("level"):
        raise reader.error(f"level is missing: give one of {', '.join(_LEVELS)}")
    _check_stages(reader)
    rule = AuditRule(
        level=_LEVELS[reader.choice("level", tuple(_LEVELS), "")],
        users=_texts(reader, "users"),
        groups=_texts(reader, "userGroups"),
        verbs=_texts(reader, "verbs"),
        resources=tuple(
            _resources(each, f"{where}: resources[{i}]")
            for i, each in enumerate(reader.take("resources", list, []))
        ),
        namespaces=_texts(reader, "namespaces"),
        paths=_texts(reader, "nonResourceURLs"),
        omits_managed_fields=reader.take("omitManagedFields", bool, omits),
    )
    reader.done()
    if rule.paths and (rule.resources or rule.namespaces):
        raise reader.error("nonResourceURLs excludes resources and namespaces: make two rules")
    return rule


def _resources(document: object, where: str) -> Resources:
    reader = Reader(document, where)
    group = reader.take("group", str, "")
    resources, names = _texts(reader, "resources"), _texts(reader, "resourceNames")
    reader.done()
    if names and not resources:
        raise reader.error("resourceNames needs resources")
    return Resources(group, resources, names)


def _texts(reader: Reader, key: str) -> tuple[str, ...]:
    values: list[Any] = reader.take(key, list, [])
    if not all(isinstance(each, str) for each in values):
        raise reader.error(f"{key} must be a list of strings")
    return tuple(values)


def _check_stages(reader: Reader) -> None:
    stages = _texts(reader, "omitStages")
    unknown = [each for each in stages if each not in _STAGES]
    if unknown:
        raise reader.error(f"omitStages: {unknown[0]!r} is none of {', '.join(_STAGES)}")
    if _COMPLETE in stages:
        raise reader.error(
            f"omitStages: {_COMPLETE} is the only stage that is recorded; use level None"
        )


DEFAULT_POLICY = parse(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            {
                "level": "None",
                "resources": [
                    {"group": "", "resources": ["events"]},
                    {"group": "events.k8s.io"},
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                    {"group": "authentication.k8s.io"},
                    {"group": "authorization.k8s.io"},
                ],
            },
            {
                "level": "Metadata",
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            },
        ],
    }
)
"""Every change, except heartbeats, Events and reviews."""
