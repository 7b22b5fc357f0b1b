"""
Interfaces of the node server: leaf clusters, the Pods in them, and the Pods of the root.

The *root* is the cluster whose kube-apiserver connects to the node server as to a kubelet; a *leaf*
is a cluster that runs the Pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig


@dataclass(frozen=True)
class LeafNode:
    """
    A Node of the root that stands for a leaf, or for a part of it.

    :param mode: ``cluster`` (the whole leaf), ``node`` (one node of the leaf) or ``party`` (another
        set of its nodes).
    :param leaf_nodes: names of the leaf's nodes that the Node stands for; if empty, ``selector``
        decides.
    :param selector: labels of these nodes; empty for all.
    :param leaf: the leaf's name in the registry.
    """

    name: str
    leaf: str
    mode: str = "cluster"
    leaf_nodes: tuple[str, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Object, ...] = ()


@dataclass(frozen=True)
class LeafPod:
    """
    The Pod of a leaf behind a Pod of the root.

    :param root: the Pod in the root, as last seen; read-only.
    :param pod: the Pod in the leaf, as last seen and trimmed (see :func:`.pod_fields.trim_leaf_pod`), if
        it is known; read-only.
    :param leaf: provides :class:`ILeaf`.
    :param namespace: in the leaf; it may differ from the root's.
    """

    leaf: ILeaf
    namespace: str
    name: str
    root: Object
    pod: Object | None = None


class ILeaf(Interface):
    """A leaf cluster, as long as a source lists it."""

    name = Attribute("Unique in the registry (str).")
    client = Attribute(
        "Client of its API server (:class:`~twisted_exec.kube.interfaces.IKubeClient`); it picks up"
        " new credentials by itself."
    )
    nodes = Attribute("The root's Nodes that stand for it (sequence of :class:`LeafNode`).")
    problem = Attribute("Why the leaf is unreachable now (str), or empty.")
    gone = Attribute("Why the leaf was removed (str); empty if its source gives no reason.")
    synced = Attribute("Whether the Pods of ours in it were all read at least once (bool).")
    machines = Attribute(
        "Whether its Pods are machines (bool): the root shows them and never creates them."
    )

    def config() -> ClientConfig:
        """
        Return the current configuration of its API server, with our credentials.

        :raises ServiceUnavailable: the credentials are unusable.
        """

    def namespace(root: str) -> str:
        """Return the leaf's namespace for a namespace of the root."""

    def names(root: Object) -> tuple[str, str]:
        """Return namespace and name in the leaf of a Pod of the root."""

    def root_names(namespace: str, name: str) -> tuple[str, str] | None:
        """
        Return namespace and name in the root of a Pod of the leaf; ``None`` if there is no
        counterpart.
        """

    def marks(root: Object) -> Object:
        """
        Return the ``labels`` and ``annotations`` that mark a Pod of the leaf as created for this
        Pod of the root.
        """

    def pod(root: Object) -> Deferred[LeafPod]:
        """
        Look up the leaf's Pod behind a Pod of the root.

        :return: fires with the Pod; fails with ``NotFound`` if there is none of ours, or with
            another ``APIError``.
        """

    def pods() -> Iterable[LeafPod]:
        """Return the watched Pods that belong to a Pod of the root, as last seen."""

    def strays() -> Iterable[Object]:
        """Return Pods in the leaf with our marks whose Pod in the root is not on our Nodes any more."""

    def follow(changed: Callable[[str], None]) -> Callable[[], None]:
        """
        Call ``changed`` with the UID of the root's Pod when the leaf's Pod behind it appears,
        changes or disappears.

        :return: a function that ends this.
        """


class ILeaves(Interface):
    """The registry of leaf clusters."""

    synced = Attribute("Whether all sources were read at least once (bool).")

    def all() -> Sequence[ILeaf]:
        """Return the current leaves."""

    def get(name: str) -> ILeaf:
        """
        Return a leaf by its name.

        :raises NotFound: there is no such leaf.
        """

    def of_node(node: str) -> ILeaf:
        """
        Return the leaf that a Node of the root stands for.

        :raises NotFound: no leaf has this Node.
        """

    def nodes() -> Mapping[str, LeafNode]:
        """Return the root's Nodes that stand for leaves, by name."""

    def follow(changed: Callable[[], None]) -> Callable[[], None]:
        """
        Call ``changed`` when leaves, their nodes or :attr:`synced` change.

        :return: a function that ends this.
        """


class IRootPods(Interface):
    """The Pods of the root that are bound to our Nodes."""

    synced = Attribute("Whether the Pods were all read at least once (bool).")

    def get(namespace: str, name: str, uid: str = "") -> Deferred[Object]:
        """
        Look up a read-only Pod, in the root if our copy lacks it.

        The Pod may be on a Node that is not ours: the caller checks that. Fails with ``NotFound``
        if the root has no such Pod, or with another ``APIError``.

        :param uid: the UID it must have; empty accepts any.
        """

    def seen(namespace: str, name: str) -> Object | None:
        """Return a Pod as last seen; ``None`` if there is none on our Nodes."""

    def by_uid(uid: str) -> Object | None:
        """Return the Pod with this UID as last seen; ``None`` if there is none on our Nodes."""

    def on(nodes: Iterable[str] = ()) -> Sequence[Object]:
        """Return the Pods on these Nodes, or on all of ours, as last seen; read-only."""

    def follow(changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        """
        Call ``changed`` with a Pod before and after each change; ``None`` if it was or is not on
        our Nodes.

        :return: a function that ends this.
        """
