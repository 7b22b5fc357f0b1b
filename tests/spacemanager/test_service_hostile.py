"""
Attacks on a manager of Spaces: by users of the hub, by providers and by writers of Secrets.
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
        """Write a Secret with the manager's labels as another user would."""
        labels = {**OURS, spaces.SPACE_LABEL: space}
        metadata = {"labels": labels, **rest.pop("metadata", {})}
        self.world.put(SECRETS.resource, name, NAMESPACE, metadata=metadata, type=type, **rest)


class UsersTests(HostileTestCase):
    """Users who may only create Spaces in a provider's namespace."""

    def test_left_out_by_discovery(self) -> None:
        """A Space cannot name a physical space that SpacePrefixForDiscovery excludes."""
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
        """A prefix set later removes the Secrets of excluded Spaces; the user's object stays."""
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
        """A name that the provider refuses is reported on the Space, which can still be deleted."""
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
        """A managed Space neither reads nor deletes another owner's physical space."""
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
        """A forged status.physicalSpace does not let a Space delete another's physical space."""
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
        A Secret of another namespace is not read: the Space shows neither its content nor whether
        it exists.
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
        """Imported Spaces with silent servers do not delay Spaces of another namespace."""
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
    """Users who may write Secrets with the manager's labels."""

    def test_record(self) -> None:
        """A forged record only yields an imported Space in its own namespace, without owners."""
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
        """A record with invalid content creates no Space, and its Secret is deleted."""
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
        """The cache of labelled Secrets holds none of the data that the manager does not read."""
        self.start()
        large = {"a": "x" * 700_000, spaces.KUBECONFIG_KEY: "y" * 700_000}
        self.forged("anything", "one", data=large)
        owner = {"apiVersion": spaces.SPACES.api_version, "kind": "Space", "controller": True}
        metadata = {"ownerReferences": [{**owner, "uid": "1", "name": "one"}]}
        self.forged("external-one", "one", data=large, metadata=metadata)
        for secret in self.world.cluster.objects.values():
            if secret["metadata"].get("labels"):
                kept = imported.trim_secret(secret)
                self.assertEqual(kept.get("data", {}), {})
        self.assertIs(self.world.managers[0].loop._secrets._trim, imported.trim_secret)

    def test_in_the_way(self) -> None:
        """A user's Secret in the manager's way is neither overwritten nor deleted."""
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
    """ClusterProfiles with the manager's labels that another user wrote."""

    def test_copied(self) -> None:
        """Such ClusterProfiles are neither changed nor deleted."""
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
    """Namespaces of deleted providers."""

    def test_rights_stay(self) -> None:
        """Another user's Role or RoleBinding keeps the namespace from being deleted."""
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
        """A namespace without the manager's labels, or with another name, is not deleted."""
        self.world.put(NAMESPACES.resource, NAMESPACE)
        labels = {**OURS, spaces.PROVIDER_LABEL: "system"}
        self.world.put(NAMESPACES.resource, "kube-system", metadata={"labels": labels})
        self.start()
        self.world.drop(spaces.PROVIDERS, "p")
        self.world.settle(90)
        for name in (NAMESPACE, "kube-system"):
            self.assertIn((NAMESPACES.resource, "", name), self.world.cluster.objects)


class ProvidersTests(HostileTestCase):
    """Data from a hostile provider."""

    def test_names(self) -> None:
        """
        Physical spaces with unprintable, empty or overlong names are skipped; all others become
        Spaces.
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
        """Physical spaces with colliding names get different Spaces and credentials."""
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
    A second active manager, such as a leader that was suspended and has not noticed the loss of
    its lease.
    """

    def test_two_at_once(self) -> None:
        """Two active managers create one physical space for each Space, and delete them all."""
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
        """A create that a suspended manager resumes after the Space was deleted creates nothing."""
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
        self.assertEqual(len(held), 1)  # suspended just before the create
        world.manager()
        world.settle()
        world.delete("one")
        world.settle()
        self.assertEqual((world.names(), world.spaces_of().spaces), ([], {}))
        for go_on in held:
            go_on()
        world.settle()
        self.assertEqual((world.names(), world.spaces_of().spaces), ([], {}))
