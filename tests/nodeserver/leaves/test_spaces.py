"""
Tests for :mod:`twisted_exec.nodeserver.leaves.spaces`: Spaces as leaves, with a registry of their
own.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.nodeserver.support import Network
from tests.spaces.support import IMPORTED, SECRET, SPACE, Hub, kubeconfig
from twisted_exec.api import spaces
from twisted_exec.api.kinds import PODS, SECRETS
from twisted_exec.api.kinds.spaces import SPACES
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import NotFound, ServiceUnavailable, Unauthorized
from twisted_exec.nodeserver.interfaces import ILeaf
from twisted_exec.nodeserver.leaves.registry import LeafRegistry
from twisted_exec.nodeserver.leaves.settings import RegistrySettings, SpaceChoice
from twisted_exec.nodeserver.leaves.spaces import SPACE_ANNOTATION
from twisted_exec.nodeserver.leaves.spec import ISource
from twisted_exec.nodeserver.ownership import MACHINES
from twisted_exec.spaces.interfaces import ISpaceListener
from twisted_exec.testing.cluster import MemoryCluster

ONE, TWO = "https://one.example", "https://two.example"


class SpaceLeavesTests(SynchronousTestCase):
    """Tests for :class:`SpaceLeaves`."""

    def setUp(self) -> None:
        self.clock, self.network, self.hub = Clock(), Network(), Hub()
        self.hub.cluster = MemoryCluster((SPACES, SECRETS, PODS))
        self.one, self.two = self.network.add(ONE), self.network.add(TWO)

    def start(self, *providers: str, selector: str = "", **more: Any) -> LeafRegistry:
        choice = SpaceChoice(providers, parse_labels(selector), **more)
        settings = RegistrySettings(spaces=choice)
        registry = LeafRegistry(settings, self.hub.cluster.client(), self.clock, self.network.make)
        registry.start()
        self.addCleanup(lambda: self.successResultOf(registry.stop()))
        self.settle()
        return registry

    def settle(self) -> None:
        for _ in range(3):
            self.clock.advance(0)

    def leaves(self, registry: LeafRegistry) -> list[str]:
        self.settle()
        return sorted(each.name for each in registry.leaves.all())

    def leaf(self, registry: LeafRegistry, name: str = "one") -> ILeaf:
        self.settle()
        return registry.leaves.get(name)

    def test_doors(self) -> None:
        """It is a source of leaves, and listens to Spaces."""
        registry = self.start()
        spaces = registry._spaces  # The registry offers only the leaves of all its sources.
        verifyObject(ISource, spaces)
        verifyObject(ISpaceListener, spaces)

    def test_appears(self) -> None:
        """A Space that can be reached is a leaf, and a Node stands for it."""
        registry = self.start()
        self.assertTrue(registry.synced)
        self.hub.both(kubeconfig(ONE))
        leaf = self.leaf(registry)
        self.assertEqual((leaf.problem, leaf.gone, leaf.config().server), ("", "", ONE))
        (node,) = registry.leaves.nodes().values()
        self.assertEqual((node.name, node.mode), ("one", "cluster"))
        self.assertEqual(node.annotations, {SPACE_ANNOTATION: "default/one"})

    def test_none(self) -> None:
        """If no Space matches, the log says so once, with the providers."""
        with capturedLogs() as events:
            self.start("kpc")
        messages = [
            formatEvent(each) for each in events if each["log_namespace"].endswith("SpaceLeaves")
        ]
        expected = "no Space of provider kpc is a leaf cluster yet; each that appears becomes one"
        self.assertEqual(messages, [expected])

    def test_vanishes(self) -> None:
        """A deleted Space is no leaf any more, with the reason."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start()
        leaf = self.leaf(registry)
        self.hub.remove(SPACE, "one")
        self.assertEqual(self.leaves(registry), [])
        self.assertEqual(leaf.gone, 'space "default/one" is gone: it was deleted')
        self.assertRaises(ServiceUnavailable, leaf.config)

    def test_rotates(self) -> None:
        """One whose credentials are others is the same leaf, and uses them for the next request."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start()
        leaf = self.leaf(registry)
        self.hub.secret(kubeconfig(ONE, token="t2"))
        self.assertIs(self.leaf(registry), leaf)
        self.assertEqual(leaf.config().token, "t2")

    def test_mended(self) -> None:
        """New credentials cause an immediate retry of what failed with the old ones."""
        self.hub.both(kubeconfig(ONE))
        self.one.problem = Unauthorized()
        registry = self.start()
        leaf = self.leaf(registry)
        self.assertIn("rejects the credentials", leaf.problem)
        self.one.problem = None
        self.hub.secret(kubeconfig(ONE, token="t2"))
        self.settle()
        self.assertEqual((leaf.problem, leaf.synced), ("", True))

    def test_exchanged(self) -> None:
        """A Space backed by another physical space is another leaf."""
        self.hub.both(kubeconfig(ONE), physical="a")
        registry = self.start()
        leaf = self.leaf(registry)
        self.hub.secret(kubeconfig(TWO))
        self.hub.space(physical="b")
        other = self.leaf(registry)
        self.assertIsNot(other, leaf)
        self.assertIn("another physical space", leaf.gone)
        self.assertEqual(other.config().server, TWO)

    def test_not_ready_at_the_start(self) -> None:
        """A Space that is unreachable at the start keeps its Node, and the Pods there."""
        self.hub.secret(kubeconfig(ONE))
        self.hub.space(phase=spaces.NOT_READY)
        registry = self.start()
        leaf = self.leaf(registry)
        self.assertEqual(list(registry.leaves.nodes()), ["one"])
        self.assertIn("space default/one: it is NotReady", leaf.problem)
        self.hub.space()
        self.assertEqual((self.leaf(registry).problem, len(registry.leaves.all())), ("", 1))

    def test_not_there_yet(self) -> None:
        """A Space that is still being created is no leaf, nor one that is deleted while it waits."""
        self.hub.space("new", phase=spaces.INITIALIZING, secret=None)
        self.hub.space("ill", phase=spaces.NOT_READY)
        registry = self.start()
        self.assertEqual(self.leaves(registry), ["ill"])
        self.hub.remove(SPACE, "ill")
        self.assertEqual(self.leaves(registry), [])

    def test_chosen_by_provider(self) -> None:
        """Only Spaces of the chosen providers are leaves; only their namespaces are read."""
        self.hub.both(kubeconfig(ONE))
        self.hub.both(kubeconfig(TWO), "two", provider="kcp")
        registry = self.start("kcp")
        self.assertEqual(self.leaves(registry), ["two"])
        requested = {request[2] for request in self.hub.cluster.requests if request[1] != "pods"}
        self.assertEqual(requested, {"spaceprovider-kcp"})

    def test_imported(self) -> None:
        """Of all, imported ones are leaves as well."""
        self.hub.secret(kubeconfig(ONE), own="mine", namespace="lab")
        self.hub.space("one", namespace="lab", spec=IMPORTED, secret="mine")
        registry = self.start()
        self.clock.advance(1)
        self.assertEqual(self.leaves(registry), ["one"])

    def test_imported_among_a_providers(self) -> None:
        """
        A Space imported into a chosen provider's namespace does not belong to that provider, and is
        no leaf.
        """
        place = spaces.namespace_of("default")
        self.hub.both(kubeconfig(ONE))
        self.hub.secret(kubeconfig(TWO), own="mine", namespace=place)
        self.hub.space("evil", namespace=place, spec=IMPORTED, secret="mine")
        registry = self.start("default")
        self.clock.advance(1)
        self.assertEqual(self.leaves(registry), ["one"])
        self.assertEqual(self.leaves(self.start()), ["evil", "one"])

    def test_chosen_by_labels(self) -> None:
        """Those with the labels, as long as they have them."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start(selector="exec=yes")
        self.assertEqual(self.leaves(registry), [])
        self.hub.space(labels={"exec": "yes"})
        self.assertEqual(self.leaves(registry), ["one"])
        self.hub.space()
        self.assertEqual(self.leaves(registry), [])

    def test_names(self) -> None:
        """Two Spaces of a name are in each other's way until one has another as a label."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start()
        self.hub.both(kubeconfig(TWO), provider="kcp")
        self.assertEqual(self.leaf(registry).config().server, ONE)
        (problem,) = registry.problems
        self.assertIn("there is a leaf cluster 'one' already", problem)
        self.hub.space(provider="kcp", labels={spaces.LEAF_LABEL: "one.kcp"})
        self.assertEqual(self.leaves(registry), ["one", "one.kcp"])
        self.assertEqual(registry.problems, [])

    def test_pods(self) -> None:
        """The ownership of Pods is set for all Spaces, and overridden by each."""
        self.hub.both(kubeconfig(ONE), labels={spaces.PODS_LABEL: MACHINES})
        self.hub.both(kubeconfig(TWO), "two")
        registry = self.start()
        machines = [self.leaf(registry, name).machines for name in ("one", "two")]
        self.assertEqual(machines, [True, False])

    def test_bad_labels(self) -> None:
        """Invalid labels are a problem of that Space only."""
        self.hub.both(kubeconfig(ONE), labels={spaces.PODS_LABEL: "mine"})
        self.hub.both(kubeconfig(TWO), "two", labels={spaces.LEAF_LABEL: "A_b"})
        self.hub.both(kubeconfig(TWO), "three")
        registry = self.start()
        self.assertEqual(self.leaves(registry), ["three"])
        (problem,) = registry.problems
        self.assertIn("'mine' is none of owned, same-name, machines", problem)
        self.hub.space("one")
        self.assertEqual(self.leaves(registry), ["one", "three"])

    def test_unreadable(self) -> None:
        """While the root cannot tell of Spaces, they are as they were."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start()
        self.hub.cluster.problem = NotFound("spaces", "", message="no such kind")
        self.hub.cluster.end_watches()
        self.settle()
        self.assertEqual(self.leaves(registry), ["one"])
        self.assertIn("the known spaces may be outdated", registry.problems[0])

    def test_secret_taken_away(self) -> None:
        """Its leaf stays, with a problem."""
        self.hub.both(kubeconfig(ONE))
        registry = self.start()
        self.hub.remove(SECRET, "external-one")
        self.clock.advance(1)
        self.assertIn("does not exist", self.leaf(registry).problem)
