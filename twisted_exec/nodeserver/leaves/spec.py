"""
Specs of leaves: the values that a source of leaves returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.ownership import OWNED, Names
from twisted_exec.spaces.interfaces import ISpaceConnection

CLUSTER, NODE, PARTY = "cluster", "node", "party"
"""Leaf modes of a Node, see :class:`~twisted_exec.nodeserver.interfaces.LeafNode`."""
SECRET_KEY = "kubeconfig"


@dataclass(frozen=True)
class KubeconfigFile:
    """
    A kubeconfig file.

    :param path: absolute.
    """

    path: str
    context: str = ""

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class KubeconfigSecret:
    """A key in a Secret of the root."""

    namespace: str
    name: str
    key: str = SECRET_KEY
    context: str = ""

    def __str__(self) -> str:
        return f"secret {self.namespace}/{self.name}"


@dataclass(frozen=True)
class KubeconfigData:
    """A kubeconfig as data."""

    content: bytes = field(repr=False)
    source: str
    problem: str = ""
    is_given: bool = True

    def __str__(self) -> str:
        return self.source


class KubeconfigSpace:
    """
    A Space, from engagement to disengagement. It compares by identity: another engagement is
    another leaf.

    :ivar gone: why it was disengaged, or empty.
    """

    def __init__(self, space: ISpaceConnection) -> None:
        self.space, self.gone = space, ""
        self._changed: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return f'space "{self.space.name}"'

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when the credentials change, instead of the previous function."""
        self._changed = changed

    def changed(self) -> None:
        self._changed()


Kubeconfig = KubeconfigFile | KubeconfigSecret | KubeconfigData | KubeconfigSpace


@dataclass(frozen=True)
class LeafSpec:
    """
    The desired state of one leaf.

    :param origin: the source, for messages; a spec of another origin is another leaf.
    """

    name: str
    origin: str
    kubeconfig: Kubeconfig
    nodes: tuple[LeafNode, ...]
    names: Names = field(default_factory=Names)
    policy: str = OWNED
    kosmos: bool = False


class ISource(Interface):
    """A source of leaves."""

    synced = Attribute("Whether it was read at least once (bool).")

    def specs() -> Sequence[LeafSpec]:
        """Return the current specs."""

    def start(changed: Callable[[], None]) -> None:
        """Watch the source; call ``changed`` when :meth:`specs` or ``synced`` may have changed."""

    def stop() -> Deferred[None]:
        """Stop; fires when nothing is under way."""
