"""
``/stats/summary`` and ``/metrics/resource``: resource usage of Pods and Nodes, as from a kubelet.

``/metrics/resource/NODE`` selects one Node, for metrics-server's annotation
``metrics.k8s.io/resource-metrics-path``.

Sources: ``k8s.io/kubelet/pkg/apis/stats/v1alpha1``; ``pkg/kubelet/server/stats/handler.go`` of
Kubernetes.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.times import timestamp
from twisted_exec.nodeserver.kubelet_api.counters import NANOSECONDS, Counter
from twisted_exec.nodeserver.kubelet_api.resource_metrics import exposition
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route
from twisted_exec.nodeserver.kubelet_api.usage import LeafUsage, LeavesUsage, PodUsage
from twisted_exec.program.metrics import CONTENT_TYPE
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond, respond_json
from twisted_exec.streaming.http.site import Request


def summary(node: str, usage: LeafUsage) -> dict[str, Any]:
    """
    Return the ``Summary``.

    :param node: its Node; empty for all of ours.
    """
    counted = usage.nodes.get(node)
    about: dict[str, Any] = {
        "nodeName": node,
        "startTime": _moment(counted.started) if counted else None,
    }
    if counted is not None:
        about |= _figures(counted)
    return {"node": about, "pods": [_pod(each) for each in usage.pods]}


def _pod(pod: PodUsage) -> dict[str, Any]:
    metadata = pod.root["metadata"]
    return {
        "podRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "startTime": _moment(pod.whole.started),
        "containers": [
            {"name": name, "startTime": _moment(counted.started), **_figures(counted)}
            for name, counted in pod.containers.items()
        ],
        **_figures(pod.whole),
    }


def _figures(counted: Counter) -> dict[str, Any]:
    time = _moment(counted.sample.at)
    return {
        "cpu": {
            "time": time,
            "usageNanoCores": counted.sample.nanocores,
            "usageCoreNanoSeconds": counted.core_nanoseconds,
        },
        "memory": {"time": time, "workingSetBytes": counted.sample.memory_bytes},
    }


def _moment(nanoseconds: int) -> str:
    return timestamp(nanoseconds / NANOSECONDS)


class UsagePages:
    """The handlers of both paths."""

    def __init__(self, collaborators: KubeletCollaborators) -> None:
        self._collaborators = collaborators
        self._usage = LeavesUsage(collaborators.leaves, collaborators.clock)

    async def summary(self, context: RequestContext) -> None:
        node = await self._collaborators.admit(context)
        respond_json(context.request, 200, summary(node, await self._usage.of(node)))

    async def metrics(self, context: RequestContext) -> None:
        await self._metrics(context.request, await self._collaborators.admit(context))

    async def metrics_of(self, context: RequestContext) -> None:
        node = await self._collaborators.admit(context, context.values["node"])
        await self._metrics(context.request, node)

    async def _metrics(self, request: Request, node: str) -> None:
        text = exposition(node, await self._usage.of(node))
        respond(request, 200, text, CONTENT_TYPE)


def stats_routes(collaborators: KubeletCollaborators) -> list[Route]:
    """Return the routes of usage."""
    pages = UsagePages(collaborators)
    return [
        Route(("GET", "POST"), "/stats/summary", pages.summary),
        Route(("GET",), "/metrics/resource", pages.metrics),
        Route(("GET",), "/metrics/resource/{node}", pages.metrics_of),
    ]
