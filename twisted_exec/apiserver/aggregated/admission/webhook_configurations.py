"""
Webhook configurations of the host.
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
from twisted_exec.apiserver.aggregated.admission.matching import (
    MatchCriteria,
    NamedExpression,
    named_expressions,
    webhook_criteria,
)

DEFAULT_SECONDS = 10.0
_MOST_SECONDS = 30.0
_DRY_RUN = ("None", "NoneOnDryRun")


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
class Webhook:
    """
    One webhook.

    :param uid: unique even among webhooks of the same name.
    :param dry_run: it has no side effects on dry-run requests.
    """

    uid: str
    name: str
    configuration: str
    criteria: MatchCriteria
    conditions: tuple[NamedExpression, ...]
    ignores_failures: bool
    dry_run: bool
    seconds: float
    versions: tuple[str, ...]
    callee: Callee | None
    problem: str = ""
    reinvoked: bool = False


def webhooks_of(configurations: Iterable[Object]) -> list[Webhook]:
    """Return all webhooks in calling order."""
    ordered = sorted(configurations, key=lambda each: str(each["metadata"]["name"]))
    return [hook for configuration in ordered for hook in _webhooks_in(configuration)]


def _webhooks_in(configuration: Object) -> Iterator[Webhook]:
    name, occurrences = str(configuration["metadata"]["name"]), Counter[str]()
    for webhook in configuration.get("webhooks") or ():
        called = str(webhook.get("name"))
        yield _webhook(name, f"{name}/{called}/{occurrences[called]}", webhook)
        occurrences[called] += 1


def _webhook(configuration: str, uid: str, webhook: Mapping[str, Any]) -> Webhook:
    problem, callee = "", None
    try:
        callee = _callee(webhook.get("clientConfig") or {})
    except ValueError as error:
        problem = str(error)
    seconds = webhook.get("timeoutSeconds")
    return Webhook(
        uid,
        str(webhook.get("name")),
        configuration,
        webhook_criteria(webhook),
        named_expressions(webhook.get("matchConditions")),
        webhook.get("failurePolicy") == "Ignore",
        webhook.get("sideEffects") in _DRY_RUN,
        min(float(seconds), _MOST_SECONDS) if seconds else DEFAULT_SECONDS,
        tuple(webhook.get("admissionReviewVersions") or ()),
        callee,
        problem,
        webhook.get("reinvocationPolicy") == "IfNeeded",
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
