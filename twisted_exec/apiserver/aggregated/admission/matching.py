"""
Webhook configurations of the host, and matching of requests to webhooks and policies, without I/O.

Source: ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates`` and
``.../policy/matching``.

``matchPolicy: Equivalent`` also matches other groups and versions of the same resource. Our kinds
have one version, so this equals ``Exact``.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.api.kinds import Object
from twisted_exec.api.selectors import LabelSelector, of_object
from twisted_exec.auth.interfaces import User

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
"""Operations of an AdmissionReview."""

_ANY = "*"

DEFAULT_SECONDS = 10.0
_MOST_SECONDS = 30.0
_DRY_RUN = ("None", "NoneOnDryRun")


@dataclass(frozen=True)
class AdmissionAttributes:
    """
    A request, as seen by admission.

    :param name: may be empty for an object with a generated name.
    :param new: ``None`` for DELETE; options of the stream for CONNECT.
    :param old: ``None`` for CREATE and CONNECT.
    :param options: a complete object, such as ``CreateOptions``; ``None`` for CONNECT.
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
        """The resource in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


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
            and any(_fits(each, attributes) for each in self.resources)
            and (not self.names or attributes.name in self.names)
        )

    def _in_scope(self, attributes: AdmissionAttributes) -> bool:
        if self.scope == "Namespaced":
            return bool(attributes.namespace)
        return self.scope == _ANY or (self.scope == "Cluster" and not attributes.namespace)


def _among(items: frozenset[str], item: str) -> bool:
    return _ANY in items or item in items


def _fits(named: str, attributes: AdmissionAttributes) -> bool:
    """``machines`` excludes ``machines/status``; ``*`` means all resources, ``*/*`` everything."""
    resource, _, subresource = named.partition("/")
    return resource in (_ANY, attributes.plural) and subresource in (_ANY, attributes.subresource)


@dataclass(frozen=True)
class Reach:
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

    def names(self, attributes: AdmissionAttributes) -> bool:
        """Return whether rules and object selector match; see :meth:`fits_namespace` for the rest."""
        if any(rule.matches(attributes) for rule in self.excluded):
            return False
        if self.rules is not None and not any(rule.matches(attributes) for rule in self.rules):
            return False
        return not self.objects.requirements or any(
            self.objects.matches(_labels(obj))
            for obj in (attributes.new, attributes.old)
            if _has_labels(obj)
        )

    def asks_namespace(self, attributes: AdmissionAttributes) -> bool:
        """Return whether the namespace's labels matter."""
        return bool(self.namespaces.requirements and attributes.namespace)

    def fits_namespace(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of the namespace match."""
        return self.namespaces.matches(labels)


def _has_labels(obj: Object | None) -> bool:
    # The options of a stream are no object, so an object selector never matches them.
    return obj is not None and "metadata" in obj


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def webhook_reach(webhook: Mapping[str, Any]) -> Reach:
    """The requests of a webhook; without rules there are none."""
    return _reach(webhook, _rules(webhook.get("rules")), ())


def policy_reach(constraints: Mapping[str, Any] | None) -> Reach:
    """The requests of ``matchConstraints`` or ``matchResources``; no ``resourceRules`` means all resources."""
    selection = constraints or {}
    rules = _rules(selection.get("resourceRules"))
    return _reach(selection, rules or None, _rules(selection.get("excludeResourceRules")))


def _reach(
    selection: Mapping[str, Any],
    rules: tuple[WebhookRule, ...] | None,
    excluded: tuple[WebhookRule, ...],
) -> Reach:
    try:
        objects = of_object(selection.get("objectSelector"))
        namespaces = of_object(selection.get("namespaceSelector"))
    except ValueError as error:
        return Reach(rules, excluded, problem=str(error))
    return Reach(rules, excluded, objects, namespaces)


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
class Condition:
    """A CEL expression that must be true for the webhook or policy to apply."""

    name: str
    expression: str


@dataclass(frozen=True)
class Callee:
    """
    Address of a webhook, from its ``clientConfig``.

    :param server_name: name to verify in the certificate.
    :param ca: PEM; empty for the system's CAs.
    """

    url: str
    server_name: str
    ca: bytes = b""


@dataclass(frozen=True)
class Hook:
    """
    One webhook.

    :param uid: unique even among webhooks of the same name.
    :param dry_run: it has no side effects on dry-run requests.
    """

    uid: str
    name: str
    configuration: str
    reach: Reach
    conditions: tuple[Condition, ...]
    ignores_failures: bool
    dry_run: bool
    seconds: float
    versions: tuple[str, ...]
    callee: Callee | None
    problem: str = ""
    reinvoked: bool = False


def hooks_of(configurations: Iterable[Object]) -> list[Hook]:
    """Return all webhooks in calling order."""
    ordered = sorted(configurations, key=lambda each: str(each["metadata"]["name"]))
    return [hook for configuration in ordered for hook in _hooks(configuration)]


def _hooks(configuration: Object) -> Iterator[Hook]:
    name, occurrences = str(configuration["metadata"]["name"]), Counter[str]()
    for webhook in configuration.get("webhooks") or ():
        called = str(webhook.get("name"))
        yield _hook(name, f"{name}/{called}/{occurrences[called]}", webhook)
        occurrences[called] += 1


def _hook(configuration: str, uid: str, webhook: Mapping[str, Any]) -> Hook:
    problem, callee = "", None
    try:
        callee = _callee(webhook.get("clientConfig") or {})
    except ValueError as error:
        problem = str(error)
    seconds = webhook.get("timeoutSeconds")
    return Hook(
        uid,
        str(webhook.get("name")),
        configuration,
        webhook_reach(webhook),
        conditions(webhook.get("matchConditions")),
        webhook.get("failurePolicy") == "Ignore",
        webhook.get("sideEffects") in _DRY_RUN,
        min(float(seconds), _MOST_SECONDS) if seconds else DEFAULT_SECONDS,
        tuple(webhook.get("admissionReviewVersions") or ()),
        callee,
        problem,
        webhook.get("reinvocationPolicy") == "IfNeeded",
    )


def conditions(entries: Iterable[Mapping[str, Any]] | None) -> tuple[Condition, ...]:
    return tuple(
        Condition(str(each.get("name")), str(each.get("expression"))) for each in entries or ()
    )


def _callee(client_config: Mapping[str, Any]) -> Callee:
    try:
        ca = base64.b64decode(client_config.get("caBundle") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("clientConfig.caBundle is not base64") from None
    service = client_config.get("service")
    if service:
        # The service's name in cluster DNS, which its certificate has as well.
        host = f"{service.get('name')}.{service.get('namespace')}.svc"
        path = str(service.get("path") or "/")
        return Callee(f"https://{host}:{service.get('port') or 443}{path}", host, ca)
    url = urlsplit(str(client_config.get("url") or ""))
    if url.scheme != "https" or not url.hostname:
        raise ValueError("webhook configuration must have either service or an https URL")
    return Callee(url._replace(path=url.path or "/").geturl(), url.hostname, ca)
