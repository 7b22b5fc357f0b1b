"""
Tests for :mod:`twisted_exec.apiserver.restriction.pool_graph` and ``filtered_storage``: the objects
that a poollet's machines need, and what it may write to them.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import MACHINES, MERGE, APITestCase, Watching, machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.restriction import filtered_storage, pool_graph
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph

SECRETS = "/api/v1/namespaces/default/secrets"
ALL_SECRETS = "/api/v1/secrets"
STORAGE = "/apis/storage.ironcore.dev/v1alpha1"
NETWORKING = "/apis/networking.ironcore.dev/v1alpha1"
VOLUMES = f"{STORAGE}/namespaces/default/volumes"
INTERFACES = f"{NETWORKING}/namespaces/default/networkinterfaces"
NETWORKS = f"{NETWORKING}/namespaces/default/networks"
PREFIXES = "/apis/ipam.ironcore.dev/v1alpha1/namespaces/default/prefixes"
SOON = 0.1


class PoolGraphTestCase(APITestCase):
    """The poollet of pool-a, and objects that its machines may refer to."""

    user = "pool-a"

    def make(self, path: str, name: str, **body: Any) -> Object:
        stored: Object = self.answer("POST", path, {"metadata": {"name": name}, **body}, code=201)
        return stored

    def make_interface(self, name: str, **spec: Any) -> None:
        self.make(INTERFACES, name, spec={"networkRef": {"name": "lan"}, **spec})

    def seen(self, path: str, user: str = "") -> list[str]:
        items = self.answer("GET", path, user=user or self.user)["items"]
        return [each["metadata"]["name"] for each in items]

    def patch(self, path: str, body: Any, code: int = 200) -> Any:
        return self.answer("PATCH", path, body, content_type=MERGE, user=self.user, code=code)


class SecretsTests(PoolGraphTestCase):
    """Secrets."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("ignition", "keys", "other"):
            self.make(SECRETS, name, stringData={"a": "b"})

    def test_nothing(self) -> None:
        """Without a machine that refers to one, a poollet sees none and cannot tell which exist."""
        self.assertEqual(self.seen(ALL_SECRETS), [])
        for name in ("ignition", "missing"):
            message = self.refused(403, "GET", f"{SECRETS}/{name}", user=self.user)
            self.assertIn("no machine of it needs that", message)

    def test_ignition(self) -> None:
        """It sees the ignition of its own machine, which other poollets do not."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.answer("GET", f"{SECRETS}/ignition", user=self.user)
        for path in (ALL_SECRETS, SECRETS, f"{SECRETS}?fieldSelector=metadata.name%3Dignition"):
            self.assertEqual(self.seen(path), ["ignition"])
            self.assertEqual(self.seen(path, "pool-b"), [])
        self.refused(403, "GET", f"{SECRETS}/ignition", user="pool-b")
        self.assertEqual(len(self.seen(ALL_SECRETS, "admin")), 3)

    def test_missed(self) -> None:
        """A store that missed changes ends a filtered watch, like any other."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        watch = self.watch(f"{ALL_SECRETS}?watch=1", user=self.user)
        self.assertEqual(watch.names(), [("ADDED", "ignition")])
        self.storage.lose((kinds.SECRETS.resource, "default", "ignition"))
        (over,) = watch.events()
        self.assertEqual((over["type"], over["object"]["code"]), ("ERROR", 410))
        self.assertEqual(self.seen(ALL_SECRETS), [])

    def test_not_there_yet(self) -> None:
        """A Secret that a machine refers to and that does not exist is missing, not forbidden."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "later"})
        self.refused(404, "GET", f"{SECRETS}/later", user=self.user)

    def test_other_namespace(self) -> None:
        """A machine refers to Secrets of its own namespace."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.refused(403, "GET", "/api/v1/namespaces/kube-system/secrets/ignition", user=self.user)

    def test_no_more(self) -> None:
        """A Secret stays visible until the last machine that refers to it is deleted."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.make_machine("vm-2", "pool-a", ignitionRef={"name": "ignition"})
        self.answer("DELETE", f"{MACHINES}/vm")
        self.answer("GET", f"{SECRETS}/ignition", user=self.user)
        self.answer("DELETE", f"{MACHINES}/vm-2")
        self.refused(403, "GET", f"{SECRETS}/ignition", user=self.user)

    def test_of_volumes(self) -> None:
        """It sees the Secrets of the volumes that its machine refers to."""
        resources = {"volumeClassRef": {"name": "fast"}, "resources": {"storage": "1Gi"}}
        encrypted = {**resources, "encryption": {"secretRef": {"name": "keys"}}}
        self.make(VOLUMES, "disk", spec=encrypted)
        self.refused(403, "GET", f"{SECRETS}/keys", user=self.user)
        volume = {"name": "root", "volumeRef": {"name": "disk"}}
        self.make_machine("vm", "pool-a", volumes=[volume])
        self.assertEqual(self.seen(ALL_SECRETS), ["keys"])
        access = {"driver": "d", "handle": "h", "secretRef": {"name": "other"}}
        self.answer(
            "PATCH",
            f"{VOLUMES}/disk/status",
            {"status": {"state": "Available", "access": access}},
            content_type=MERGE,
        )
        self.assertEqual(self.seen(ALL_SECRETS), ["keys", "other"])

    def test_writes(self) -> None:
        """It writes no Secrets."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.patch(f"{SECRETS}/ignition", {"stringData": {"a": "c"}}, code=403)
        self.refused(403, "POST", SECRETS, {"metadata": {"name": "x"}}, user=self.user)
        self.refused(403, "DELETE", f"{SECRETS}/ignition", user=self.user)


