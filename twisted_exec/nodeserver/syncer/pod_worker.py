"""
Carry out the steps of a plan for one Pod, in its leaf and in the root.

A change since the plan is no failure: each step checks what it relies on, and the Pod is planned
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.status import AlreadyExists, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import ILeaf, LeafNode, LeafPod
from twisted_exec.nodeserver.ownership import UID
from twisted_exec.nodeserver.syncer import plan as plans
from twisted_exec.nodeserver.syncer.form import ephemeral_form, leaf_form, renamed_in_leaf


class PodOperations(Protocol):
    """The methods of :class:`~.leaf_worker.LeafWorker` that this work needs."""

    leaf: ILeaf

    async def bring(self, root: Object, target: str) -> None: ...
    async def make_namespace(self, target: str) -> None: ...
    async def delete(self, pod: Object, grace_seconds: int | None) -> None: ...
    async def delete_root(self, root: Object) -> None: ...
    async def write_status(self, root: Object, status: Object) -> None: ...


class PodWorker:
    """
    Carries out one plan for one Pod.

    :param root: the Pod of the root, ``node`` its Node.
    :ivar marks: see :meth:`ILeaf.marks`.
    """

    def __init__(self, sync: PodOperations, root: Object, node: LeafNode) -> None:
        self._sync, self._leaf, self._root, self._node = sync, sync.leaf, root, node
        self.marks = sync.leaf.marks(root)
        self._found: LeafPod | None = None

    async def find(self) -> Object | None:
        """Return the leaf's Pod; ``None`` only if there certainly is none."""
        try:
            self._found = await self._leaf.pod(self._root)
        except NotFound:
            return None
        return self._found.pod

    async def do(self, step: plans.Step) -> None:
        """Carry out one step; a concurrent change only leads to another look."""
        sync, root = self._sync, self._root
        if isinstance(step, plans.CreateInLeaf):
            await self._create()
        elif isinstance(step, plans.DeleteInRoot):
            await sync.delete_root(root)
        elif isinstance(step, plans.WriteStatus):
            await sync.write_status(root, step.status)
        else:
            await self._in_leaf(step)

    async def _in_leaf(
        self, step: plans.DeleteInLeaf | plans.UpdateInLeaf | plans.AddEphemeral
    ) -> None:
        assert self._found is not None and self._found.pod is not None
        if isinstance(step, plans.DeleteInLeaf):
            await self._sync.delete(self._found.pod, step.grace_seconds)
        elif isinstance(step, plans.UpdateInLeaf):
            await self._change(lambda pod: _updated(pod, step))
        else:
            await self._change(lambda pod: self._with_ephemeral(pod, step), "ephemeralcontainers")

    async def _create(self) -> None:
        """
        Create the Pod, under another name if its own is taken.

        The namespace is created only after the API server reports it missing.
        """
        namespace, name = self._leaf.names(self._root)
        try:
            await self._sync.bring(self._root, namespace)
            await self._create_as(namespace, name)
        except NotFound:
            await self._sync.make_namespace(namespace)
            await self._sync.bring(self._root, namespace)
            await self._create_as(namespace, name)

    async def _create_as(self, namespace: str, name: str) -> None:
        try:
            await self._create_once(namespace, name)
        except AlreadyExists:
            if await self._is_there(namespace, name):
                return  # ours already: the copy is late
            other = renamed_in_leaf(self._root)
            try:
                await self._create_once(namespace, other)
            except AlreadyExists:
                if not await self._is_there(namespace, other):
                    raise  # this name contains the UID, so only a mistake or an attack takes it

    async def _create_once(self, namespace: str, name: str) -> None:
        form = leaf_form(self._root, self._node, self.marks, namespace, name)
        await self._leaf.client.create(PODS.resource, form, namespace)

    async def _is_there(self, namespace: str, name: str) -> bool:
        try:
            pod = await self._leaf.client.get(PODS.resource, name, namespace)
        except NotFound:
            return False
        return bool(root_uid(pod) == self._root["metadata"]["uid"])

    async def _change(self, change: Callable[[Object], Object], subresource: str = "") -> None:
        assert self._found is not None
        client, target = self._leaf.client, self._found
        pod = await client.get(PODS.resource, target.name, target.namespace)
        if root_uid(pod) == self._root["metadata"]["uid"]:
            await client.update(
                PODS.resource, change(pod), target.namespace, subresource=subresource
            )

    def _with_ephemeral(self, pod: Object, step: plans.AddEphemeral) -> Object:
        there = {each["name"] for each in pod["spec"].get("ephemeralContainers") or []}
        desired = self._root["spec"].get("ephemeralContainers") or []
        more = [
            ephemeral_form(each)
            for each in desired
            if each["name"] in step.names and each["name"] not in there
        ]
        pod["spec"].setdefault("ephemeralContainers", []).extend(more)
        return pod


def _updated(pod: Object, step: plans.UpdateInLeaf) -> Object:
    labels = pod["metadata"].setdefault("labels", {})
    for key, value in step.labels:
        if value is None:
            labels.pop(key, None)
        else:
            labels[key] = value
    pod["metadata"].setdefault("annotations", {}).update(step.annotations)
    images = dict(step.images)
    for kind in CONTAINER_LISTS:
        for container in pod["spec"].get(kind) or []:
            container["image"] = images.get(container["name"], container.get("image"))
    return pod


def root_uid(pod: Object) -> str:
    """Return the UID of the root Pod that a leaf Pod copies; empty without the annotation."""
    return str((pod["metadata"].get("annotations") or {}).get(UID, ""))
