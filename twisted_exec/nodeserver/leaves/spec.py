"""
What is known of a leaf before anybody has been there: values that a source of leaves gives.

Everything but a Space is frozen and compares by value, so that a change is noticed, and what did not
change stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.names import Names
from twisted_exec.nodeserver.ownership import OWNED
from twisted_exec.spaces.interfaces import ISpaceConnection

CLUSTER, NODE, PARTY = "cluster", "node", "party"
"""What a Node stands for, see :class:`~twisted_exec.nodeserver.interfaces.LeafNode`."""
SECRET_KEY = "kubeconfig"


@dataclass(frozen=True)
class KubeconfigFile:
    """
    :param path: absolute.
    :param context: instead of its ``current-context``.
    """

    path: str
    context: str = ""

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class KubeconfigSecret:
    """A key of a Secret of the root."""

    namespace: str
    name: str
    key: str = SECRET_KEY
    context: str = ""

    def __str__(self) -> str:
        return f"secret {self.namespace}/{self.name}"


@dataclass(frozen=True)
class KubeconfigData:
    """
    :param content: a kubeconfig; empty when there is none.
    :param source: what it is out of.
    :param problem: why there is none that could be read, or empty.
    :param is_given: the source has a kubeconfig, valid or not.
    """

    content: bytes = field(repr=False)
    source: str
    problem: str = ""
    is_given: bool = True

    def __str__(self) -> str:
        return self.source


class KubeconfigSpace:
    """
    A Space's, from its engagement to its end; compares by identity, as another engagement is another leaf.

    :ivar gone: why it is there no more, or empty.
    """

    def __init__(self, space: ISpaceConnection) -> None:
        self.space, self.gone = space, ""
        self._changed: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return f'space "{self.space.name}"'

    def follow(self, changed: Callable[[], None]) -> None:
        """Have this, and nobody else, called when its credentials are others."""
        self._changed = changed

    def changed(self) -> None:
        """They may be."""
        self._changed()


Kubeconfig = KubeconfigFile | KubeconfigSecret | KubeconfigData | KubeconfigSpace


@dataclass(frozen=True)
class LeafSpec:
    """
    One leaf.

    :param origin: who says so, for messages; it is another leaf when another says so.
    :param policy: see :class:`~twisted_exec.nodeserver.ownership.Ours`, as is ``kosmos``.
    """

    name: str
    origin: str
    kubeconfig: Kubeconfig
    nodes: tuple[LeafNode, ...]
    names: Names = field(default_factory=Names)
    policy: str = OWNED
    kosmos: bool = False


class ISource(Interface):
    """Where leaves are told."""

    synced = Attribute("It was read at least once (bool).")

    def specs() -> Sequence[LeafSpec]:
        """Those that are told now."""

    def start(changed: Callable[[], None]) -> None:
        """Follow it, and call ``changed`` whenever :meth:`specs` or ``synced`` may be others."""

    def stop() -> Deferred[None]:
        """Fires when nothing is under way any more."""