class WatchTests(PoolGraphTestCase):
    """Watches of objects that become visible and invisible."""

    def setUp(self) -> None:
        super().setUp()
        self.make(SECRETS, "ignition", stringData={"a": "b"})

    def follow(self, query: str = "") -> Watching:
        return self.watch(f"{ALL_SECRETS}?watch=1{query}", user=self.user)

    def test_comes_and_goes(self) -> None:
        """A Secret that has not changed is added when a machine needs it, and deleted afterwards."""
        watch = self.follow()
        self.assertEqual(watch.names(), [])
        self.make_machine("vm", "", ignitionRef={"name": "ignition"})
        self.clock.advance(SOON)
        self.assertEqual(watch.names(), [])
        body = {"spec": {"machinePoolRef": {"name": "pool-a"}}}
        self.answer("PATCH", f"{MACHINES}/vm", body, content_type=MERGE)
        self.clock.advance(SOON)
        self.assertEqual(watch.names(), [("ADDED", "ignition")])
        self.answer("PATCH", f"{SECRETS}/ignition", {"stringData": {"a": "c"}}, content_type=MERGE)
        self.assertEqual(watch.names(), [("MODIFIED", "ignition")])
        self.answer("DELETE", f"{MACHINES}/vm")
        self.clock.advance(SOON)
        self.assertEqual(watch.names(), [("DELETED", "ignition")])

    def test_new(self) -> None:
        """A Secret that is created after the machine is added; other Secrets cause no events."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "later"})
        watch = self.follow()
        self.make(SECRETS, "other", stringData={"a": "b"})
        self.make(SECRETS, "later", stringData={"a": "b"})
        self.assertEqual(watch.names(), [("ADDED", "later")])
        self.answer("DELETE", f"{SECRETS}/later")
        self.answer("DELETE", f"{SECRETS}/other")
        self.assertEqual(watch.names(), [("DELETED", "later")])

    def test_existing(self) -> None:
        """The initial events of a watch are those of visible objects."""
        self.make(SECRETS, "other", stringData={"a": "b"})
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.assertEqual(self.follow().names(), [("ADDED", "ignition")])

    def test_others_changes(self) -> None:
        """Changes of other pools' machines cost a poollet's watches nothing."""
        looks = []
        watch_class: Any = filtered_storage._Watch
        look = watch_class._compare

        def counting(watch: Any) -> None:
            looks.append(watch)
            look(watch)

        APITestCase.patch(self, watch_class, "_compare", counting)
        watch = self.watch(f"{ALL_SECRETS}?watch=1", user=self.user)
        before = len(looks)
        for number in range(5):
            self.make_machine(f"theirs-{number}", "pool-b", ignitionRef={"name": "keys"})
            self.clock.advance(SOON)
        self.assertEqual(len(looks), before)
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.clock.advance(SOON)
        self.assertEqual(len(looks), before + 1)
        self.assertEqual(watch.names(), [("ADDED", "ignition")])

    def test_missed(self) -> None:
        """A client that was away when an object became visible gets 410 and lists again."""
        version = self.answer("GET", ALL_SECRETS, user=self.user)["metadata"]["resourceVersion"]
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        (event,) = self.follow(f"&resourceVersion={version}").events()
        self.assertEqual((event["type"], event["object"]["code"]), ("ERROR", 410))
        listing = self.answer("GET", ALL_SECRETS, user=self.user)
        version = listing["metadata"]["resourceVersion"]
        self.make_machine("unrelated", "pool-b", ignitionRef={"name": "x"})
        watch = self.follow(f"&resourceVersion={version}")
        self.assertEqual(watch.names(), [])

    def test_status_is_nothing_new(self) -> None:
        """The status of a machine makes no client list again."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        listing = self.answer("GET", ALL_SECRETS, user=self.user)
        version = listing["metadata"]["resourceVersion"]
        self.patch(f"{MACHINES}/vm/status", {"status": {"state": "Running"}})
        self.assertEqual(self.follow(f"&resourceVersion={version}").names(), [])


