"""
The registry as a program has it: sources, leaves and the root's Pods, started and stopped together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.late_client import MakeClient, kube_clients
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.clusters import Clusters
from twisted_exec.nodeserver.leaf import Leaf, Surroundings
from twisted_exec.nodeserver.leaf_file import LeafFile
from twisted_exec.nodeserver.leaf_spec import ISource, LeafSpec
from twisted_exec.nodeserver.leaves import Leaves
from twisted_exec.nodeserver.ours import DEFAULT_ROOT
from twisted_exec.nodeserver.root_pods import RootPods
from twisted_exec.nodeserver.space_leaves import SpaceChoice, SpaceLeaves, space_client


@dataclass(frozen=True)
class RegistrySettings:
    """
    :param leaves: path of the file that names leaves, absolute; empty for none.
    :param kosmos: leaves are those of Kosmos's Clusters, too.
    :param spaces: which Spaces are leaves, too; ``None`` for none.
    :param root_name: what the root is called in its leaves, a label's value.
    """

    leaves: str = ""
    kosmos: bool = False
    root_name: str = DEFAULT_ROOT
    spaces: SpaceChoice | None = None


class Registry:
    """
    Which leaf has which Pod.

    :param client: of the root.
    :param make_client: makes clients of leaves; real ones unless said otherwise.
    :ivar leaves: see :class:`~twisted_exec.nodeserver.interfaces.ILeaves`.
    :ivar roots: see :class:`~twisted_exec.nodeserver.interfaces.IRootPods`.
    :raises ConfigError: the file cannot be used.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        client: IKubeClient,
        reactor: Any,
        make_client: MakeClient | None = None,
    ) -> None:
        self._file = LeafFile(settings.leaves, reactor) if settings.leaves else None
        self._clusters = Clusters(client, reactor) if settings.kosmos else None
        make_client = make_client or kube_clients(reactor, PROGRAM)
        self._spaces: SpaceLeaves | None = None
        if settings.spaces is not None:
            followed = space_client(settings.spaces, client, reactor, make_client)
            self._spaces = SpaceLeaves(followed, settings.spaces)
        found = (self._file, self._clusters, self._spaces)
        sources: list[ISource] = [each for each in found if each is not None]
        self.roots = RootPods(client, reactor)
        around = Surroundings(
            client,
            self.roots,
            reactor,
            make_client,
            settings.root_name,
        )

        def make(spec: LeafSpec) -> Leaf:
            return Leaf(spec, around)

        self.leaves = Leaves(sources, make, reactor)

    @property
    def synced(self) -> bool:
        """The sources and the root's Pods were all read at least once."""
        return self.leaves.synced and self.roots.synced

    @property
    def problems(self) -> list[str]:
        """What is wrong now with sources and the root's Pods, one line each; leaves tell their own."""
        parts = (self._file, self._clusters, self._spaces, self.roots)
        told = [each.problem for each in parts if each is not None]
        return [each for each in told if each] + list(self.leaves.problems)

    def start(self) -> None:
        """Begin to follow everything."""
        self.leaves.start()
        self.roots.start(self.leaves)

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way any more; never fails."""
        return DeferredList([self.roots.stop(), self.leaves.stop()])
