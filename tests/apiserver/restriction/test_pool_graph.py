"""
Tests for :mod:`twisted_exec.apiserver.restriction.pool_graph` and ``narrowed``: what a poollet sees of what
its machines need, and what it may write there.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import MACHINES, MERGE, APITestCase, Watching, machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE, ONMETAL, SPHERIC
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.restriction import filtered_storage

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
    """The poollet of pool-a, and objects that its machines may need."""

    user = "pool-a"

    def make(self, path: str, name: str, **body: Any) -> Object:
        made: Object = self.answer("POST", path, {"metadata": {"name": name}, **body}, code=201)
        return made

    def make_interface(self, name: str, **spec: Any) -> None:
        self.make(INTERFACES, name, spec={"networkRef": {"name": "lan"}, **spec})

    def seen(self, path: str, user: str = "") -> list[str]:
        found = self.answer("GET", path, user=user or self.user)["items"]
        return [each["metadata"]["name"] for each in found]

    def patch(self, path: str, body: Any, code: int = 200) -> Any:
        return self.answer("PATCH", path, body, content_type=MERGE, user=self.user, code=code)


class SecretsTests(PoolGraphTestCase):
    """Secrets."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("ignition", "keys", "other"):
            self.make(SECRETS, name, stringData={"a": "b"})

    def test_nothing(self) -> None:
        """Before a machine names one, a poollet sees none, and cannot tell which there are."""
        self.assertEqual(self.seen(ALL_SECRETS), [])
        for name in ("ignition", "missing"):
            told = self.refused(403, "GET", f"{SECRETS}/{name}", user=self.user)
            self.assertIn("no machine of it needs that", told)

    def test_ignition(self) -> None:
        """It sees the ignition of its own machine, of which others see nothing."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.answer("GET", f"{SECRETS}/ignition", user=self.user)
        for path in (ALL_SECRETS, SECRETS, f"{SECRETS}?fieldSelector=metadata.name%3Dignition"):
            self.assertEqual(self.seen(path), ["ignition"])
            self.assertEqual(self.seen(path, "pool-b"), [])
        self.refused(403, "GET", f"{SECRETS}/ignition", user="pool-b")
        self.assertEqual(len(self.seen(ALL_SECRETS, "admin")), 3)

    def test_missed(self) -> None:
        """A store that missed changes ends the watch of who sees only some of it, as all others."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        watch = self.watch(f"{ALL_SECRETS}?watch=1", user=self.user)
        self.assertEqual(watch.names(), [("ADDED", "ignition")])
        self.storage.lose((kinds.SECRETS.resource, "default", "ignition"))
        (over,) = watch.events()
        self.assertEqual((over["type"], over["object"]["code"]), ("ERROR", 410))
        self.assertEqual(self.seen(ALL_SECRETS), [])

    def test_not_there_yet(self) -> None:
        """A Secret that a machine names and nobody has made is missing, not forbidden."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "later"})
        self.refused(404, "GET", f"{SECRETS}/later", user=self.user)

    def test_other_namespace(self) -> None:
        """A machine names Secrets of its own namespace."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.refused(403, "GET", "/api/v1/namespaces/kube-system/secrets/ignition", user=self.user)

    def test_no_more(self) -> None:
        """When the machine is gone, so is the sight."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.make_machine("vm-2", "pool-a", ignitionRef={"name": "ignition"})
        self.answer("DELETE", f"{MACHINES}/vm")
        self.answer("GET", f"{SECRETS}/ignition", user=self.user)
        self.answer("DELETE", f"{MACHINES}/vm-2")
        self.refused(403, "GET", f"{SECRETS}/ignition", user=self.user)

    def test_of_volumes(self) -> None:
        """The Secrets of the volumes that its machine names."""
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
        """It writes none."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.patch(f"{SECRETS}/ignition", {"stringData": {"a": "c"}}, code=403)
        self.refused(403, "POST", SECRETS, {"metadata": {"name": "x"}}, user=self.user)
        self.refused(403, "DELETE", f"{SECRETS}/ignition", user=self.user)