class ChangesTests(APITestCase):
    """The memory of changes, by pool."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(pool_graph, "_POOLS", 3)
        self.graph = PoolGraph(IRONCORE, self.storage, self.clock)
        self.graph.startService()
        self.addCleanup(self.graph.stopService)

    def come_and_go(self, pool: str) -> None:
        self.make_machine(f"of-{pool}", pool)
        self.answer("DELETE", f"{MACHINES}/of-{pool}")

    def test_bounded(self) -> None:
        """Machines of ever new pools leave nothing, and pools with machines stay as they were."""
        self.make_machine("vm", "pool-a")
        before = self.graph.since("pool-a"), self.graph.changes("pool-a")
        for number in range(100):
            self.come_and_go(f"pool-{number}")
            self.assertLessEqual(self.graph.remembered_changes, 4)
        self.assertEqual((self.graph.since("pool-a"), self.graph.changes("pool-a")), before)

    def test_forgotten(self) -> None:
        """A poollet whose pool was forgotten lists again, and finds each change to be one."""
        self.come_and_go("pool-a")
        version, number = self.storage.version(), self.graph.changes("pool-a")
        seen = {number}
        for other in range(10):
            self.come_and_go(f"pool-{other}")
            self.assertGreaterEqual(self.graph.changes("pool-a"), number)
            number = self.graph.changes("pool-a")
            self.come_and_go("pool-a")
            self.assertNotIn(self.graph.changes("pool-a"), seen)
            self.assertGreater(self.graph.since("pool-a"), version)
            version, number = self.storage.version(), self.graph.changes("pool-a")
            seen.add(number)


class DialectTests(APITestCase):
    """Poollets of several dialects on one server."""

    dialects = (IRONCORE, SPHERIC)

    def test_each_its_own(self) -> None:
        """
        The poollet of a fleet sees the Secrets of its instances, that of a pool those of its
        machines.
        """
        for name in ("image-keys", "ignition"):
            self.answer("POST", SECRETS, {"metadata": {"name": name}}, code=201)
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        spec = {
            "instanceTypeRef": {"name": "small"},
            "fleetRef": {"name": "fleet-a"},
            "imagePullSecret": {"name": "image-keys"},
        }
        instances = "/apis/core.spheric.cloud/v1alpha1/namespaces/default/instances"
        body = {"metadata": {"name": "vm"}, "spec": spec}
        self.answer("POST", instances, body, code=201)
        for user, visible in (("pool-a", ["ignition"]), ("fleet-a", ["image-keys"])):
            items = self.answer("GET", ALL_SECRETS, user=user)["items"]
            self.assertEqual([each["metadata"]["name"] for each in items], visible)
        self.refused(403, "GET", f"{SECRETS}/ignition", user="fleet-a")
        self.refused(403, "GET", VOLUMES, user="fleet-a")


class RoutingTests(APITestCase):
    """Routings of onmetal-api."""

    dialects = (ONMETAL,)
    group = "/apis/networking.api.onmetal.de/v1alpha1"

    def path(self, plural: str) -> str:
        return f"{self.group}/namespaces/default/{plural}"

    def make(self, plural: str, name: str, **body: Any) -> None:
        self.answer("POST", self.path(plural), {"metadata": {"name": name}, **body}, code=201)

    def seen(self, plural: str) -> list[str]:
        items = self.answer("GET", f"{self.group}/{plural}", user="onmetal-a")["items"]
        return [each["metadata"]["name"] for each in items]

    def test_by_network(self) -> None:
        """A poollet sees the routings of its machines' networks and the addresses of its interfaces."""
        for network in ("lan", "wan"):
            self.make("networks", network, spec={"handle": network})
            reference = {"name": network, "uid": network}
            self.make("loadbalancerroutings", f"of-{network}", networkRef=reference)
            spec = {"type": "Public", "networkRef": {"name": network}}
            self.make("loadbalancers", f"of-{network}", spec=spec)
            self.make("virtualips", f"ip-{network}", spec={"type": "Public", "ipFamily": "IPv4"})
        plurals = ("loadbalancerroutings", "loadbalancers", "virtualips")
        for plural in plurals:
            self.assertEqual(self.seen(plural), [])
        virtual = {"virtualIPRef": {"name": "ip-lan"}}
        spec = {"networkRef": {"name": "lan"}, "virtualIP": virtual}
        self.make("networkinterfaces", "nic", spec=spec)
        machine = {
            "machineClassRef": {"name": "small"},
            "machinePoolRef": {"name": "pool-a"},
            "networkInterfaces": [{"name": "a", "networkInterfaceRef": {"name": "nic"}}],
        }
        machines = "/apis/compute.api.onmetal.de/v1alpha1/namespaces/default/machines"
        body = {"metadata": {"name": "vm"}, "spec": machine}
        self.answer("POST", machines, body, code=201)
        for plural, name in zip(plurals, ("of-lan", "of-lan", "ip-lan"), strict=True):
            self.assertEqual(self.seen(plural), [name])
        self.answer("DELETE", f"{self.path('loadbalancerroutings')}/of-lan")
        self.assertEqual(self.seen("loadbalancers"), [])


