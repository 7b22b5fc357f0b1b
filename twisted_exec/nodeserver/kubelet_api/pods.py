"""
``/pods`` and ``/runningpods``: the Pods of a Node, as a kubelet lists them.

``/pods`` returns the Pods that the root has bound to the Node, with the values of environment
variables. ``/runningpods`` returns those with running containers in the leaf, with names and images
only.

Source: ``getPods``, ``getRunningPods`` and ``encodePods`` of ``pkg/kubelet/server/server.go``, and
``ToAPIPod`` of ``pkg/kubelet/container/runtime.go`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafPod
from twisted_exec.nodeserver.kubelet_api.routes import KubeletCollaborators, Route
from twisted_exec.nodeserver.pod_fields import STATUSES
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_json

_TYPE_FIELDS = ("apiVersion", "kind")  # absent in the items of a list


def listed(pods: Iterable[Object]) -> dict[str, Any]:
    """Return a ``PodList``, sorted by namespace and name."""
    items = [{key: value for key, value in pod.items() if key not in _TYPE_FIELDS} for pod in pods]
    items.sort(key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"]))
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def running(pod: LeafPod) -> Object | None:
    """Return the running part of a Pod; ``None`` if nothing runs."""
    theirs = pod.pod or {}
    status, spec = theirs.get("status") or {}, theirs.get("spec") or {}
    names = {
        each.get("name")
        for kind in STATUSES
        for each in status.get(kind) or ()
        if "running" in (each.get("state") or {})
    }
    containers = [
        {"name": each["name"], "image": each.get("image", ""), "resources": {}}
        for kind in CONTAINER_LISTS
        for each in spec.get(kind) or ()
        if each.get("name") in names
    ]
    if not containers:
        return None
    metadata = {key: pod.root["metadata"][key] for key in ("name", "namespace", "uid")}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


class PodLists:
    """The handlers of both paths."""

    def __init__(self, collaborators: KubeletCollaborators) -> None:
        self._collaborators = collaborators

    async def pods(self, context: RequestContext) -> None:
        node = await self._collaborators.admit(context)
        if not self._collaborators.root_pods.synced:
            raise ServiceUnavailable("the root's Pods are not known yet", retry_after_seconds=1)
        respond_json(
            context.request, 200, listed(self._collaborators.root_pods.on([node] if node else []))
        )

    async def running(self, context: RequestContext) -> None:
        node = await self._collaborators.admit(context)
        leaves = (
            [self._collaborators.leaves.of_node(node)] if node else self._collaborators.leaves.all()
        )
        for leaf in leaves:
            if not leaf.synced:
                why = leaf.problem or "they were not read yet"
                raise ServiceUnavailable(f'the Pods of leaf "{leaf.name}" are not known: {why}')
        items = [
            running(pod)
            for leaf in leaves
            for pod in leaf.pods()
            if node in ("", pod.root["spec"]["nodeName"])
        ]
        respond_json(context.request, 200, listed(pod for pod in items if pod is not None))


def pod_routes(collaborators: KubeletCollaborators) -> list[Route]:
    """Return the routes of Pod lists."""
    pages = PodLists(collaborators)
    return [
        Route(("GET",), "/pods", pages.pods),
        Route(("GET",), "/runningpods", pages.running),
    ]
