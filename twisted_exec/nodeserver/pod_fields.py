"""Pods of the root and of leaves, trimmed to the fields that are used here."""

from __future__ import annotations

from sys import intern

from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.lenient import mapping, named, texts
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.shared_parts import SharedParts, slim

_UNREAD = ("managedFields",)
_LARGE = ("metadata", "spec")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_GRACE = "deletionGracePeriodSeconds"
STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
"""Status fields that list containers."""
_KEPT_OF_CONTAINER = ("name", "image", "tty", "stdin", "stdinOnce")


def trim_root_pod(pod: Object, shared: SharedParts | None = None) -> Object:
    """Return a Pod of the root without unread fields; it is read-only."""
    reduced = {intern(key): slim(value) for key, value in pod.items() if key not in _LARGE}
    reduced["metadata"] = _metadata(pod["metadata"])
    if "spec" in pod:
        reduced["spec"] = (shared or SharedParts()).values(pod["spec"] or {})
    return reduced


def trim_leaf_pod(pod: Object, shared: SharedParts | None = None) -> Object:
    """Reduce a Pod of a leaf to what is read here; the result is read-only."""
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
            status[key] = [_container(container) for container in named(status[key])]
    if "conditions" in status:
        listed = named(status["conditions"], "type")
        status["conditions"] = [
            condition for condition in listed if isinstance(condition.get("status"), str)
        ]
    return status


def _container(status: Object) -> Object:
    states = mapping(status.get("state")).items()
    return {**status, "state": {key: mapping(state) for key, state in states if state is not None}}


def _metadata(metadata: Object) -> Object:
    reduced = {intern(key): slim(value) for key, value in metadata.items() if key not in _UNREAD}
    if reduced.get("annotations"):
        reduced["annotations"].pop(_LAST_APPLIED, None)
    return reduced
