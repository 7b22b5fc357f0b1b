"""
Registry of leaf clusters: their sources by the settings, their leaves, and the Pods of the root.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from twisted_exec.kube.client import MakeKubeClient, kube_client_factory
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.leaves.file import LeafFile
from twisted_exec.nodeserver.leaves.index import Leaves
from twisted_exec.nodeserver.leaves.kosmos import Clusters
from twisted_exec.nodeserver.leaves.leaf import Leaf, LeafContext
from twisted_exec.nodeserver.leaves.settings import RegistrySettings
from twisted_exec.nodeserver.leaves.spaces import SpaceLeaves, space_client
from twisted_exec.nodeserver.leaves.spec import ISource, LeafSpec
from twisted_exec.nodeserver.root_pods import RootPods


class LeafRegistry:
    """
    Leaves, and the Pods of the root that belong there.

    :raises ConfigError: the file is invalid.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        client: IKubeClient,
        reactor: Any,
        make_client: MakeKubeClient | None = None,
    ) -> None:
        self._file = LeafFile(settings.leaves, reactor) if settings.leaves else None
        self._clusters = Clusters(client, reactor) if settings.kosmos else None
        make_client = make_client or kube_client_factory(reactor, PROGRAM)
        self._spaces: SpaceLeaves | None = None
        if settings.spaces is not None:
            followed = space_client(settings.spaces, client, reactor, make_client)
            self._spaces = SpaceLeaves(followed, settings.spaces)
        optional = (self._file, self._clusters, self._spaces)
        sources: list[ISource] = [each for each in optional if each is not None]
        self.roots = RootPods(client, reactor)
        context = LeafContext(client, self.roots, reactor, make_client, settings.root_name)

        def make(spec: LeafSpec) -> Leaf:
            return Leaf(spec, context)

        self.leaves = Leaves(sources, make, reactor)

    @property
    def synced(self) -> bool:
        return self.leaves.synced and self.roots.synced

    @property
    def problems(self) -> list[str]:
        """Current problems of sources and of the root's Pods, one line each."""
        parts = (self._file, self._clusters, self._spaces, self.roots)
        problems = [each.problem for each in parts if each is not None]
        return [each for each in problems if each] + list(self.leaves.problems)

    def start(self) -> None:
        self.leaves.start()
        self.roots.start(self.leaves)

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        return DeferredList([self.roots.stop(), self.leaves.stop()])
