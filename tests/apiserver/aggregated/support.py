"""
A host in memory: a cluster that says whom to believe, and who may.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted_exec.api.kinds import (
    EVENTS,
    LEASES,
    NAMESPACES,
    SUBJECTACCESSREVIEWS,
    TOKENREVIEWS,
    Kind,
    Object,
)
from twisted_exec.apiserver.aggregated.trust import CONFIGMAPS, NAME, NAMESPACE
from twisted_exec.testing.cluster import MemoryCluster

PROXY = "front-proxy"
"""What the host's own proxy is called."""

_SERVED = (NAMESPACES, EVENTS, LEASES, Kind(CONFIGMAPS, "configmap"))


def configmap(client_ca: bytes, proxy_ca: bytes, **data: Any) -> Object:
    """The host's word on whom to believe; ``None`` takes a key away, a list becomes JSON."""
    told: dict[str, Any] = {
        "client-ca-file": client_ca.decode(),
        "requestheader-client-ca-file": proxy_ca.decode(),
        "requestheader-allowed-names": [PROXY],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
    }
    told |= {key.replace("_", "-"): value for key, value in data.items()}
    return {
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in told.items()
            if value is not None
        },
    }


class Host:
    """
    The cluster.

    :ivar rights: granted rights, as ``(user, verb, resource with subresource)``.
    :ivar tokens: the user of each token, as the ``user`` of a TokenReview.
    :ivar asked: the ``spec`` of each SubjectAccessReview so far.
    """

    def __init__(self) -> None:
        self.cluster = MemoryCluster(_SERVED)
        self.client = self.cluster.client()
        self.rights: set[tuple[str, str, str]] = set()
        self.tokens: dict[str, Object] = {}
        self.asked: list[Object] = []
        self.cluster.reviews[TOKENREVIEWS.resource] = self._token
        self.cluster.reviews[SUBJECTACCESSREVIEWS.resource] = self._access
        for name in ("default", "kube-system"):
            self.make(NAMESPACES, {"metadata": {"name": name}})

    def make(self, kind: Kind, obj: Object) -> None:
        """An object that there is, or is from now on."""
        namespace = obj["metadata"].get("namespace", "")
        key = (kind.resource, namespace, obj["metadata"]["name"])
        known = self.cluster.objects.get(key)
        uid = known["metadata"]["uid"] if known else f"uid-{len(self.cluster.objects)}"
        self.cluster.put(key, {**obj, "metadata": {**obj["metadata"], "uid": uid}})

    def say(self, told: Object) -> None:
        """Set the trusted CAs and proxies from now on."""
        self.make(_SERVED[-1], told)

    def _token(self, review: Object) -> Object:
        user = self.tokens.get(review["spec"]["token"])
        return {"authenticated": user is not None, "user": user}

    def _access(self, review: Object) -> Object:
        spec = review["spec"]
        self.asked.append(spec)
        told = spec.get("resourceAttributes", {})
        parts: Sequence[str] = [told.get("resource", ""), told.get("subresource", "")]
        resource = "/".join(filter(None, parts)) or spec["nonResourceAttributes"]["path"]
        verb = told.get("verb") or spec["nonResourceAttributes"]["verb"]
        return {"allowed": (spec["user"], verb, resource) in self.rights}
