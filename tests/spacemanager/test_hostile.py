"""
What others may do to a manager of Spaces: users of the hub, providers, and who writes Secrets.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World, message
from twisted_exec.api import spaces
from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import BadRequest
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.spaces import imported
from twisted_exec.spacemanager.spaces.publishing import PROFILES
from twisted_exec.testing.space_provider import MemoryProvider, MemorySpace

NAMESPACE = spaces.namespace_of("p")
OURS = {spaces.MANAGED_BY: spaces.MANAGER}


class HostileTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.stop)

    def start(self, **spec: Any) -> None:
        self.world.desc("p", **spec)
        self.world.manager()
        self.world.settle(5)

    def forged(self, name: str, space: str, type: str = "Opaque", **rest: Any) -> None:
        """A Secret with our labels that somebody else wrote."""
        labels = {**OURS, spaces.SPACE_LABEL: space}
        metadata = {"labels": labels, **rest.pop("metadata", {})}
        self.world.put(SECRETS.resource, name, NAMESPACE, metadata=metadata, type=type, **rest)


class UsersTests(HostileTestCase):
    """Who may make Spaces in a provider's namespace, and no more."""

    def test_left_out_by_discovery(self) -> None:
        """What the provider's owner leaves out is not had by asking for it by name, either."""
        self.start(SpacePrefixForDiscovery="team-")
        self.world.spaces_of().put(Physical("prod"))
        self.world.spaces_of().put(Physical("team-a"))
        self.world.space("mine", "p", Type=spaces.UNMANAGED)
        self.world.annotate("mine", **{spaces.PHYSICAL_NAME: "prod"})
        self.world.spaces_of().put(Physical("prod-2"))
        self.world.space("prod-2", "p", Type=spaces.UNMANAGED)
        self.world.settle()
        self.assertEqual(self.world.secrets(), ["external-team-a", "incluster-team-a"])
        for name in ("mine", "prod-2"):
            self.assertEqual(self.world.said(name, spaces.SYNCED), ("False", "NotDiscovered"))
            self.assertIn("SpacePrefixForDiscovery", message(self.world.seen(name), spaces.SYNCED))

    def test_left_out_later(self) -> None:
        """Nor is it kept when that is said later; the object is its user's, and stays."""
        self.start()
        self.world.spaces_of().put(Physical("prod"))
        self.world.space("prod", "p", Type=spaces.UNMANAGED)
        self.world.settle()
        self.assertEqual(self.world.phase("prod"), "Ready")
        self.world.desc("p", SpacePrefixForDiscovery="team-")
        self.world.settle()
        self.assertEqual(self.world.secrets(), [])
        self.assertEqual(self.world.names(), ["prod"])

    def test_no_name(self) -> None:
        """What its provider can have none of is told as the Space's fault, and goes when it is deleted."""
        self.start()
        refused = BadRequest("there can be none of that name")
        self.patch(MemoryProvider, "get", lambda *_: fail(refused))
        annotations = {spaces.PHYSICAL_NAME: "../../etc", spaces.PATH: "x/../y"}
        self.world.put(
            spaces.SPACES,
            "mine",
            NAMESPACE,
            metadata={"annotations": annotations},
            spec={"SpaceProviderDescName": "p"},
        )
        self.world.settle()
        self.assertEqual(self.world.said("mine", spaces.SYNCED), ("False", "Refused"))
        self.assertEqual(self.world.said("mine", spaces.PROVIDER_REACHABLE)[0], "True")
        self.assertEqual(self.world.phase("mine"), "Initializing")
        self.world.delete("mine")
        self.world.settle(70)
        self.assertEqual(self.world.names(), [])

    def test_anothers_by_annotation(self) -> None:
        """A managed Space that claims what is another's neither reads nor deletes it."""
        self.start(SpacePrefixForDiscovery="nothing")
        prod = self.world.spaces_of().put(Physical("prod"), MemorySpace(owner="somebody"))
        self.world.put(
            spaces.SPACES,
            "mine",
            NAMESPACE,
            metadata={"annotations": {spaces.PHYSICAL_NAME: "prod"}},
            spec={"SpaceProviderDescName": "p"},
        )
        self.world.settle()
        self.assertEqual(self.world.said("mine", spaces.SYNCED), ("False", "NameTaken"))
        self.assertEqual(self.world.secrets(), [])
        self.world.delete("mine")
        self.world.settle()
        self.assertEqual(self.world.names(), [])
        self.assertIs(self.world.spaces_of().spaces[Physical("prod")], prod)

    def test_anothers_by_status(self) -> None:
        """Nor one whose status was written by somebody who may, as if it had been made for it."""
        self.start(SpacePrefixForDiscovery="nothing")
        self.world.spaces_of().put(Physical("prod"), MemorySpace(owner="somebody"))
        space = self.world.space("mine", "p")
        self.world.settle()
        self.world.spaces_of().drop(Physical("mine"))
        space = self.world.seen("mine")
        status = {**space["status"], "physicalSpace": {"name": "prod", "found": True}}
        self.world.client.update(
            spaces.SPACES, {**space, "status": status}, NAMESPACE, subresource="status"
        )
        self.world.settle()
        self.world.delete("mine")
        self.world.settle()
        self.assertIn(Physical("prod"), self.world.spaces_of().spaces)

    def test_elsewhere(self) -> None:
        """
        A Secret of another namespace is not read: neither what it holds nor whether it is there is
        told.
        """
        self.start()
        self.world.secret("admin", "kube-system", kubeconfig=self.world.given("t"))
        told = []
        for name, secret in (("one", "admin"), ("two", "nothing")):
            reference = {"name": secret, "namespace": "kube-system"}
            spec = {"Type": spaces.IMPORTED, "inClusterSecretRef": reference}
            self.world.put(spaces.SPACES, name, "team", spec=spec)
            self.world.settle()
            space = self.world.cluster.objects[spaces.SPACES, "team", name]
            told.append(message(space, spaces.SYNCED).replace(secret, "it"))
            self.assertNotIn("endpoints", space["status"])
        self.assertEqual(*told)
        asked = [
            each for each in self.world.cluster.requests if each[1:3] == ("secrets", "kube-system")
        ]
        self.assertEqual(asked, [("create", "secrets", "kube-system", "")])

    def test_silent_servers(self) -> None:
        """Imported Spaces whose servers say nothing keep none of another namespace waiting."""
        self.start()
        loop = self.world.managers[0].loop
        waiting = []

        async def silent(contents: Any, what: str) -> Any:
            if "greedy" in what:
                waiting.append(what)
                await Deferred()
            return await self.world.probe(contents, what)

        self.patch(loop, "_probe", silent)
        self.world.tokens.add("t")
        spec = {"Type": spaces.IMPORTED, "externalSecretRef": {"name": "k"}}
        for namespace, count in (("greedy", 40), ("modest", 1)):
            self.world.secret("k", namespace, kubeconfig=self.world.given("t"))
            for number in range(count):
                self.world.put(spaces.SPACES, f"s{number}", namespace, spec=spec)
        self.world.settle()
        for number in range(40):
            self.world.client.delete(spaces.SPACES, f"s{number}", "greedy")
        self.world.settle(2)
        self.assertGreaterEqual(len(waiting), 8)
        metadata = {"annotations": {spaces.FORGET: "true"}}
        self.world.client.patch(spaces.SPACES, "s0", {"metadata": metadata}, "modest")
        self.world.client.delete(spaces.SPACES, "s0", "modest")
        self.world.settle(2)
        self.assertNotIn((spaces.SPACES, "modest", "s0"), self.world.cluster.objects)