class ClaimTests(PoolGraphTestCase):
    """Volumes and network interfaces."""

    def setUp(self) -> None:
        super().setUp()
        resources = {"volumeClassRef": {"name": "fast"}, "resources": {"storage": "1Gi"}}
        for name in ("disk", "vm-made", "other"):
            self.make(VOLUMES, name, spec=resources)
        for name in ("nic", "vm-nic2", "other"):
            self.make_interface(name, ipFamilies=["IPv4"], ips=[{"value": "10.0.0.1"}])
        for name in ("lan", "wan"):
            self.make(NETWORKS, name)
        self.make(PREFIXES, "nic3-0", spec={"prefix": "10.0.0.0/8"})
        self.machine = self.make_machine(
            "vm",
            "pool-a",
            volumes=[
                {"name": "a", "volumeRef": {"name": "disk"}},
                {"name": "made", "ephemeral": {}},
            ],
            networkInterfaces=[
                {"name": "n", "networkInterfaceRef": {"name": "nic"}},
                {"name": "nic2", "ephemeral": {}},
                {"name": "nic3", "networkInterfaceRef": {"name": "nic3"}},
            ],
        )
        self.claim = {"name": "vm", "uid": self.machine["metadata"]["uid"]}

    def test_seen(self) -> None:
        """It sees those that a machine refers to, or that are created for it, and their networks."""
        self.assertEqual(self.seen(VOLUMES), ["disk", "vm-made"])
        self.assertEqual(self.seen(INTERFACES), ["nic", "vm-nic2"])
        self.assertEqual(self.seen(NETWORKS), ["lan"])
        self.assertEqual(self.seen(PREFIXES), [])
        prefix = {"ephemeral": {"prefixTemplate": {"spec": {"parentRef": {"name": "root"}}}}}
        self.make_interface("nic3", ipFamilies=["IPv4"], ips=[prefix])
        self.assertEqual(self.seen(PREFIXES), ["nic3-0"])

    def test_claim(self) -> None:
        """It claims objects for its machine, and releases those that the machine no longer refers to."""
        for path, key in ((f"{VOLUMES}/disk", "claimRef"), (f"{INTERFACES}/nic", "machineRef")):
            self.patch(path, {"spec": {key: self.claim}})
        self.patch(f"{INTERFACES}/nic", {"spec": {"providerID": "x"}})
        self.patch(f"{INTERFACES}/nic/status", {"status": {"state": "Available"}})
        parts = {"spec": {"networkInterfaces": []}}
        self.answer("PATCH", f"{MACHINES}/vm", parts, content_type=MERGE)
        self.assertEqual(self.seen(INTERFACES), ["nic"])
        self.patch(f"{INTERFACES}/nic", {"spec": {"machineRef": None, "providerID": None}})
        self.assertEqual(self.seen(INTERFACES), [])

    def test_nothing_else(self) -> None:
        """It writes no other fields of them, and claims none that others have claimed."""
        self.patch(f"{VOLUMES}/other", {"spec": {"claimRef": self.claim}}, code=403)
        self.patch(f"{VOLUMES}/disk", {"spec": {"unclaimable": True}}, code=403)
        self.patch(f"{VOLUMES}/disk", {"metadata": {"labels": {"a": "b"}}}, code=403)
        self.patch(f"{VOLUMES}/disk/status", {"status": {"state": "Available"}}, code=403)
        theirs = {"name": "x", "uid": "u"}
        self.patch(f"{VOLUMES}/disk", {"spec": {"claimRef": theirs}}, code=403)
        self.answer("PATCH", f"{VOLUMES}/disk", {"spec": {"claimRef": theirs}}, content_type=MERGE)
        self.patch(f"{VOLUMES}/disk", {"spec": {"claimRef": self.claim}}, code=403)
        self.refused(403, "DELETE", f"{VOLUMES}/disk", user=self.user)
        self.patch(f"{NETWORKS}/lan", {"spec": {"providerID": "x"}}, code=403)

    def test_other_poollet(self) -> None:
        """Another pool's poollet neither sees nor claims them."""
        self.assertEqual(self.seen(VOLUMES, "pool-b"), [])
        body = {"spec": {"claimRef": self.claim}}
        self.refused(403, "PATCH", f"{VOLUMES}/disk", body, user="pool-b", content_type=MERGE)

    def test_machine_of_that_name(self) -> None:
        """A claim counts by UID: another machine of the same name has none."""
        self.patch(f"{VOLUMES}/disk", {"spec": {"claimRef": self.claim}})
        self.answer("DELETE", f"{MACHINES}/vm")
        self.answer("POST", MACHINES, machine("vm", "pool-b"), code=201)
        self.assertEqual(self.seen(VOLUMES, "pool-b"), [])
