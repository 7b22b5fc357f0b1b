"""
Which Pod of a leaf belongs to which Pod of the root, and the mapping of their namespaces and names.

A mark counts only in the namespace that belongs to the root's Pod: users who may create Pods in a
leaf may also set our marks.

Source of Kosmos's label: ``kosmos-io/kosmos``, ``pkg/utils/constants.go``.

Two namespaces of the root must not map to the same one in the leaf: users who may read the Pods of
one could read those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.status import NotFound
from twisted_exec.kube.interfaces import Object

PREFIX = "leaf.twisted-exec.dev/"
ROOT_LABEL = f"{PREFIX}root"
UID = f"{PREFIX}pod-uid"
NAME = f"{PREFIX}pod-name"
NAMESPACE = f"{PREFIX}pod-namespace"
KOSMOS_LABEL = "kosmos-io/pod"
OWNED, SAME_NAME, MACHINES = "owned", "same-name", "machines"
POLICIES = (OWNED, SAME_NAME, MACHINES)

MACHINE = f"{PREFIX}machine"
"""Label of a root Pod that shows a machine."""

MACHINE_UID = f"{PREFIX}machine-uid"
"""Annotation of such a Pod: the UID of the machine's Pod."""

DEFAULT_ROOT = "root"


@dataclass(frozen=True)
class Names:
    """
    A mapping of names; by default names stay the same.

    :param namespaces: the leaf's namespace by the root's; values are unique.
    :param namespace_prefix: prepended to all other namespaces.
    """

    namespaces: Mapping[str, str] = field(default_factory=dict)
    namespace_prefix: str = ""
    name_prefix: str = ""

    @cached_property
    def _back(self) -> dict[str, str]:
        return {leaf: root for root, leaf in self.namespaces.items()}

    def namespace(self, root: str) -> str:
        """
        Return the leaf's namespace for a namespace of the root.

        :raises NotFound: the result is assigned to another namespace of the root.
        """
        namespace = self.namespaces.get(root)
        if namespace is not None:
            return namespace
        translated = self.namespace_prefix + root
        if translated in self._back:
            raise NotFound(
                "namespaces",
                root,
                message=f'namespace "{root}" has no place in the leaf cluster: "{translated}" there is '
                f'that of "{self._back[translated]}"; give it one of its own',
            )
        return translated

    def leaf(self, root: Object) -> tuple[str, str]:
        """
        Return namespace and name in the leaf of a Pod of the root.

        :raises NotFound: as :meth:`namespace`.
        """
        metadata = root["metadata"]
        namespace = self.namespace(metadata.get("namespace", ""))
        return namespace, self.name_prefix + metadata["name"]

    def root(self, namespace: str, name: str) -> tuple[str, str] | None:
        """
        Return namespace and name in the root of a Pod of the leaf; ``None`` if it cannot have any.
        """
        back = self._back.get(namespace)
        if back is None:
            if not namespace.startswith(self.namespace_prefix):
                return None
            back = namespace.removeprefix(self.namespace_prefix)
            if back in self.namespaces:
                return None
        if not name.startswith(self.name_prefix):
            return None
        return back, name.removeprefix(self.name_prefix)


@dataclass(frozen=True)
class OwnershipRule:
    """
    The ownership rule of one leaf.

    :param root: the root's name in its leaves, since several roots may share a leaf.
    :param policy: :data:`OWNED`, :data:`SAME_NAME` (any Pod of the same namespace and name counts,
        as in Kosmos) or :data:`MACHINES` (the leaf is a twisted-exec API server).
    """

    root: str = DEFAULT_ROOT
    policy: str = OWNED
    kosmos: bool = False
    names: Names = field(default_factory=Names)

    @property
    def selectors(self) -> Sequence[str]:
        """Label selectors that together cover the Pods to watch."""
        if self.policy == MACHINES:
            return [f"{EXPOSED_LABEL}=true"]
        own = [f"{ROOT_LABEL}={self.root}"]
        return [*own, f"{KOSMOS_LABEL}=true"] if self.kosmos else own

    def marks(self, root: Object) -> Object:
        """Return the labels and annotations that mark a Pod as belonging to a Pod of the root."""
        metadata = root["metadata"]
        return {
            "labels": {ROOT_LABEL: self.root},
            "annotations": {
                UID: metadata["uid"],
                NAME: metadata["name"],
                NAMESPACE: metadata.get("namespace", ""),
            },
        }

    def owner(self, pod: Object) -> str:
        """Return the UID of the root's Pod according to a Pod's marks; may be empty."""
        if _labels(pod).get(ROOT_LABEL) != self.root:
            return ""
        return str((pod["metadata"].get("annotations") or {}).get(UID) or "")

    def is_for(self, pod: Object, root: Object) -> bool:
        """
        Return whether a Pod of the leaf belongs to a Pod of the root.

        :raises NotFound: as :meth:`.Names.leaf`.
        """
        namespace, name = self.names.leaf(root)
        metadata = pod["metadata"]
        if metadata.get("namespace", "") != namespace:
            return False
        if self.policy == MACHINES:
            return name == metadata["name"] and _shows(root, pod)
        uid = root["metadata"].get("uid")
        if uid and self.owner(pod) == uid:
            return True
        if metadata["name"] != name:
            return False
        return self.policy == SAME_NAME or (
            self.kosmos and _labels(pod).get(KOSMOS_LABEL) == "true"
        )


def _shows(root: Object, pod: Object) -> bool:
    annotations = root["metadata"].get("annotations") or {}
    uid = annotations.get(MACHINE_UID)
    return bool(
        uid and uid == pod["metadata"].get("uid") and _labels(pod).get(EXPOSED_LABEL) == "true"
    )


def _labels(pod: Object) -> Any:
    return pod["metadata"].get("labels") or {}
