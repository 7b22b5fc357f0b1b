"""
The leaf's version of a Pod of the root, and the objects of the root that it needs there.

Fields that the leaf decides itself, such as the scheduler, are left out. Tokens are removed: a
token of the root is worthless in the leaf, and one of the leaf is none of the root's business.

Modelled on ``pkg/utils/podutils/pod.go`` (``FitPod``) of Kosmos.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from twisted_exec.api.kinds.pods.node_pods import CONTAINER_LISTS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.ownership import PREFIX

OWN_LABELS = f"{PREFIX}labels"
"""Annotation of a leaf's Pod: the keys of labels that come from the root, comma-separated."""

APPLIED = f"{PREFIX}applied"
"""Annotation of a leaf's Pod: digest of the labels, annotations and images from the root."""

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MIRROR = "kubernetes.io/config.mirror"
_EXCLUDED_NAMESPACES = frozenset({"kube-system"})
_LEAF_FIELDS = (  # of a spec: the leaf decides them itself
    "nodeName",
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "schedulerName",
    "schedulingGates",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "overhead",
    "serviceAccount",
    "serviceAccountName",
    "readinessGates",
    "ephemeralContainers",
)
_LONGEST_NAME = 253
_LONGEST_HOST_NAME = 63
_IN_EVERY_NAMESPACE = (CONFIG_MAPS, "kube-root-ca.crt")


@dataclass(frozen=True, order=True)
class Reference:
    """A ConfigMap or Secret in the namespace of the object that names it."""

    resource: Resource
    name: str


def is_excluded(root: Object) -> bool:
    """Return whether the syncer ignores a Pod, such as one of a DaemonSet."""
    metadata = root["metadata"]
    owners = metadata.get("ownerReferences") or []
    return (
        metadata.get("namespace") in _EXCLUDED_NAMESPACES
        or _MIRROR in (metadata.get("annotations") or {})
        or any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
    )


def renamed_in_leaf(root: Object) -> str:
    """Return the deterministic name for a Pod whose own name is taken in the leaf."""
    metadata = root["metadata"]
    mark = "-" + str(metadata["uid"])[:8]
    return str(metadata["name"])[: _LONGEST_NAME - len(mark)] + mark


def leaf_pod(root: Object, node: LeafNode, marks: Object, namespace: str, name: str) -> Object:
    """Return the Pod to create in the leaf."""
    spec = copy.deepcopy(root["spec"])
    for key in _LEAF_FIELDS:
        spec.pop(key, None)
    _without_token(spec)
    _set_node(spec, node)
    if (
        name != root["metadata"]["name"]
        and not spec.get("hostname")
        and not spec.get("hostNetwork")
    ):
        spec["hostname"] = _host_name(root["metadata"]["name"])
    metadata = {"namespace": namespace, "name": name, **desired_metadata(root, marks)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def desired_metadata(root: Object, marks: Object) -> Object:
    """Return the labels and annotations that the leaf's Pod must have; it may have more."""
    metadata = root["metadata"]
    labels = dict(metadata.get("labels") or {})
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    annotations |= marks["annotations"]
    applied = json.dumps([labels, annotations, sorted(images(root).items())], sort_keys=True)
    annotations |= {
        OWN_LABELS: ",".join(sorted(labels)),
        APPLIED: hashlib.sha256(applied.encode()).hexdigest()[:16],
    }
    return {"labels": {**labels, **marks["labels"]}, "annotations": annotations}


def images(pod: Object) -> dict[str, str]:
    """Return the images that may change, by container name."""
    lists = (pod["spec"].get(key) or [] for key in ("initContainers", "containers"))
    return {each["name"]: each.get("image", "") for each in chain.from_iterable(lists)}


def _host_name(name: str) -> str:
    return str(name)[:_LONGEST_HOST_NAME].replace(".", "-").strip("-")


def _set_node(spec: Object, node: LeafNode) -> None:
    if node.mode == "node":
        spec["nodeName"] = node.leaf_nodes[0] if node.leaf_nodes else node.name
    elif node.leaf_nodes:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [each]}]}
            for each in node.leaf_nodes
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    elif node.selector:
        spec["nodeSelector"] = dict(node.selector)
    of_node = {taint.get("key") for taint in node.taints}
    tolerations = [
        each for each in spec.pop("tolerations", None) or [] if _tolerates(each, of_node)
    ]
    if tolerations:
        spec["tolerations"] = tolerations


