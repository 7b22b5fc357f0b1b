"""
Webhook configurations of the host, parsed.

The host has validated and defaulted them, so parsing is lenient.  A field that cannot be parsed is
an error of its webhook, handled by the webhook's ``failurePolicy``.
Source: ``k8s.io/api/admissionregistration/v1``.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.aggregated.admission.matching import Reach, webhook_reach

DEFAULT_SECONDS = 10.0
_MOST_SECONDS = 30.0
_DRY_RUN = ("None", "NoneOnDryRun")


@dataclass(frozen=True)
class Condition:
    """A match condition: a CEL expression that must be true for the webhook or policy to apply."""

    name: str
    expression: str


@dataclass(frozen=True)
class Callee:
    """
    Address of a webhook, from its ``clientConfig``.

    :param url: ``https://HOST:PORT`` and a path.
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
    :param ignores_failures: ``failurePolicy: Ignore``: a failed call counts as allowed.
    :param dry_run: it has no side effects on dry-run requests.
    :param callee: ``None`` if ``problem`` is set.
    :param reinvoked: ``reinvocationPolicy: IfNeeded``.
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
    """Return all webhooks in calling order: by the names of their configurations."""
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
    """Parse ``matchConditions`` of a webhook or policy."""
    return tuple(
        Condition(str(each.get("name")), str(each.get("expression"))) for each in entries or ()
    )


def _callee(client_config: Mapping[str, Any]) -> Callee:
    """
    :raises ValueError: no address, or not an https URL.
    """
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