class SecretsTests(HostileTestCase):
    """Who may write Secrets with our labels."""

    def test_record(self) -> None:
        """A forged record makes an imported Space of its own namespace, and brings nothing else along."""
        self.start()
        told = {
            "metadata": {
                "namespace": "kube-system",
                "finalizers": ["a.example/b"],
                "ownerReferences": [{"kind": "Node", "name": "n", "uid": "1", "apiVersion": "v1"}],
                "labels": {"a": "b", "c": 4},
                "uid": "chosen",
            },
            "spec": {"Type": spaces.MANAGED, "SpaceProviderDescName": "p"},
        }
        encoded = base64.b64encode(json.dumps(told).encode()).decode()
        self.forged(
            imported.record_name("evil"),
            "evil",
            imported.RECORD_TYPE,
            data={"space.json": encoded},
        )
        self.world.settle()
        made = self.world.seen("evil")
        self.assertEqual(made["spec"]["Type"], spaces.IMPORTED)
        self.assertEqual(made["metadata"]["labels"], {"a": "b"})
        self.assertNotIn("ownerReferences", made["metadata"])
        self.assertEqual(made["metadata"]["finalizers"], [spaces.FINALIZER])
        self.assertEqual(self.world.spaces_of().spaces, {})

    def test_records_that_are_none(self) -> None:
        """Anything at all in a record makes nothing, and is gone soon."""
        self.start()
        contents = (b"", b"[]", b'{"metadata": []}', b'{"metadata": 1, "spec": 2}', b"[" * 90_000)
        for number, content in enumerate(contents):
            self.forged(
                imported.record_name(f"r{number}"),
                f"r{number}",
                imported.RECORD_TYPE,
                data={"space.json": base64.b64encode(content).decode()},
            )
        self.world.settle()
        self.assertEqual((self.world.names(), self.world.secrets()), ([], []))
        self.flushLoggedErrors()

    def test_memory(self) -> None:
        """Of Secrets that only have our labels nothing is kept, and of ours no more than we read."""
        self.start()
        large = {"a": "x" * 700_000, spaces.KUBECONFIG_KEY: "y" * 700_000}
        self.forged("anything", "one", data=large)
        owner = {"apiVersion": spaces.SPACES.api_version, "kind": "Space", "controller": True}
        metadata = {"ownerReferences": [{**owner, "uid": "1", "name": "one"}]}
        self.forged("external-one", "one", data=large, metadata=metadata)
        for secret in self.world.cluster.objects.values():
            if secret["metadata"].get("labels"):
                kept = imported.trimmed(secret)
                self.assertEqual(kept.get("data", {}), {})
        self.assertIs(self.world.managers[0].loop._secrets._trim, imported.trimmed)

    def test_in_the_way(self) -> None:
        """A Secret of the name of one of ours is neither read, overwritten nor deleted."""
        self.start()
        for labels in ({}, {**OURS, spaces.SPACE_LABEL: "one"}):
            metadata = {"labels": labels}
            data = {spaces.KUBECONFIG_KEY: base64.b64encode(b"mine").decode()}
            self.world.put(
                SECRETS.resource, "external-one", NAMESPACE, metadata=metadata, data=data
            )
            self.world.space("one", "p")
            self.world.settle()
            self.assertEqual(self.world.said("one", spaces.SYNCED), ("False", "SecretTaken"))
            self.world.delete("one")
            self.world.settle()
            kept = self.world.cluster.objects[SECRETS.resource, NAMESPACE, "external-one"]
            self.assertEqual(kept["data"], data)
            self.world.drop(SECRETS.resource, "external-one", NAMESPACE)


