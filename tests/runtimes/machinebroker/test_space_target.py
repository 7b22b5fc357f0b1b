"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.host`: a broker whose target is a Space.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.contracts.machine_runtime import machine
from tests.spaces.support import IMPORTED, SPACE, Hub, Servers, kubeconfig
from twisted_exec.api import spaces
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import StreamLinks
from twisted_exec.runtimes.machinebroker.host import LOOKUP_SECONDS, SpaceTarget, TargetWatching
from twisted_exec.runtimes.machinebroker.objects import BrokerIdentity, BrokerPlace, to_object
from twisted_exec.runtimes.machinebroker.service import MachineBroker
from twisted_exec.runtimes.machinebroker.tokens import MemoryLedger, Tokens, new_key
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.spaces.interfaces import ISpaceListener
from twisted_exec.testing.cluster import MemoryCluster

from .support import CLASS, MACHINES, NAMESPACE, machine_class, pool

ONE, TWO = "https://one.example", "https://two.example"


class SpaceTargetTests(SynchronousTestCase):
    """Tests for :class:`SpaceTarget`, and for a broker that follows one."""

    def setUp(self) -> None:
        self.clock, self.hub, self.servers = Clock(), Hub(), Servers()
        self.place = BrokerPlace(IRONCORE, NAMESPACE)
        self.lost: list[str] = []
        for url in (ONE, TWO):
            cluster = self.servers.clusters[url] = MemoryCluster()
            for each in (pool(), machine_class()):
                resource = next(kind for kind in cluster.kinds if kind.kind == each["kind"])
                self.successResultOf(cluster.client().create(resource, each))

    def target(self, provider: str = "") -> SpaceTarget:
        hub, make = self.hub.cluster.client(), self.servers.make

        def spaces_of(namespaces: Sequence[str]) -> SpaceClient:
            return SpaceClient(hub, self.clock, namespaces=namespaces, make_client=make)

        target = SpaceTarget(hub, spaces_of, "one", provider, make, self.clock)
        self.addCleanup(lambda: self.successResultOf(target.stop()))
        return target

    def start(self, provider: str = "") -> MachineBroker:
        """A broker that follows its target as a host has it."""
        self.told = target = self.target(provider)
        key = new_key()
        broker = MachineBroker(
            target.client,
            self.place,
            BrokerIdentity("a"),
            Tokens(lambda: key, MemoryLedger()),
            self.clock,
            links=StreamLinks(exec_url=str, log_url=str),
            trouble=lambda: target.problem,
        )
        watching = TargetWatching(broker)

        def lost(reason: str) -> None:
            self.lost.append(reason)
            watching.stop()

        target.available, target.lost = lambda another: watching.start(), lost
        target.start()
        self.addCleanup(lambda: self.successResultOf(watching.stop()))
        return broker

    def trouble(self, broker: MachineBroker) -> str:
        """The reason why machines cannot be listed; empty if they can."""
        failed = broker.list_machines(pb.ListMachinesRequest())
        failed.addErrback(lambda failure: failure.value)
        result = self.successResultOf(failed)
        return result.message if isinstance(result, ServiceUnavailable) else ""

    def machines(self, broker: MachineBroker) -> list[str]:
        entry = self.successResultOf(broker.list_machines(pb.ListMachinesRequest()))
        return [each.metadata.id for each in entry.machines]

    def put(self, server: str, name: str) -> None:
        """A machine of the broker's, there already."""
        template = to_object(machine("x", CLASS), name, self.place)
        template["metadata"]["labels"][self.place.created_label] = "true"
        client = self.servers.clusters[server].client()
        self.successResultOf(client.create(MACHINES, template, NAMESPACE))

    def test_door(self) -> None:
        """It listens to Spaces."""
        verifyObject(ISpaceListener, self.target())

    def test_not_there_yet(self) -> None:
        """A broker may start before its Space exists; requests fail with the reason."""
        broker = self.start()
        output = "the target cluster is not available: "
        self.assertIn(f"{output}there is no space", self.trouble(broker))
        self.assertRaises(ServiceUnavailable, self.told.config)
        self.put(ONE, "m")
        self.hub.both(kubeconfig(ONE))
        self.assertEqual(self.machines(broker), ["m"])
        self.assertEqual(self.told.config().server, ONE)

    def test_not_there_is_logged(self) -> None:
        """A misspelt name is logged at the start, once."""
        with capturedLogs() as logged:
            self.start()
        (message,) = [each for each in logged if each["log_namespace"].endswith("SpaceTarget")]
        self.assertEqual(formatEvent(message), 'there is no space "one"; waiting for it')
        self.hub.both(kubeconfig(ONE))
        with capturedLogs() as logged:
            self.start()
        self.assertFalse([each for each in logged if each["log_namespace"].endswith("SpaceTarget")])

    def test_ambiguous(self) -> None:
        """Of two none is picked; the provider says which."""
        self.hub.both(kubeconfig(ONE), provider="kcp")
        self.hub.both(kubeconfig(TWO), provider="kind")
        self.assertIn("there are several spaces", self.trouble(self.start()))
        self.start("kind")
        self.assertEqual(self.told.config().server, TWO)

    def test_provider_appears_later(self) -> None:
        """A broker of a provider may start before its Space exists, and reads no other namespace's list."""
        broker = self.start("kcp")
        missing = 'there is no space "one" of the provider "kcp"'
        self.assertIn(missing, self.trouble(broker))
        self.hub.both(kubeconfig(ONE), provider="kcp")
        self.clock.advance(LOOKUP_SECONDS)
        self.assertEqual(self.told.config().server, ONE)
        listed = {each[2] for each in self.hub.cluster.requests if each[0] in ("list", "watch")}
        self.assertEqual(listed, {"spaceprovider-kcp"})

    def test_misspelt_provider_is_logged(self) -> None:
        """A misspelt provider is logged once, however often the Space is looked up."""
        with capturedLogs() as logged:
            self.start("kpc")
            for _ in range(9):
                self.clock.advance(LOOKUP_SECONDS)
        (message,) = [each for each in logged if each["log_namespace"].endswith("SpaceTarget")]
        self.assertEqual(
            formatEvent(message), 'there is no space "one" of the provider "kpc"; waiting for it'
        )

    def test_imported(self) -> None:
        """The provider of an imported Space is its namespace, and no other namespace is listed."""
        self.hub.secret(kubeconfig(ONE), namespace="team", own="theirs")
        self.hub.space(namespace="team", secret="theirs", spec=IMPORTED)
        self.start("team")
        self.clock.advance(1)
        self.assertEqual(self.told.config().server, ONE)
        listed = {each[2] for each in self.hub.cluster.requests if each[0] in ("list", "watch")}
        self.assertEqual(listed, {"team"})

    def test_the_one(self) -> None:
        """Once found it is that one, whichever others there come to be of its name."""
        self.hub.both(kubeconfig(ONE), provider="kcp")
        self.start()
        self.hub.both(kubeconfig(TWO))
        self.assertEqual(self.told.config().server, ONE)
        self.hub.remove(SPACE, "one", "kcp")
        self.assertIn('space "kcp/one" is gone', self.told.problem)

    def test_rotates(self) -> None:
        """Other credentials change nothing but the next request."""
        self.hub.both(kubeconfig(ONE))
        broker = self.start()
        self.put(ONE, "m")
        self.hub.secret(kubeconfig(ONE, token="t2"))
        self.assertEqual((self.machines(broker), self.lost), (["m"], []))
        self.assertEqual(self.told.config().token, "t2")

    def test_vanishes(self) -> None:
        """Machines of a Space that disappeared are not reported as deleted."""
        self.put(ONE, "m")
        self.hub.both(kubeconfig(ONE))
        broker = self.start()
        self.assertEqual(self.machines(broker), ["m"])
        self.hub.remove(SPACE, "one")
        self.assertEqual(self.lost, ['space "default/one" is gone: it was deleted'])
        self.assertEqual(
            self.trouble(broker),
            'the target cluster is not available: space "default/one" is gone: it was deleted',
        )
        self.assertEqual(self.servers.clusters[ONE].watches, 0)

    def test_returns(self) -> None:
        """A Space that returns is another server; caches of the first are discarded."""
        self.put(ONE, "m")
        self.put(TWO, "n")
        self.hub.both(kubeconfig(ONE), physical="a")
        broker = self.start()
        self.hub.remove(SPACE, "one")
        self.hub.secret(kubeconfig(TWO))
        self.hub.space(physical="b")
        self.assertEqual(self.machines(broker), ["n"])

    def test_exchanged(self) -> None:
        """The same, where the object stays."""
        self.put(ONE, "m")
        self.put(TWO, "n")
        self.hub.both(kubeconfig(ONE), physical="a")
        broker = self.start()
        self.hub.secret(kubeconfig(TWO))
        self.hub.space(physical="b")
        self.assertEqual(self.machines(broker), ["n"])
        self.assertIn("another physical space", self.lost[0])

    def test_not_ready(self) -> None:
        """A Space that is NotReady for a while is still followed."""
        self.put(ONE, "m")
        self.hub.both(kubeconfig(ONE))
        broker = self.start()
        self.hub.space(phase=spaces.NOT_READY)
        self.assertEqual((self.machines(broker), self.lost), (["m"], []))
