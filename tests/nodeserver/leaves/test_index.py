"""Tests for :mod:`twisted_exec.nodeserver.leaves.index`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.nodeserver.support import Network, SimpleRootPods, kubeconfig, memory_cluster
from twisted_exec.api.status import NotFound
from twisted_exec.nodeserver.interfaces import ILeaves, LeafNode
from twisted_exec.nodeserver.leaves.index import Leaves
from twisted_exec.nodeserver.leaves.leaf import Leaf, LeafContext
from twisted_exec.nodeserver.leaves.spec import ISource, KubeconfigData, LeafSpec
from twisted_exec.testing.cluster import unreachable


def spec(
    name: str, *nodes: str, origin: str = "file", token: str = "t", server: str = ""
) -> LeafSpec:
    content = kubeconfig(server or "https://leaf.example:6443", token).encode()
    return LeafSpec(
        name,
        f"{origin}: {name}",
        KubeconfigData(content, origin),
        tuple(LeafNode(each, name) for each in nodes or (f"leaf-{name}",)),
    )


@implementer(ISource)
class Source:
    """A source that a test changes."""

    synced = True

    def __init__(self, *specs: LeafSpec) -> None:
        self.now: Sequence[LeafSpec] = specs
        self.changed: Callable[[], None] = lambda: None

    def specs(self) -> Sequence[LeafSpec]:
        return self.now

    def start(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def stop(self) -> Deferred[None]:
        return succeed(None)

    def tell(self, *specs: LeafSpec) -> None:
        self.now = specs
        self.changed()


class LeavesTests(SynchronousTestCase):
    """Tests for :class:`Leaves`."""

    def setUp(self) -> None:
        self.clock, self.network = Clock(), Network()
        self.cluster = self.network.add()
        self.source, self.second = Source(), Source()
        around = LeafContext(
            memory_cluster().client(),
            SimpleRootPods(memory_cluster(), []),
            self.clock,
            self.network.make,
        )
        self.leaves = Leaves(
            [self.source, self.second], lambda spec: Leaf(spec, around), self.clock
        )
        self.told = 0
        self.leaves.follow(self.note)
        self.logged: list[str] = []

        def observe(event: object) -> None:
            self.logged.append(formatEvent(event))  # type: ignore[arg-type]

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.addCleanup(lambda: self.successResultOf(self.leaves.stop()))

    def note(self) -> None:
        self.told += 1

    def begin(self, *specs: LeafSpec) -> None:
        self.source.now = specs
        self.leaves.start()

    def tell(self, *specs: LeafSpec) -> None:
        self.source.tell(*specs)
        self.clock.advance(0)

    def test_doors(self) -> None:
        """It is the registry."""
        verifyObject(ILeaves, self.leaves)

    def test_by_node(self) -> None:
        """A leaf is found by its name, and by each Node that stands for it."""
        self.begin(spec("one", "a", "b"), spec("two", "c"))
        self.assertEqual(self.leaves.of_node("b"), self.leaves.get("one"))
        self.assertEqual([leaf.name for leaf in self.leaves.all()], ["one", "two"])
        self.assertEqual(set(self.leaves.nodes()), {"a", "b", "c"})

    def test_unknown(self) -> None:
        """An unknown name is not found, and the message quotes it."""
        self.begin()
        with self.assertRaises(NotFound) as caught:
            self.leaves.of_node("worker")
        self.assertEqual(caught.exception.message, 'node "worker" stands for no leaf cluster here')
        self.assertRaises(NotFound, self.leaves.get, "one")

    def test_unchanged(self) -> None:
        """An unchanged spec changes nothing and causes no call."""
        self.begin(spec("one"))
        leaf, messages = self.leaves.get("one"), self.told
        self.tell(spec("one"))
        self.assertIs(self.leaves.get("one"), leaf)
        self.assertEqual(self.told, messages)

    def test_credentials(self) -> None:
        """Other credentials leave the leaf what it is: sessions go on."""
        self.begin(spec("one"))
        leaf = self.leaves.get("one")
        self.tell(spec("one", token="new"))
        self.assertIs(self.leaves.get("one"), leaf)
        self.assertEqual(leaf.config().token, "new")

    def test_gone(self) -> None:
        """A leaf that no source lists is removed, with its Nodes and watches."""
        self.begin(spec("one"), spec("two"))
        self.assertEqual(self.cluster.watches, 2)
        messages = self.told
        self.tell(spec("two"))
        self.assertEqual(self.cluster.watches, 1)
        self.assertRaises(NotFound, self.leaves.get, "one")
        self.assertEqual(set(self.leaves.nodes()), {"leaf-two"})
        self.assertEqual(self.told, messages + 1)

    def test_orphans(self) -> None:
        """B10: once all sources were read, a Node that is not told stands for nothing any more."""
        self.second.synced = False
        self.begin(spec("one"))
        self.assertFalse(self.leaves.synced)
        messages = self.told
        self.second.synced = True
        self.second.tell()
        self.clock.advance(0)
        self.assertTrue(self.leaves.synced)
        self.assertEqual(self.told, messages + 1)
        self.assertNotIn("kosmos-gone", self.leaves.nodes())

    def test_seen_whole(self) -> None:
        """B8: a reader sees the state before or after a change, never one in between."""
        self.begin(spec("one", "a"), spec("two", "b"))
        changes: list[list[str]] = []

        def look() -> None:
            for node in self.leaves.nodes().values():
                self.assertEqual(self.leaves.of_node(node.name).name, node.leaf)
            changes.append(sorted(self.leaves.nodes()))

        self.leaves.follow(look)
        before = self.leaves.nodes()
        self.tell(spec("one", "b"), spec("two", "a"))
        self.assertEqual(sorted(before), ["a", "b"])
        self.assertTrue(changes)
        self.tell(spec("two", "a", "b"))
        self.assertEqual(self.leaves.of_node("b").name, "two")
        self.assertEqual(changes[-1], ["a", "b"])

    def test_crowd(self) -> None:
        """A source that reports a thousand leaves one by one causes one look."""
        self.begin()
        messages = self.told
        specs = [spec(f"n{number}") for number in range(1000)]
        for number in range(1000):
            self.source.tell(*specs[: number + 1])
        self.clock.advance(0)
        self.assertEqual(len(self.leaves.all()), 1000)
        self.assertEqual(self.told, messages + 1)

    def test_same_name(self) -> None:
        """A second leaf of the same name is refused; that is reported once, with both sources."""
        self.begin(spec("one"))
        leaf = self.leaves.get("one")
        self.second.tell(spec("one", "other", origin="cluster"))
        self.clock.advance(0)
        self.assertIs(self.leaves.get("one"), leaf)
        self.assertEqual(set(self.leaves.nodes()), {"leaf-one"})
        problem = "cluster: one: there is a leaf cluster 'one' already, of file: one; give it another name"
        self.assertEqual(self.leaves.problems, [problem])
        self.tell(spec("one"), spec("two"))
        self.assertEqual(self.logged.count(problem), 1)

    def test_first_come(self) -> None:
        """The first leaf keeps its name, whatever source the second has, until it is removed."""
        self.second.now = [spec("one", origin="cluster")]
        self.begin()
        leaf = self.leaves.get("one")
        self.tell(spec("one", token="other"))
        self.assertIs(self.leaves.get("one"), leaf)
        self.second.tell()
        self.clock.advance(0)
        self.assertIsNot(self.leaves.get("one"), leaf)
        self.assertEqual(self.leaves.get("one").config().token, "other")
        self.assertEqual(self.leaves.problems, [])

    def test_same_node(self) -> None:
        """A Node that stands for one leaf is not given to another, which has its others."""
        self.begin(spec("one", "a"))
        self.tell(spec("two", "a", "b"), spec("one", "a", token="new"))
        self.assertEqual(self.leaves.of_node("a").name, "one")
        self.assertEqual(self.leaves.of_node("b").name, "two")
        self.assertEqual(
            self.leaves.problems,
            ["file: two: node 'a' stands for leaf cluster 'one' already; give it another name"],
        )
        self.tell(spec("two", "a", "b"))
        self.assertEqual(self.leaves.of_node("a").name, "two")
        self.assertEqual(self.leaves.problems, [])

    def test_node_moves(self) -> None:
        """A Node that one leaf gives up is another's at once."""
        self.begin(spec("one", "a", "b"), spec("two", "c"))
        self.tell(spec("one", "a"), spec("two", "b", "c"))
        self.assertEqual(self.leaves.of_node("b").name, "two")
        self.assertEqual(self.leaves.problems, [])

    def test_one_dead(self) -> None:
        """A leaf that is dead keeps no other from being reached."""
        dead = self.network.add("https://dead.example:6443")
        dead.problem = unreachable()
        self.begin(spec("dead", server="https://dead.example:6443"), spec("one"))
        self.assertIn("connection refused", self.leaves.get("dead").problem)
        self.assertEqual(self.leaves.get("one").problem, "")

    def test_flapping(self) -> None:
        """A leaf that comes and goes leaves nothing behind."""
        self.begin()
        for _ in range(20):
            self.tell(spec("one"))
            self.tell()
        self.assertEqual(self.cluster.watches, 0)
        self.tell(replace(spec("one"), kosmos=True))
        self.assertEqual(self.cluster.watches, 2)
        self.successResultOf(self.leaves.stop())
        self.assertEqual((self.cluster.watches, self.clock.getDelayedCalls()), (0, []))
