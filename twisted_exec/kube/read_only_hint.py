"""The hint in a refusal that the user may open the console read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError

if TYPE_CHECKING:
    from twisted_exec.kube.client import KubeClient

# That of api.kinds has a schema, whose import would take longer than the request.
_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_NEEDED = ("observe", "get")
"""Verbs on ``machines/console``: for our API server, and for the host."""


async def suggest_read_only(
    refused: APIError, client: KubeClient, dialect: Dialect, namespace: str, name: str
) -> None:
    """Add to the message of a refusal that the user may observe the console, unless they may not."""
    for verb in _NEEDED:
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": dialect.group,
            "resource": dialect.workload.plural,
            "subresource": "console",
            "name": name,
        }
        review = {"spec": {"resourceAttributes": attributes}}
        try:
            answer = await client.create(_REVIEWS, review)
        except APIError:
            return  # the refusal says enough
        if not (answer.get("status") or {}).get("allowed"):
            return
    refused.message += ": you may observe it: open it with --read-only"