class ProfilesTests(HostileTestCase):
    """ClusterProfiles that have our label, and that somebody else has written."""

    def test_copied(self) -> None:
        """They are neither changed nor deleted, whether there is a Space of that name or not."""
        labels = {**OURS, spaces.SPACE_LABEL: "one", spaces.PROVIDER_LABEL: "p"}
        spec = {"clusterManager": {"name": "theirs"}}
        for name in ("one", "two"):
            metadata = {"labels": {**labels, spaces.SPACE_LABEL: name}}
            self.world.put(PROFILES, name, NAMESPACE, metadata=metadata, spec=spec)
        self.start()
        self.world.space("one", "p")
        self.world.settle(20)
        self.assertEqual(self.world.phase("one"), "Ready")
        self.assertIn("NotPublished", self.world.reasons("one"))
        self.world.delete("one")
        self.world.settle(20)
        for name in ("one", "two"):
            kept = self.world.cluster.objects[PROFILES, NAMESPACE, name]
            self.assertEqual(kept["spec"], spec)


class NamespacesTests(HostileTestCase):
    """Namespaces of providers that are gone."""

    def test_rights_stay(self) -> None:
        """Who may do what in it was said by somebody else: it is theirs, and keeps the namespace."""
        for group, plural, kind in (
            ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
            ("rbac.authorization.k8s.io", "roles", "Role"),
        ):
            world = World()
            self.addCleanup(world.stop)
            world.desc("p")
            world.manager()
            world.settle(5)
            name = "tenants"
            world.put(Resource(group, "v1", plural, kind), name, NAMESPACE)
            world.drop(spaces.PROVIDERS, "p")
            world.settle(90)
            self.assertIn((NAMESPACES.resource, "", NAMESPACE), world.cluster.objects)
            world.drop(Resource(group, "v1", plural, kind), name, NAMESPACE)
            world.settle(90)
            self.assertNotIn((NAMESPACES.resource, "", NAMESPACE), world.cluster.objects)

    def test_not_ours(self) -> None:
        """A namespace that a user made has no mark of ours, and stays; so does any other name."""
        self.world.put(NAMESPACES.resource, NAMESPACE)
        labels = {**OURS, spaces.PROVIDER_LABEL: "system"}
        self.world.put(NAMESPACES.resource, "kube-system", metadata={"labels": labels})
        self.start()
        self.world.drop(spaces.PROVIDERS, "p")
        self.world.settle(90)
        for name in (NAMESPACE, "kube-system"):
            self.assertIn((NAMESPACES.resource, "", name), self.world.cluster.objects)


