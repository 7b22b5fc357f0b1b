"""
Which Pod of a leaf is ours: made for a Pod of the root, and for which one.

Whoever may make Pods in a leaf may mark them, too.  So a mark counts only in the namespace that the
root's Pod has there: it is for who may write into that one, and for nobody else, to say whose a Pod
is.  Kosmos marks a Pod as its own and gives it the same namespace and name; what it was made for is
told by these alone.

Source of Kosmos's label: ``kosmos-io/kosmos``, ``pkg/utils/constants.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from twisted_exec.api.kinds.pods.machine_pods import EXPOSED_LABEL
from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.leaves.names import Names
from twisted_exec.nodeserver.objects import Shared, mapping, named, slim, texts

PREFIX = "leaf.twisted-exec.dev/"
ROOT_LABEL = f"{PREFIX}root"
UID = f"{PREFIX}pod-uid"
NAME = f"{PREFIX}pod-name"
NAMESPACE = f"{PREFIX}pod-namespace"
KOSMOS_LABEL = "kosmos-io/pod"

OWNED, SAME_NAME, MACHINES = "owned", "same-name", "machines"
POLICIES = (OWNED, SAME_NAME, MACHINES)

MACHINE = f"{PREFIX}machine"
"""Label of a Pod of the root that shows a machine."""
MACHINE_UID = f"{PREFIX}machine-uid"
"""Annotation of it: the UID of the machine's Pod."""

DEFAULT_ROOT = "root"
_UNREAD = ("managedFields",)
_LARGE = ("metadata", "spec")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_GRACE = "deletionGracePeriodSeconds"
STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
"""Lists of what is told of containers."""
_KEPT_OF_CONTAINER = ("name", "image", "tty", "stdin", "stdinOnce")


@dataclass(frozen=True)
class Ours:
    """
    The rule of one leaf.

    :param root: what this root is called in its leaves: several may share one.
    :param policy: :data:`OWNED`, or :data:`SAME_NAME`: any Pod of the same namespace and name, as
        Kosmos has it; or :data:`MACHINES`: the leaf is an API server of ours, and a Pod of the root is
        for the machine that it was made for.
    :param kosmos: Pods that Kosmos made count as owned.
    """

    root: str = DEFAULT_ROOT
    policy: str = OWNED
    kosmos: bool = False
    names: Names = field(default_factory=Names)

    @property
    def selectors(self) -> Sequence[str]:
        """Label selectors that choose, one after another, the Pods worth following."""
        if self.policy == MACHINES:
            return [f"{EXPOSED_LABEL}=true"]
        own = [f"{ROOT_LABEL}={self.root}"]
        return [*own, f"{KOSMOS_LABEL}=true"] if self.kosmos else own

    def marks(self, root: Object) -> Object:
        """Labels and annotations that make a Pod ours, for a Pod of the root."""
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
        """The UID of the root's Pod that a Pod says it was made for; empty for none of ours."""
        if _labels(pod).get(ROOT_LABEL) != self.root:
            return ""
        return str((pod["metadata"].get("annotations") or {}).get(UID) or "")

    def is_for(self, pod: Object, root: Object) -> bool:
        """
        A Pod of the leaf is that of a Pod of the root.

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
    """A Pod of the root was made for this machine, which is exposed by now, and for no other."""
    annotations = root["metadata"].get("annotations") or {}
    uid = annotations.get(MACHINE_UID)
    return bool(
        uid and uid == pod["metadata"].get("uid") and _labels(pod).get(EXPOSED_LABEL) == "true"
    )


def _labels(pod: Object) -> Any:
    return pod["metadata"].get("labels") or {}


def trim_root_pod(pod: Object, shared: Shared | None = None) -> Object:
    """
    A Pod of the root without what is nobody's business but its writers'; not to be changed.

    :param shared: gives the parts of its ``spec`` that others have, too.
    """
    reduced = {intern(key): slim(value) for key, value in pod.items() if key not in _LARGE}
    reduced["metadata"] = _metadata(pod["metadata"])
    if "spec" in pod:
        reduced["spec"] = (shared or Shared()).values(pod["spec"] or {})
    return reduced


def trimmed(pod: Object, shared: Shared | None = None) -> Object:
    """
    What is kept of a Pod of a leaf: its metadata but for who wrote it, its status, and of its
    ``spec`` the node and the containers' names, images and terminals.  The rest of ``spec`` is what
    the root's Pod says.  All of it is in its form (:mod:`.shapes`).  As of :func:`trim_root_pod`, it
    is not to be changed.
    """
    spec = mapping(pod.get("spec"))
    reduced: Object = {
        kind: [{key: entry[key] for key in _KEPT_OF_CONTAINER if key in entry} for entry in listed]
        for kind in CONTAINER_LISTS
        if (listed := named(spec.get(kind)))
    }
    if isinstance(node := spec.get("nodeName"), str) and node:
        reduced["nodeName"] = node
    metadata, status = _shaped(pod["metadata"]), _status(mapping(pod.get("status")))
    return trim_root_pod({**pod, "metadata": metadata, "spec": reduced, "status": status}, shared)


def _shaped(metadata: Object) -> Object:
    shaped = dict(metadata)
    for key in ("labels", "annotations"):
        if key in shaped:
            shaped[key] = texts(shaped[key])
    if not isinstance(shaped.get(_GRACE), int):
        shaped.pop(_GRACE, None)
    return shaped


def _status(reported: Object) -> Object:
    status = dict(reported)
    for key in STATUSES:
        if key in status:
            status[key] = [_container(each) for each in named(status[key])]
    if "conditions" in status:
        listed = named(status["conditions"], "type")
        status["conditions"] = [each for each in listed if isinstance(each.get("status"), str)]
    return status


def _container(status: Object) -> Object:
    """What is told of one, with states that are some."""
    states = mapping(status.get("state")).items()
    return {**status, "state": {key: mapping(state) for key, state in states if state is not None}}


def _metadata(metadata: Object) -> Object:
    reduced = {intern(key): slim(value) for key, value in metadata.items() if key not in _UNREAD}
    if reduced.get("annotations"):
        reduced["annotations"].pop(_LAST_APPLIED, None)
    return reduced