class WatchTests(PoolGraphTestCase):
    """Watches of what comes into sight and goes out of it."""

    def setUp(self) -> None:
        super().setUp()
        self.make(SECRETS, "ignition", stringData={"a": "b"})

    def follow(self, query: str = "") -> Watching:
        return self.watch(f"{ALL_SECRETS}?watch=1{query}", user=self.user)

    def test_comes_and_goes(self) -> None:
        """What has long been there is added when a machine comes to need it."""
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
        """What is made after a machine names it, and what nobody needs."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "later"})
        watch = self.follow()
        self.make(SECRETS, "other", stringData={"a": "b"})
        self.make(SECRETS, "later", stringData={"a": "b"})
        self.assertEqual(watch.names(), [("ADDED", "later")])
        self.answer("DELETE", f"{SECRETS}/later")
        self.answer("DELETE", f"{SECRETS}/other")
        self.assertEqual(watch.names(), [("DELETED", "later")])

    def test_existing(self) -> None:
        """A watch that begins with what there is shows what is seen."""
        self.make(SECRETS, "other", stringData={"a": "b"})
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        self.assertEqual(self.follow().names(), [("ADDED", "ignition")])

    def test_others_changes(self) -> None:
        """What other pools' machines need costs a poollet's watches nothing."""
        looks = []
        look = filtered_storage._Watch._compare

        def counting(watch: filtered_storage._Watch) -> None:
            looks.append(watch)
            look(watch)

        APITestCase.patch(self, filtered_storage._Watch, "_compare", counting)
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
        """Who was away when something came into sight is told to list again."""
        version = self.answer("GET", ALL_SECRETS, user=self.user)["metadata"]["resourceVersion"]
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        (told,) = self.follow(f"&resourceVersion={version}").events()
        self.assertEqual((told["type"], told["object"]["code"]), ("ERROR", 410))
        listing = self.answer("GET", ALL_SECRETS, user=self.user)
        version = listing["metadata"]["resourceVersion"]
        self.make_machine("unrelated", "pool-b", ignitionRef={"name": "x"})
        watch = self.follow(f"&resourceVersion={version}")
        self.assertEqual(watch.names(), [])

    def test_status_is_nothing_new(self) -> None:
        """What machines do does not make anybody list again."""
        self.make_machine("vm", "pool-a", ignitionRef={"name": "ignition"})
        listing = self.answer("GET", ALL_SECRETS, user=self.user)
        version = listing["metadata"]["resourceVersion"]
        self.patch(f"{MACHINES}/vm/status", {"status": {"state": "Running"}})
        self.assertEqual(self.follow(f"&resourceVersion={version}").names(), [])


class DialectTests(APITestCase):
    """Poollets of several dialects in one server."""

    dialects = (IRONCORE, SPHERIC)

    def test_each_its_own(self) -> None:
        """A fleet's poollet sees what its instances name, a pool's what its machines name."""
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
        for user, seen in (("pool-a", ["ignition"]), ("fleet-a", ["image-keys"])):
            found = self.answer("GET", ALL_SECRETS, user=user)["items"]
            self.assertEqual([each["metadata"]["name"] for each in found], seen)
        self.refused(403, "GET", f"{SECRETS}/ignition", user="fleet-a")
        self.refused(403, "GET", VOLUMES, user="fleet-a")


class RoutingTests(APITestCase):
    """What routes traffic to interfaces, in onmetal-api."""

    dialects = (ONMETAL,)
    group = "/apis/networking.api.onmetal.de/v1alpha1"

    def path(self, plural: str) -> str:
        return f"{self.group}/namespaces/default/{plural}"

    def make(self, plural: str, name: str, **body: Any) -> None:
        self.answer("POST", self.path(plural), {"metadata": {"name": name}, **body}, code=201)

    def seen(self, plural: str) -> list[str]:
        found = self.answer("GET", f"{self.group}/{plural}", user="onmetal-a")["items"]
        return [each["metadata"]["name"] for each in found]

    def test_by_network(self) -> None:
        """Those of the networks that its machines are on, and the addresses of its interfaces."""
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
        """Those that a machine names, or that are made for it, and the networks of these."""
        self.assertEqual(self.seen(VOLUMES), ["disk", "vm-made"])
        self.assertEqual(self.seen(INTERFACES), ["nic", "vm-nic2"])
        self.assertEqual(self.seen(NETWORKS), ["lan"])
        self.assertEqual(self.seen(PREFIXES), [])
        prefix = {"ephemeral": {"prefixTemplate": {"spec": {"parentRef": {"name": "root"}}}}}
        self.make_interface("nic3", ipFamilies=["IPv4"], ips=[prefix])
        self.assertEqual(self.seen(PREFIXES), ["nic3-0"])

    def test_claim(self) -> None:
        """It claims for its machine, and gives back what the machine names no more."""
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
        """It changes nothing else of them, and takes nothing away from others."""
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
        """Another pool's poollet sees and claims nothing of it."""
        self.assertEqual(self.seen(VOLUMES, "pool-b"), [])
        body = {"spec": {"claimRef": self.claim}}
        self.refused(403, "PATCH", f"{VOLUMES}/disk", body, user="pool-b", content_type=MERGE)

    def test_machine_of_that_name(self) -> None:
        """A claim is by UID: another machine of that name has none."""
        self.patch(f"{VOLUMES}/disk", {"spec": {"claimRef": self.claim}})
        self.answer("DELETE", f"{MACHINES}/vm")
        self.answer("POST", MACHINES, machine("vm", "pool-b"), code=201)
        self.assertEqual(self.seen(VOLUMES, "pool-b"), [])