class ProvidersTests(HostileTestCase):
    """What a provider tells."""

    def test_names(self) -> None:
        """
        What it calls its spaces may be anything; what cannot be told is left out, and the rest is
        there.
        """
        self.start()
        world = self.world.spaces_of()
        bad = ("", "x" * 2000, "a\nb", "\x1b[2J", "\ud800", "\u202e")
        odd = ("../../kube-system", "a/b", "A B", "kube-system", "ä", "x" * 200)
        for name in (*bad, *odd, "good"):
            world.put(Physical(name))
        self.world.settle(40)
        stands_for = {
            space["status"]["physicalSpace"]["name"]
            for space in map(self.world.seen, self.world.names(NAMESPACE))
        }
        self.assertEqual(stands_for, {*odd, "good"})
        for secret in self.world.secrets():
            self.assertRegex(secret, r"^(incluster|external)-[a-z0-9.-]+$")

    def test_collisions(self) -> None:
        """Two that would have one name have two, each the credentials of its own."""
        self.start()
        world = self.world.spaces_of()
        world.parents = ["a:b", "a-b", "A.b"]
        found = [Physical("c", parent) for parent in world.parents]
        for physical in found:
            world.put(physical)
        self.world.settle()
        names = self.world.names(NAMESPACE)
        self.assertEqual(len(names), 3)
        for name in names:
            space = self.world.seen(name)
            told = space["status"]["physicalSpace"]
            uid = world.spaces[Physical(told["name"], told["parent"])].uid
            self.assertTrue(self.world.token(f"external-{name}").startswith(f"token-{uid}-"))


class ManagersTests(HostileTestCase):
    """
    Another manager, such as one that was stopped while it led, and does not know yet that it leads
    no more.
    """

    def test_two_at_once(self) -> None:
        """Two that both believe that they lead make one physical space of each Space, and leave none."""
        self.start()
        self.world.manager()
        for number in range(10):
            self.world.space(f"s{number}", "p")
        self.world.spaces_of().put(Physical("found"))
        self.world.settle(20)
        spaces_there = self.world.spaces_of().spaces
        self.assertEqual(len(spaces_there), 11)
        for number in range(10):
            owner = self.world.seen(f"s{number}")["metadata"]["uid"]
            self.assertEqual(spaces_there[Physical(f"s{number}")].owner, owner)
            self.assertEqual(self.world.phase(f"s{number}"), "Ready")
        for number in range(10):
            self.world.delete(f"s{number}")
        self.world.settle(20)
        self.assertEqual(set(spaces_there), {Physical("found")})
        self.assertEqual(self.world.names(), ["found"])
        self.assertEqual(self.world.secrets(), ["external-found", "incluster-found"])

    def test_deposed(self) -> None:
        """What was decided before a Space was deleted, and comes to be done after, makes nothing."""
        self.start()
        world = self.world
        held: list[Any] = []
        client = world.managers[0].loop._hub
        get = client.get

        def late(resource: Any, name: str, namespace: str = "") -> Any:
            if resource != spaces.SPACES or name != "one":
                return get(resource, name, namespace)
            waiting: Deferred[Any] = Deferred()
            held.append(lambda: get(resource, name, namespace).chainDeferred(waiting))
            return waiting

        self.patch(client, "get", late)
        world.space("one", "p")
        world.settle(3)
        self.assertEqual(len(held), 1)  # it is about to make it, and is stopped
        world.manager()
        world.settle()
        world.delete("one")
        world.settle()
        self.assertEqual((world.names(), world.spaces_of().spaces), ([], {}))
        for go_on in held:
            go_on()
        world.settle()
        self.assertEqual((world.names(), world.spaces_of().spaces), ([], {}))
