"""
A leaf's ``metrics.k8s.io`` in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Kind
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.kubelet_api.usage import NODE_METRICS, POD_METRICS
from twisted_exec.testing.cluster import MemoryCluster

AT = "2026-11-20T12:00:00Z"
LATER = "2026-11-20T12:00:15Z"
NOON = 1_795_176_000


def serve_figures(leaf: MemoryCluster) -> None:
    """Have the API there at all."""
    for resource, singular in ((POD_METRICS, "pod"), (NODE_METRICS, "node")):
        leaf.kinds[resource] = Kind(resource=resource, singular=singular)


def put_usage(
    leaf: MemoryCluster,
    name: str,
    containers: Mapping[str, tuple[Any, Any]],
    *,
    namespace: str = "default",
    at: Any = AT,
    window: Any = "15.5s",
) -> Object:
    """Set the usage of a Pod's containers: processors and memory, as quantities."""
    return leaf.put(
        (POD_METRICS, namespace, name),
        {
            "metadata": {"name": name, "namespace": namespace},
            "timestamp": at,
            "window": window,
            "containers": [
                {"name": each, "usage": {"cpu": cpu, "memory": memory}}
                for each, (cpu, memory) in containers.items()
            ],
        },
    )


def put_node_usage(
    leaf: MemoryCluster,
    name: str,
    cpu: str,
    memory: str,
    *,
    at: str = AT,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Set the usage of a node."""
    return leaf.put(
        (NODE_METRICS, "", name),
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "timestamp": at,
            "window": "10s",
            "usage": {"cpu": cpu, "memory": memory},
        },
    )