def _tolerates(toleration: Mapping[str, Any], of_node: set[Any]) -> bool:
    return not toleration.get("key") or toleration["key"] not in of_node


def _without_token(spec: Object) -> None:
    spec["automountServiceAccountToken"] = False
    removed = set()
    for container in _containers(spec):
        removed |= _unmounted(container)
    still = {mount["name"] for container in _containers(spec) for mount in _mounts(container)}
    volumes = [
        _without_token_source(volume)
        for volume in spec.pop("volumes", None) or []
        if volume["name"] in still or volume["name"] not in removed
    ]
    if volumes:
        spec["volumes"] = volumes


def _unmounted(container: Object) -> set[str]:
    """Remove the mounts of tokens; return the names of their volumes."""
    mounts = [mount for mount in _mounts(container) if mount.get("mountPath") != _TOKEN_PATH]
    removed = {mount["name"] for mount in _mounts(container)} - {mount["name"] for mount in mounts}
    if "volumeMounts" in container:
        container["volumeMounts"] = mounts
    return removed


def leaf_ephemeral_container(container: Object) -> Object:
    """Return an ephemeral container for the leaf."""
    copied = copy.deepcopy(container)
    _unmounted(copied)
    return copied


def _without_token_source(volume: Object) -> Object:
    sources = (volume.get("projected") or {}).get("sources")
    if not sources or not any("serviceAccountToken" in each for each in sources):
        return volume
    left = [each for each in sources if "serviceAccountToken" not in each]
    if not left:
        return {"name": volume["name"], "emptyDir": {}}
    return {**volume, "projected": {**volume["projected"], "sources": left}}


def _containers(spec: Object) -> Iterator[Object]:
    for key in CONTAINER_LISTS:
        yield from spec.get(key) or []


def _mounts(container: Object) -> list[Object]:
    return container.get("volumeMounts") or []


def references(root: Object) -> frozenset[Reference]:
    """Return the ConfigMaps and Secrets that a Pod names in its leaf version."""
    spec = copy.deepcopy(root["spec"])
    _without_token(spec)
    referenced = [Reference(resource, name) for resource, name in _named(spec) if name]
    return frozenset(
        each for each in referenced if (each.resource, each.name) != _IN_EVERY_NAMESPACE
    )


def _named(spec: Object) -> Iterator[tuple[Resource, str]]:
    secret = SECRETS.resource
    for each in spec.get("imagePullSecrets") or []:
        yield secret, each.get("name", "")
    for volume in spec.get("volumes") or []:
        yield CONFIG_MAPS, (volume.get("configMap") or {}).get("name", "")
        yield secret, (volume.get("secret") or {}).get("secretName", "")
        yield from _named_by_sources((volume.get("projected") or {}).get("sources") or [])
    for container in _containers(spec):
        for source in container.get("envFrom") or []:
            yield CONFIG_MAPS, (source.get("configMapRef") or {}).get("name", "")
            yield secret, (source.get("secretRef") or {}).get("name", "")
        for variable in container.get("env") or []:
            source = variable.get("valueFrom") or {}
            yield CONFIG_MAPS, (source.get("configMapKeyRef") or {}).get("name", "")
            yield secret, (source.get("secretKeyRef") or {}).get("name", "")


def _named_by_sources(sources: Iterable[Object]) -> Iterator[tuple[Resource, str]]:
    for source in sources:
        yield CONFIG_MAPS, (source.get("configMap") or {}).get("name", "")
        yield SECRETS.resource, (source.get("secret") or {}).get("name", "")
