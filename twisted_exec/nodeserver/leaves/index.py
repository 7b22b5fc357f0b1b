"""
The leaves of several sources, by name and by Node.

Names and Nodes belong to the first leaf that claims them; other claims are listed in
:attr:`Leaves.problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import NotFound
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.nodeserver.interfaces import ILeaf, ILeaves, LeafNode
from twisted_exec.nodeserver.leaves.leaf import Leaf
from twisted_exec.nodeserver.leaves.spec import ISource, LeafSpec

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
        self, sources: Sequence[ISource], make: Callable[[LeafSpec], Leaf], clock: IReactorTime
    ) -> None:
        self._sources, self._make, self._clock = sources, make, clock
        self._leaves: dict[str, Leaf] = {}
        self._nodes: dict[str, LeafNode] = {}
        self.problems: Sequence[str] = ()
        self._followers = Listeners("the leaf clusters")
        self._looking: IDelayedCall | None = None
        self._stopping = StoppingParts()
        self._synced = False
        self._running = False

    @property
    def synced(self) -> bool:
        """As of the last look; followers are told after it changes."""
        return self._synced

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
        for source in self._sources:
            self._stopping.add(source.stop())
        for leaf in self._leaves.values():
            self._stopping.add(leaf.stop())
        return self._stopping.over()

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
        changed = changed or synced != self._synced
        self._synced = synced
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
