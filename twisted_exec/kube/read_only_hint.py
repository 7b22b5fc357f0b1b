"""The hint in a refusal that the user may open the console read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.missing_right import MAY_OBSERVE
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError

if TYPE_CHECKING:
    from twisted_exec.kube.client import KubeClient
    from twisted_exec.kube.interfaces import IKubeClient

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


async def is_allowed(
    client: IKubeClient,
    dialect: Dialect,
    namespace: str,
    verb: str,
    subresource: str,
    name: str = "",
) -> bool:
    """Return whether the server says that the user has a right at a machine, or without a name at all machines."""
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": dialect.group,
        "resource": dialect.workload.plural,
        "subresource": subresource,
        "name": name,
    }
    try:
        answer = await client.create(_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    except APIError:
        return False
    return bool((answer.get("status") or {}).get("allowed"))


async def suggest_read_only(
    refused: APIError, client: KubeClient, dialect: Dialect, namespace: str, name: str
) -> None:
    """Add to the message of a refusal that the user may observe the console, unless they may not."""
    for verb in _NEEDED:
        if not await is_allowed(client, dialect, namespace, verb, "console", name):
            return  # the refusal says enough
    hint = "you may observe it: open it with --read-only"
    refused.message += f": {hint}"
    refused.details["causes"] = [*refused.causes, {"reason": MAY_OBSERVE, "message": hint}]
