"""
Doors of the node server: which leaf cluster holds a Pod of the root, and how it is reached.

The *root* is the cluster whose kube-apiserver dials us as if we were a kubelet; a *leaf* is a cluster
that runs the Pods.  A Node of the root stands for a leaf or for a part of it.
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

    :param name: of the Node in the root.
    :param leaf: the leaf's name in the registry.
    :param mode: how it came to be: ``cluster`` (all of the leaf), ``node`` (one node of the leaf,
        under its own name) or ``party`` (some nodes of the leaf); Kosmos's three leaf modes.
    :param leaf_nodes: the names of the leaf's nodes that it stands for; empty for all of them.
    :param selector: labels of the leaf's nodes that it stands for, where no names are given.
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

    :param leaf: provides :class:`ILeaf`.
    :param namespace: in the leaf; the root's may be another.
    :param name: in the leaf.
    :param root: the Pod in the root, as last seen; not to be changed.
    :param pod: the Pod in the leaf, as last seen and without what nobody here reads (see
        :func:`.ours.trimmed`); not to be changed.  ``None`` where only its name is known.
    """

    leaf: ILeaf
    namespace: str
    name: str
    root: Object
    pod: Object | None = None


class ILeaf(Interface):
    """One leaf cluster, for as long as it is known under its name."""

    name = Attribute("Unique in the registry (str).")
    client = Attribute(
        "Of its API server (:class:`~twisted_exec.kube.interfaces.IKubeClient`); takes new"
        " credentials by itself."
    )
    nodes = Attribute("The root's Nodes that stand for it (sequence of :class:`LeafNode`).")
    problem = Attribute("Why it cannot be reached just now (str), or empty.")
    gone = Attribute("Why it is there no more (str), or empty where its source does not say.")
    synced = Attribute("Its Pods of ours were all read at least once (bool).")
    machines = Attribute(
        "Its Pods are machines (bool): they are shown in the root, and never made from there."
    )

    def config() -> ClientConfig:
        """
        Its API server and who we are there, as of now.

        :raises ServiceUnavailable: its credentials cannot be used; the message says why.
        """

    def namespace(root: str) -> str:
        """The leaf's namespace for one of the root."""

    def names(root: Object) -> tuple[str, str]:
        """Namespace and name that a Pod of the root is to have in the leaf."""

    def root_names(namespace: str, name: str) -> tuple[str, str] | None:
        """Namespace and name in the root of a Pod of the leaf, ``None`` when there can be none."""

    def marks(root: Object) -> Object:
        """
        What makes a Pod of the leaf ours: the ``labels`` and ``annotations`` that whoever makes it
        for this Pod of the root puts into its metadata.
        """

    def pod(root: Object) -> Deferred[LeafPod]:
        """
        The leaf's Pod behind a Pod of the root.

        :return: fires with it; fails with ``NotFound`` when there is none that is ours, or with
            another ``APIError`` when that cannot be found out.
        """

    def pods() -> Iterable[LeafPod]:
        """Those that are ours, there by now, and behind a Pod of the root, as last seen."""

    def strays() -> Iterable[Object]:
        """Pods in the leaf that are marked as ours, but whose Pod in the root is gone."""

    def follow(changed: Callable[[str], None]) -> Callable[[], None]:
        """
        Have ``changed`` called with the UID of the root's Pod whenever the leaf's Pod behind it
        appeared, changed or went; nothing is known of its order.

        :return: ends that.
        """


class ILeaves(Interface):
    """The registry of leaf clusters."""

    synced = Attribute("All sources were read at least once (bool).")

    def all() -> Sequence[ILeaf]:
        """Those that there are now."""

    def get(name: str) -> ILeaf:
        """
        One by its name.

        :raises NotFound: there is none.
        """

    def of_node(node: str) -> ILeaf:
        """
        The leaf that a Node of the root stands for.

        :raises NotFound: the Node is none of ours.
        """

    def nodes() -> Mapping[str, LeafNode]:
        """
        The root's Nodes that are ours now, by name.  Once :attr:`synced`, a Node that bears our
        mark and is not among them stands for nothing any more.
        """

    def follow(changed: Callable[[], None]) -> Callable[[], None]:
        """
        Have ``changed`` called whenever leaves, or their nodes, become others.

        :return: ends that.
        """


class IRootPods(Interface):
    """The Pods of the root that are on our Nodes."""

    synced = Attribute("They were all read at least once (bool).")

    def get(namespace: str, name: str, uid: str = "") -> Deferred[Object]:
        """
        Fires with a Pod, asked of the root when it is too new for our copy; not to be changed.

        Fails with ``NotFound`` when there is none, or it is not on a Node of ours; with another
        ``APIError`` when that cannot be found out.

        :param uid: that it must have; empty for any.
        """

    def seen(namespace: str, name: str) -> Object | None:
        """A Pod as last seen; ``None`` when there is none on a Node of ours."""

    def by_uid(uid: str) -> Object | None:
        """The Pod with this UID as last seen; ``None`` when there is none on a Node of ours."""

    def on(nodes: Iterable[str] = ()) -> Sequence[Object]:
        """Those on these Nodes, or on all of ours; as last seen, not to be changed."""

    def follow(changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        """
        Have ``changed`` called with a Pod before and after each change, ``None`` for not there.

        :return: ends that.
        """
