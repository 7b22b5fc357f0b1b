"""
The verbs on Pods of Nodes, and their binding to a Node.
"""

from __future__ import annotations

from dataclasses import replace

from twisted_exec.api import fields, strategy, times
from twisted_exec.api.kinds import BINDINGS, NODE_PODS, Kind, Object
from twisted_exec.api.kinds.pods.node_pods import is_over, node_of
from twisted_exec.api.kinds.pods.schema import LONGEST_GRACE_SECONDS
from twisted_exec.api.names import dns_subdomain
from twisted_exec.api.status import BadRequest, Conflict, Invalid
from twisted_exec.apiserver.interfaces import UPDATE
from twisted_exec.apiserver.serving.admission import change_of
from twisted_exec.apiserver.serving.bodies import read_body, work_of
from twisted_exec.apiserver.serving.fairness import FairQueue
from twisted_exec.apiserver.serving.query import WriteOptions, write_options
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import User
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import respond_json

_ATTEMPTS = 5
_BOUND = {"type": "PodScheduled", "status": "True"}
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class NodePodVerbs(Verbs):
    """
    Verbs on Pods of Nodes.

    Deleting a Pod that is bound to a Node usually marks it, with a deadline; the object goes when a
    client, such as its kubelet, deletes it with a grace period of 0.

    Source: ``pkg/registry/core/pod/{strategy,storage/storage}.go`` and
    ``k8s.io/apiserver/pkg/registry/rest/delete.go`` of Kubernetes.
    """

    async def remove(
        self, user: User, kind: Kind, old: Object, options: WriteOptions
    ) -> tuple[Object, bool]:
        seconds = grace_seconds(old, options)
        before = old["metadata"].get("deletionGracePeriodSeconds")
        if before is not None and seconds >= before:
            return old, False  # its deletion is already under way
        if seconds == 0 and not old["metadata"].get("finalizers"):
            if options.dry_run:
                return old, True
            return await self._storage.delete(kind.resource, old), True
        marked = self._ending(old, seconds)
        if options.dry_run:
            return marked, False
        return await self._storage.update(kind.resource, marked), False

    def _ending(self, old: Object, seconds: int) -> Object:
        metadata = {
            **old["metadata"],
            "deletionTimestamp": times.timestamp(self._now() + seconds),
            "deletionGracePeriodSeconds": seconds,
        }
        return {**old, "metadata": metadata}

    async def bind(
        self, user: User, target: RequestTarget, node: str, metadata: Object, options: WriteOptions
    ) -> None:
        """
        Bind a Pod to a Node.

        :param metadata: its labels and annotations are added to the Pod.
        :raises Conflict: the Pod cannot be bound.
        :raises APIError: another refusal.
        """

        for attempt in range(_ATTEMPTS):
            old = await self.get(target)
            new = self._bound(old, node, metadata)
            binding = replace(target, subresource="binding")
            change = change_of(user, UPDATE, binding, new, old, options)
            await self._admission.admit(change)
            if options.dry_run:
                return
            try:
                await self._storage.update(target.kind.resource, new)
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _bound(self, old: Object, node: str, metadata: Object) -> Object:
        if reason := _unbindable(old):
            raise _conflict(old["metadata"]["name"], reason)
        new = {**old, "metadata": {**old["metadata"]}, "spec": {**old["spec"], "nodeName": node}}
        for key in ("annotations", "labels"):
            if metadata.get(key):
                new["metadata"][key] = {**new["metadata"].get(key, {}), **metadata[key]}
        new["status"] = self._scheduled(new.get("status", {}))
        return new

    def _scheduled(self, status: Object) -> Object:
        others = [each for each in status.get("conditions", []) if each["type"] != _BOUND["type"]]
        now = times.timestamp(self._now())
        return {**status, "conditions": [*others, {**_BOUND, "lastTransitionTime": now}]}


def grace_seconds(pod: Object, options: WriteOptions) -> int:
    """
    The grace period of a Pod that is deleted with these options.

    :raises BadRequest: the period does not fit a timestamp.
    """
    if not node_of(pod) or is_over(pod):
        return 0
    seconds = options.submitted.get("gracePeriodSeconds")
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 0)
    if seconds > LONGEST_GRACE_SECONDS:
        raise BadRequest(f"gracePeriodSeconds {seconds} is more than {LONGEST_GRACE_SECONDS}")
    return 1 if seconds < 0 else int(seconds)


def _unbindable(pod: Object) -> str:
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if bound := node_of(pod):
        return f'pod {name} is already assigned to node "{bound}"'
    return ""


def _conflict(name: str, reason: str) -> Conflict:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {reason}'
    return Conflict(message, details={"name": name, "kind": "pods/binding"})


class Bindings:
    """Answers ``pods/binding``."""

    def __init__(
        self, gate: Gate, verbs: NodePodVerbs, limits: RequestLimits, queue: FairQueue
    ) -> None:
        self._gate, self._verbs, self._limits, self._queue = gate, verbs, limits, queue

    def add_to(self, routes: GatedRoutes) -> None:
        """Add the route."""
        item = "namespaces/{namespace}/pods/{name}/binding"
        routes.add(["POST"], f"{root_of(NODE_PODS)}/{item}", self._create)

    async def _create(self, context: RequestContext) -> None:
        request, user, values = context.request, context.user, context.values
        target = RequestTarget(NODE_PODS, values["namespace"], values["name"], "binding")
        with self._limits.short(user):
            await self._gate.authorize(attributes_of(user, "create", target))
            options = write_options(query_of(context), "CreateOptions")
            body = await read_body(request, BINDINGS, options, work_of(context, self._queue))
            binding = strategy.shaped(BINDINGS, body)
            node = _node(binding, target)
            await self._verbs.bind(user, target, node, binding["metadata"], options)
        respond_json(request, 201, _SUCCESS)


def _node(binding: Object, target: RequestTarget) -> str:
    strategy.check_namespace(binding["metadata"], target.namespace)
    strategy.completed(BINDINGS, binding)
    target_reference, causes = binding["target"], []
    if binding["metadata"].get("name", target.name) != target.name:
        name = binding["metadata"]["name"]
        causes.append(fields.invalid("metadata.name", name, "must match the name in the URL"))
    if target_reference.get("kind", "") not in ("", "Node"):
        causes.append(
            fields.not_supported("target.kind", target_reference["kind"], ["Node", "<empty>"])
        )
    if not target_reference.get("name"):
        causes.append(fields.required("target.name"))
    else:
        wrong = dns_subdomain(target_reference["name"])
        causes += [fields.invalid("target.name", target_reference["name"], each) for each in wrong]
    if causes:
        raise Invalid("Binding", target.name, causes, "")
    return str(target_reference["name"])
