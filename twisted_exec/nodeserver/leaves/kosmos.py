"""
Leaves from Kosmos's Cluster objects (``kosmos.io/v1alpha1``), interpreted as Kosmos does, but
without ``matchExpressions``.

The first of a Cluster's ``leafModels`` decides whether it stands for a whole leaf (Node
``kosmos-NAME``), for single nodes under their own names, or for groups of nodes selected by labels
(``kosmos-LEAFNODENAME-NUMBER``). A Cluster without a kubeconfig uses that of another Cluster with
the same actual name.

:mod:`twisted_exec.nodeserver.ownership` recognizes the Pods that Kosmos has created.

Source: ``kosmos-io/kosmos``, ``pkg/apis/kosmos/v1alpha1/cluster_types.go`` and
``pkg/clustertree/cluster-manager/utils`` (``leaf_model_handler.go``, ``rootcluster.go``,
``leaf_client_resource_manager.go``), as of March 2025.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api import names
from twisted_exec.api.lenient import mapping
from twisted_exec.api.resource import Resource
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.loader import MAX_INLINE_BYTES
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.spec import (
    CLUSTER,
    NODE,
    PARTY,
    ISource,
    KubeconfigData,
    LeafSpec,
)

CLUSTERS = Resource("kosmos.io", "v1alpha1", "clusters", "Cluster", namespaced=False)
NODE_PREFIX = "kosmos-"
ACTUAL_NAME = "kosmos.io/actual-cluster-name"
ROLE, ROOT = "kosmos.io/cluster-role", "root"
NODE_LABELS = {"kosmos.io/node": "true"}
NODE_TAINT = {"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"}
KOSMOS_LEAF = "kosmos-io/owned-by-cluster"
"""Annotation of a Node: the Cluster that it stands for."""
MODE = "leafNodeMode"
_MODES = {CLUSTER: "one2cluster", PARTY: "one2party"}
_LONGEST_NODE_NAME = 63


@implementer(ISource)
class Clusters:
    """
    The Clusters of a root.

    :param client: of the root; may ``list`` and ``watch`` them.
    """

    _log = Logger()

    def __init__(self, client: IKubeClient, clock: IReactorTime) -> None:
        self._specs: dict[str, LeafSpec] = {}
        self._actual: dict[str, str] = {}
        self._complaints: dict[str, str] = {}
        self._notify: Callable[[], None] = lambda: None
        self._reflector = Reflector(client, CLUSTERS, clock, on_change=self._changed, trim=_trimmed)

    @property
    def synced(self) -> bool:
        return self._reflector.synced

    @property
    def problem(self) -> str:
        return self._reflector.problem

    def specs(self) -> Sequence[LeafSpec]:
        kubeconfigs = {
            self._actual[name]: spec.kubeconfig
            for name, spec in sorted(self._specs.items(), reverse=True)
            if _is_given(spec)
        }
        return [
            spec
            if _is_given(spec) or self._actual[name] not in kubeconfigs
            else replace(spec, kubeconfig=kubeconfigs[self._actual[name]])
            for name, spec in self._specs.items()
        ]

    def start(self, changed: Callable[[], None]) -> None:
        self._notify = changed
        self._reflector.when_synced().addCallback(lambda _: changed())
        self._reflector.start()

    def stop(self) -> Deferred[None]:
        return self._reflector.stop()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        obj = after or before
        assert obj is not None
        name = obj["metadata"]["name"]
        previous_spec = self._specs.pop(name, None)
        if after is not None and is_leaf(after):
            self._specs[name], complaint = spec_of(after)
            self._actual[name] = actual_name(after)
            if complaint and complaint != self._complaints.get(name):
                self._log.warn("{complaint}", complaint=complaint)
            self._complaints[name] = complaint
        else:
            self._actual.pop(name, None)
            self._complaints.pop(name, None)
        if previous_spec != self._specs.get(name):
            self._notify()


def _trimmed(cluster: Object) -> Object:
    cluster["metadata"].pop("managedFields", None)
    (cluster["metadata"].get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return cluster


def is_leaf(cluster: Object) -> bool:
    """
    Return whether a Cluster is a leaf: neither the root itself, nor being deleted or disabled, nor
    used for its network only.
    """
    metadata, spec = cluster["metadata"], mapping(cluster.get("spec"))
    if (metadata.get("annotations") or {}).get(ROLE) == ROOT or metadata.get("deletionTimestamp"):
        return False
    if spec.get("clusterLinkOptions") and not spec.get("clusterTreeOptions"):
        return False
    return _tree(cluster).get("enable") is not False


def actual_name(cluster: Object) -> str:
    """Return the actual name; Clusters that share it are the same cluster."""
    metadata = cluster["metadata"]
    return str((metadata.get("labels") or {}).get(ACTUAL_NAME) or metadata["name"])


def spec_of(cluster: Object) -> tuple[LeafSpec, str]:
    """
    Return the leaf of a Cluster, and the problem of its Nodes or an empty string.

    A leaf without a usable kubeconfig has the problem in its ``kubeconfig``.
    """
    name = cluster["metadata"]["name"]
    origin = f"cluster {name}"
    nodes, complaint = _nodes(cluster)
    spec = LeafSpec(name, origin, _kubeconfig(cluster, origin), nodes, kosmos=True)
    return spec, f"{origin}: {complaint}" if complaint else ""


def _is_given(spec: LeafSpec) -> bool:
    return isinstance(spec.kubeconfig, KubeconfigData) and spec.kubeconfig.is_given


def _missing(origin: str) -> KubeconfigData:
    why = f"{origin} has no kubeconfig; put one into spec.kubeconfig (base64)"
    return KubeconfigData(b"", origin, why, is_given=False)


def _kubeconfig(cluster: Object, origin: str) -> KubeconfigData:
    kubeconfig = mapping(cluster.get("spec")).get("kubeconfig")
    if not kubeconfig:
        return _missing(origin)
    if not isinstance(kubeconfig, str) or len(kubeconfig) > MAX_INLINE_BYTES * 2:
        why = f"spec.kubeconfig is larger than {MAX_INLINE_BYTES >> 10} KiB, or no text"
        return KubeconfigData(b"", origin, f"{origin}: {why}")
    try:
        content = base64.b64decode("".join(kubeconfig.split()), validate=True)
    except (binascii.Error, ValueError):
        return KubeconfigData(b"", origin, f"{origin}: spec.kubeconfig is not base64")
    return KubeconfigData(content, origin)


def _tree(cluster: Object) -> Mapping[str, Any]:
    spec = cluster.get("spec")
    return mapping(mapping(spec).get("clusterTreeOptions"))


def _nodes(cluster: Object) -> tuple[tuple[LeafNode, ...], str]:
    leaf = cluster["metadata"]["name"]
    listed = _tree(cluster).get("leafModels")
    models = [mapping(each) for each in listed] if isinstance(listed, list) else []
    mode = _mode(models[0]) if models else CLUSTER
    if mode == CLUSTER:
        return _usable([_node(leaf, f"{NODE_PREFIX}{leaf}", mode, models[0] if models else {})])
    leaf_nodes, complaint = [], ""
    for number, model in enumerate(models):
        selector = mapping(model.get("nodeSelector"))
        if mode == NODE:
            own = str(selector.get("nodeName") or "")
            leaf_nodes.append(_node(leaf, own, mode, model, leaf_nodes=(own,)))
            continue
        labels = mapping(selector.get("labelSelector"))
        if labels.get("matchExpressions"):
            complaint = "matchExpressions are not supported; select nodes by matchLabels"
        name = f"{NODE_PREFIX}{model.get('leafNodeName') or ''}-{number}"
        leaf_nodes.append(
            _node(leaf, name, mode, model, selector=_texts(labels.get("matchLabels")))
        )
    nodes, wrong = _usable(leaf_nodes)
    return nodes, "; ".join(each for each in (complaint, wrong) if each)


def _mode(first: Mapping[str, Any]) -> str:
    selector = mapping(first.get("nodeSelector"))
    if selector.get("labelSelector"):
        return PARTY
    return NODE if selector.get("nodeName") else CLUSTER


def _node(leaf: str, name: str, mode: str, model: Mapping[str, Any], **more: Any) -> LeafNode:
    taints = model.get("taints")
    annotations = {KOSMOS_LEAF: leaf} | ({MODE: _MODES[mode]} if mode in _MODES else {})
    return LeafNode(
        name[:_LONGEST_NODE_NAME] if mode != CLUSTER else name,
        leaf,
        mode,
        labels={**NODE_LABELS, **_texts(model.get("labels"))},
        annotations=annotations,
        taints=tuple(each for each in taints if isinstance(each, dict))
        if isinstance(taints, list) and taints
        else (NODE_TAINT,),
        **more,
    )


def _texts(value: Any) -> dict[str, str]:
    return {key: str(each) for key, each in mapping(value).items()}


def _usable(nodes: list[LeafNode]) -> tuple[tuple[LeafNode, ...], str]:
    unique: dict[str, LeafNode] = {}
    complaint = ""
    for node in nodes:
        if names.dns_subdomain(node.name) or node.name in unique:
            complaint = f"{node.name!r} cannot be the name of one more node"
        else:
            unique[node.name] = node
    return tuple(unique.values()), complaint
