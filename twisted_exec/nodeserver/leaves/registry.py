"""
Registry of leaf clusters: their sources, the leaves by name and by Node, and their metrics.

Names and Nodes belong to the first leaf that claims them; other claims are listed in
:attr:`Leaves.problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import APIError, NotFound
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.client import MakeKubeClient, kube_client_factory
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.nodeserver import PROGRAM
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, LeafNode
from twisted_exec.nodeserver.leaves.file import LeafFile
from twisted_exec.nodeserver.leaves.kosmos import Clusters
from twisted_exec.nodeserver.leaves.leaf import Leaf, LeafContext
from twisted_exec.nodeserver.leaves.spaces import SpaceChoice, SpaceLeaves, space_client
from twisted_exec.nodeserver.leaves.spec import ISource, LeafSpec
from twisted_exec.nodeserver.ownership import DEFAULT_ROOT
from twisted_exec.nodeserver.root_pods import RootPods
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.tls.files import Expiry


@dataclass(frozen=True)
class RegistrySettings:
    """
    Settings of the registry.

    :param root_name: the root's name in its leaves, a valid label value.
    """

    leaves: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "leaves",
                "YAML file with the leaf clusters.",
                is_path=True,
                required=Required(
                    "the file with the leaf clusters; give it, or --kosmos, or --spaces, or several",
                    unless=["kosmos", "spaces"],
                ),
            )
        },
    )
    kosmos: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "kosmos", "Use the clusters of Kosmos's Cluster objects as leaves."
            )
        },
    )
    root_name: str = field(
        default=DEFAULT_ROOT,
        metadata={OPTION: ProgramOption("root-name", "Name of this root in its leaves.")},
    )
    spaces: SpaceChoice | None = field(default=None, metadata={OPTION: SpaceChoice})


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
        around = LeafContext(
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


MAX_LEAVES = 10_000


@implementer(ILeaves)
class Leaves:
    """
    The leaves of several sources.

    :param sources: in order of precedence, for leaves that appear together.
    :ivar problems: refused leaves and Nodes, one line each.
    """

    _log = Logger()

    def __init__(
        self, sources: Sequence[ISource], make: Callable[[LeafSpec], Leaf], clock: Any
    ) -> None:
        self._sources, self._make, self._clock = sources, make, clock
        self._leaves: dict[str, Leaf] = {}
        self._nodes: dict[str, LeafNode] = {}
        self.problems: Sequence[str] = ()
        self._followers = Listeners("the leaf clusters")
        self._looking: IDelayedCall | None = None
        self._stopping = StoppingParts()
        self._was_synced = False
        self._running = False

    @property
    def synced(self) -> bool:
        return self._was_synced

    def start(self) -> None:
        self._running = True
        for source in self._sources:
            source.start(self._changed)
        self._look()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        self._running = False
        if self._looking is not None and self._looking.active():
            self._looking.cancel()
        for ending in [*(source.stop() for source in self._sources), *self._all_stopped()]:
            self._stopping.add(ending)
        return self._stopping.over()

    def _all_stopped(self) -> Iterator[Deferred[Any]]:
        for leaf in self._leaves.values():
            yield leaf.stop()

    def all(self) -> Sequence[ILeaf]:
        return list(self._leaves.values())

    def get(self, name: str) -> ILeaf:
        leaf = self._leaves.get(name)
        if leaf is None:
            raise NotFound("leaves", name, message=f'there is no leaf cluster "{name}"')
        return leaf

    def of_node(self, node: str) -> ILeaf:
        leaf_node = self._nodes.get(node)
        if leaf_node is None:
            raise NotFound("nodes", node, message=f'node "{node}" stands for no leaf cluster here')
        return self._leaves[leaf_node.leaf]

    def nodes(self) -> Mapping[str, LeafNode]:
        """See :meth:`ILeaves.nodes`; a change creates a new mapping."""
        return self._nodes

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        return self._followers.add(changed)

    def _changed(self) -> None:
        if self._running and (self._looking is None or not self._looking.active()):
            self._looking = self._clock.callLater(0, self._look)

    def _look(self) -> None:
        chosen, problems = self._select()
        self._report(problems)
        changed = False
        for name in [name for name in self._leaves if name not in chosen]:
            self._remove(name)
            changed = True
        for spec in chosen.values():
            changed = self._apply(spec) or changed
        self._nodes = {node.name: node for spec in chosen.values() for node in spec.nodes}
        synced = all(source.synced for source in self._sources)
        changed = changed or synced != self._was_synced
        self._was_synced = synced
        if changed:
            self._followers.tell()

    def _apply(self, spec: LeafSpec) -> bool:
        leaf = self._leaves.get(spec.name)
        if leaf is not None and leaf.spec == spec:
            return False
        if leaf is not None and leaf.spec.origin == spec.origin:
            leaf.become(spec)
            return True
        if leaf is not None:
            self._remove(spec.name)
        self._leaves[spec.name] = leaf = self._make(spec)
        leaf.start()
        self._log.info("leaf cluster {name}: in use ({origin})", name=spec.name, origin=spec.origin)
        return True

    def _remove(self, name: str) -> None:
        leaf = self._leaves.pop(name)
        self._log.info(
            "leaf cluster {name}: no longer in use ({origin})", name=name, origin=leaf.spec.origin
        )
        self._stopping.add(leaf.stop())

    def _all_specs(self) -> list[LeafSpec]:
        specs = [spec for source in self._sources for spec in source.specs()]
        here = {(name, leaf.spec.origin) for name, leaf in self._leaves.items()}
        return sorted(specs, key=lambda spec: (spec.name, spec.origin) not in here)

    def _select(self) -> tuple[dict[str, LeafSpec], list[str]]:
        chosen: dict[str, LeafSpec] = {}
        owners: dict[str, str] = {}
        problems: list[str] = []
        specs = self._all_specs()
        # An existing leaf keeps its Node even if an older leaf claims it now.
        pairs = {(spec.name, node.name) for spec in specs for node in spec.nodes}
        for node in self._nodes.values():
            if (node.leaf, node.name) in pairs:
                owners[node.name] = node.leaf
        for spec in specs:
            other = chosen.get(spec.name)
            if other is not None:
                problems.append(
                    f"{spec.origin}: there is a leaf cluster {spec.name!r} already, of "
                    f"{other.origin}; give it another name"
                )
            elif len(chosen) == MAX_LEAVES:
                problems.append(f"{spec.origin}: there are {MAX_LEAVES} leaf clusters already")
            else:
                chosen[spec.name] = _without_taken(spec, owners, problems)
        return chosen, problems

    def _report(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self.problems:
                self._log.warn("{problem}", problem=problem)
        self.problems = problems


def _without_taken(spec: LeafSpec, owners: dict[str, str], problems: list[str]) -> LeafSpec:
    """Return the spec without Nodes of other leaves; register the rest as its own."""
    free = []
    for node in spec.nodes:
        owner = owners.setdefault(node.name, spec.name)
        if owner == spec.name:
            free.append(node)
        else:
            problems.append(
                f"{spec.origin}: node {node.name!r} stands for leaf cluster {owner!r} already; "
                "give it another name"
            )
    return spec if len(free) == len(spec.nodes) else replace(spec, nodes=tuple(free))


class LeafMetrics(Collector):
    """``twisted_exec_leaf_reached{leaf}``: 1 while a leaf is watched, 0 while it has a problem."""

    def __init__(self, registry: CollectorRegistry, leaves: ILeaves) -> None:
        self._leaves = leaves
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for leaf in self._leaves.all():
            family.add_metric([leaf.name], 0 if leaf.problem else 1)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "twisted_exec_leaf_reached",
            "1 while a leaf cluster is watched, 0 while it has a problem.",
            labels=["leaf"],
        )


def ends(leaves: ILeaves) -> Mapping[str, float]:
    """
    Return when our client certificates for leaves expire, in seconds since the epoch, by
    ``leaf/NAME``.
    """
    sources = {f"leaf/{leaf.name}": partial(_certificate, leaf) for leaf in leaves.all()}
    return Expiry({}, sources).ends()


def _certificate(leaf: ILeaf) -> bytes:
    try:
        return leaf.config().certificate.read()
    except (APIError, KubeConfigError):
        return b""
