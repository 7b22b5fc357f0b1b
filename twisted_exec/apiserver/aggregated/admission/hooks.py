"""
Webhook configurations of the host, as they are used.

The host has checked and completed them; what is read here is read leniently, and what cannot be
read is an error of the webhook that it belongs to, to be answered as its ``failurePolicy`` says.
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
    """One of ``matchConditions``: CEL that must be true for the rest to count."""

    name: str
    expression: str


@dataclass(frozen=True)
class Callee:
    """
    Where a webhook is, ``clientConfig``.

    :param url: ``https://HOST:PORT`` and a path.
    :param server_name: that its certificate must have.
    :param ca: PEM; empty for the CAs of the system.
    """

    url: str
    server_name: str
    ca: bytes = b""


@dataclass(frozen=True)
class Hook:
    """
    One webhook.

    :param uid: tells it from all others, those of the same name included.
    :param ignores_failures: ``failurePolicy: Ignore``: as if it were not there when it cannot
        be asked.
    :param dry_run: it may be asked about requests that are not carried out.
    :param callee: ``None`` when ``problem`` says why there is none.
    :param reinvoked: it wants to see again what others change after it.
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
    """All webhooks in the order in which they are asked: by the name of their configuration."""
    ordered = sorted(configurations, key=lambda each: str(each["metadata"]["name"]))
    return [hook for configuration in ordered for hook in _hooks(configuration)]


def _hooks(configuration: Object) -> Iterator[Hook]:
    name, seen = str(configuration["metadata"]["name"]), Counter[str]()
    for webhook in configuration.get("webhooks") or ():
        called = str(webhook.get("name"))
        yield _hook(name, f"{name}/{called}/{seen[called]}", webhook)
        seen[called] += 1


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


def conditions(told: Iterable[Mapping[str, Any]] | None) -> tuple[Condition, ...]:
    """``matchConditions`` of a webhook or a policy."""
    return tuple(
        Condition(str(each.get("name")), str(each.get("expression"))) for each in told or ()
    )


def _callee(told: Mapping[str, Any]) -> Callee:
    """
    :raises ValueError: it says nowhere, or nowhere safe.
    """
    try:
        ca = base64.b64decode(told.get("caBundle") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("clientConfig.caBundle is not base64") from None
    service = told.get("service")
    if service:
        # As the name that the cluster's DNS has for it, which its certificate has as well.
        host = f"{service.get('name')}.{service.get('namespace')}.svc"
        path = str(service.get("path") or "/")
        return Callee(f"https://{host}:{service.get('port') or 443}{path}", host, ca)
    url = urlsplit(str(told.get("url") or ""))
    if url.scheme != "https" or not url.hostname:
        raise ValueError("webhook configuration must have either service or an https URL")
    return Callee(url._replace(path=url.path or "/").geturl(), url.hostname, ca)
