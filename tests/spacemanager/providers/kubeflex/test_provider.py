"""
Tests for KubeFlex control planes of every type and their pitfalls, with a fake KubeFlex manager.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.providers.cluster_world import kubeconfig
from tests.spacemanager.providers.kubeflex.played import KIND, SECRETS_OF
from tests.spacemanager.providers.kubeflex.test_provider_contract import KubeFlexWorld
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, KUBEFLEX, OWNER
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.kubeflex import provider as kubeflex
from twisted_exec.spacemanager.providers.kubeflex.parameters import TYPES
from twisted_exec.spacemanager.providers.kubeflex.provider import KubeFlex
from twisted_exec.testing.cluster import MemoryCluster

UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
RED = Physical("red")


class KubeFlexCase(SynchronousTestCase):
    """A fake KubeFlex and an adaptor that may create all types."""

    def setUp(self) -> None:
        self.world = KubeFlexWorld()
        self.cluster = ProviderCluster(
            self.world.client(), "the cluster of KubeFlex", "put others there"
        )
        self.adaptor = KubeFlex(self.cluster, self.world.time, TYPES)

    def create(self, type: str = "k8s", name: str = "red", **more: str) -> None:
        wanted = SpaceRequest(UID, {"type": type, **more})
        self.successResultOf(self.adaptor.create(Physical(name), wanted))

    def turns(self, number: int = 6) -> None:
        for _ in range(number):
            self.world.flex.turn()

    def get(self, name: str = "red") -> SpaceInfo:
        info: SpaceInfo = self.successResultOf(self.adaptor.get(Physical(name)))
        listed = {each.physical.name: each for each in self.successResultOf(self.list())}
        seen = listed[name]
        self.assertEqual(
            (seen.state, seen.reason, seen.version), (info.state, info.reason, info.version)
        )
        return info

    def list(self) -> Any:
        return self.adaptor.list_spaces()

    def refused(self, call: Any) -> APIError:
        error: APIError = self.failureResultOf(call, APIError).value
        return error

    def status(self, name: str = "red", **status: Any) -> None:
        there = self.world.find(KIND, name)
        assert there is not None
        self.world.put(KIND, name, {**there, "status": {**there.get("status", {}), **status}})


class TypeTests(KubeFlexCase):
    """Secrets and keys of each type of control plane."""

    def check(self, type: str, *viewpoints: str, **more: str) -> SpaceInfo:
        self.create(type, **more)
        self.turns()
        info = self.get()
        self.assertEqual(info.state, USABLE, info)
        self.assertEqual(sorted(info.access), sorted(viewpoints))
        for access in info.access.values():
            self.assertTrue(load_inline(access.kubeconfig, "it").token.startswith("token-red-"))
        return info

    def test_k8s(self) -> None:
        """Type k8s has both viewpoints, each with its own server; the backend is optional."""
        info = self.check("k8s", IN_CLUSTER, EXTERNAL)
        servers = {key: load_inline(a.kubeconfig, "it").server for key, a in info.access.items()}
        self.assertEqual(
            servers,
            {
                IN_CLUSTER: "https://red.red-system.svc.cluster.local",
                EXTERNAL: "https://red.localtest.me:9443",
            },
        )
        there = self.world.find(KIND, "red")
        assert there is not None
        self.assertEqual(there["spec"], {"type": "k8s"})
        self.assertEqual(there["metadata"]["annotations"], {OWNER: UID})

    def test_vcluster(self) -> None:
        """The in-cluster key of vcluster appears after Ready (kubestellar#2717)."""
        self.create("vcluster")
        self.turns(3)
        early = self.get()
        self.assertEqual((early.state, list(early.access)), (USABLE, [EXTERNAL]))
        self.turns()
        late = self.get()
        self.assertEqual(set(late.access), {IN_CLUSTER, EXTERNAL})
        self.assertNotEqual(late.version, early.version)

    def test_k3s(self) -> None:
        """Keys with empty values count as missing."""
        self.create("k3s", backend="dedicated")
        self.turns(2)
        self.world.flex.put_secret("red", "k3s-config", {"config": "", "config-incluster": ""})
        self.world.flex.turn()
        info = self.get()
        self.assertEqual((info.state, info.reason), (BUILDING, "CredentialsMissing"))
        self.assertIn("red-system/k3s-config has no value yet under config", info.message)
        self.world.flex.put_secret("red", "k3s-config", {"config": kubeconfig("https://k", "t")})
        self.assertEqual(self.get().state, USABLE)

    def test_ocm(self) -> None:
        """Type ocm has only the external viewpoint, as its inClusterKey is empty."""
        self.check("ocm", EXTERNAL)

    def test_host(self) -> None:
        """
        Type host names an external key that is never written: it has only the in-cluster viewpoint.
        """
        self.check("host", IN_CLUSTER)

    def test_external(self) -> None:
        """Type external uses its in-cluster kubeconfig for both viewpoints."""
        info = self.check("external", IN_CLUSTER, EXTERNAL)
        self.assertEqual(info.access[IN_CLUSTER], info.access[EXTERNAL])
        there = self.world.find(KIND, "red")
        assert there is not None
        told = {
            "namespace": "kubeflex-system",
            "name": "red-bootstrap",
            "inClusterKey": "kubeconfig-incluster",
        }
        self.assertEqual(there["spec"]["bootstrapSecretRef"], told)

    def test_external_parameters(self) -> None:
        """Parameters set the bootstrap Secret and the token lifetime of type external."""
        self.create("external", bootstrapSecret="x-bootstrap", tokenExpirationSeconds="3600")
        there = self.world.find(KIND, "red")
        assert there is not None
        self.assertEqual(there["spec"]["bootstrapSecretRef"]["name"], "x-bootstrap")
        self.assertEqual(there["spec"]["tokenExpirationSeconds"], 3600)

    def test_all(self) -> None:
        """Listing all types takes six requests, four of them for Secrets."""
        for type in TYPES:
            self.create(type, f"of-{type}")
        self.turns()
        before = len(self.world.cluster.requests)
        listed = self.successResultOf(self.list())
        self.assertEqual({info.state for info in listed}, {USABLE})
        self.assertEqual(len(listed), 6)
        self.assertEqual(len(self.world.cluster.requests) - before, 2 + 4)


class TrapTests(KubeFlexCase):
    """States that look usable but are not."""

    def test_no_status(self) -> None:
        """A control plane without a status hints at a KubeFlex manager that is down."""
        self.world.flex.down = True
        self.create()
        self.turns()
        info = self.get()
        self.assertEqual((info.state, info.reason), (BUILDING, "NotReconciled"))
        self.assertIn("check that its manager is running", info.message)

    def test_secret_before_ready(self) -> None:
        """A control plane with a Secret but Ready False is not usable."""
        self.world.flex.held = True
        self.create()
        self.turns()
        there = self.world.find(KIND, "red")
        assert there is not None
        self.assertTrue(there["status"]["secretRef"]["name"])
        info = self.get()
        self.assertEqual(
            (info.state, info.reason, dict(info.access)), (BUILDING, "Unavailable", {})
        )

    def test_ready_of_another_reason(self) -> None:
        """Ready with a reason other than Available is not usable."""
        self.create()
        self.turns()
        conditions = [{"type": "Ready", "status": "True", "reason": "WaitingForPostCreateHooks"}]
        self.status(conditions=conditions)
        self.assertEqual(self.get().state, BUILDING)

    def test_ready_without_secret(self) -> None:
        """A Ready control plane without its Secret is not usable."""
        self.create()
        self.turns()
        self.world.drop(SECRETS, "admin-kubeconfig", "red-system")
        info = self.get()
        self.assertEqual((info.state, info.reason), (BUILDING, "CredentialsMissing"))
        self.assertIn("secret red-system/admin-kubeconfig does not exist", info.message)
        self.status(secretRef=None)
        self.assertIn("names no Secret", self.get().message)

    def test_trouble(self) -> None:
        """KubeFlex's error becomes the message, on one line of limited length."""
        self.world.flex.down = True
        self.create("external")
        told = "bootstrapSecretRef must be present\n" + "x" * 5000
        bad = {"type": "Synced", "status": "False", "reason": "ReconcileError", "message": told}
        self.status(conditions=[bad])
        info = self.get()
        self.assertEqual((info.state, info.reason), (BUILDING, "ReconcileError"))
        self.assertTrue(info.message.startswith("bootstrapSecretRef must be present x"))
        self.assertLess(len(info.message), 500)

    def test_reserved_names(self) -> None:
        """Names such as kube, whose namespace would be kube-system, are refused."""
        for name in ("kube", "kubeflex"):
            self.world.put(NAMESPACES, f"{name}-system", {})
            self.world.put(KIND, name, {"spec": {"type": "host"}})
            self.turns()
            info = self.get(name)
            self.assertEqual(
                (info.state, info.reason, dict(info.access)), (BROKEN, "NameRefused", {})
            )
            self.assertIn(f"the namespace {name}-system, which is another's", info.message)
            error = self.refused(self.adaptor.create(Physical(name), SpaceRequest(UID)))
            self.assertIsInstance(error, BadRequest)

    def test_taken_namespace(self) -> None:
        """
        A control plane whose namespace already existed is refused, and its Secrets are not read.
        """
        self.world.put(NAMESPACES, "istio-system", {})
        istio = Physical("istio")
        error = self.refused(self.adaptor.create(istio, SpaceRequest(UID)))
        self.assertIsInstance(error, BadRequest)
        self.assertIn("istio-system exists already", error.message)
        self.world.put(KIND, "istio", {"spec": {"type": "k8s"}})
        self.turns()
        info = self.get("istio")
        self.assertEqual(
            (info.state, info.reason, dict(info.access)), (BROKEN, "NamespaceTaken", {})
        )
        self.assertEqual([n for n in self.secrets_asked() if n == "istio-system"], [])

    def secrets_asked(self) -> list[str]:
        return [
            namespace
            for verb, plural, namespace, _ in self.world.cluster.requests
            if (verb, plural) == ("get", "secrets")
        ]

    def test_secret_elsewhere(self) -> None:
        """A secretRef to another namespace is refused without reading the Secret."""
        self.create()
        self.turns()
        elsewhere = {"namespace": "kube-system", "name": "admin", "key": "k", "inClusterKey": "k"}
        for reference in (elsewhere, {**elsewhere, "namespace": "red-system", "name": "../../x"}):
            self.status(secretRef=reference)
            before = len(self.secrets_asked())
            info = self.get()
            self.assertEqual((info.state, info.reason), (BROKEN, "ForeignSecret"))
            self.assertEqual(len(self.secrets_asked()), before)

    def test_unclean(self) -> None:
        """Kubeconfigs that run programs or open files are refused with the reason."""
        self.create()
        self.turns()
        run = kubeconfig("https://x", "", exec={"command": "evil", "apiVersion": "v1"})
        file = kubeconfig("https://x", "", tokenFile="/etc/shadow")
        both = {"kubeconfig": run, "kubeconfig-incluster": file}
        self.world.flex.put_secret("red", "admin-kubeconfig", both)
        info = self.get()
        self.assertEqual(
            (info.state, info.reason, dict(info.access)), (BROKEN, "KubeconfigRefused", {})
        )
        self.assertIn("exec is not taken from here", info.message)
        self.assertIn(
            'secret red-system/admin-kubeconfig, key "kubeconfig-incluster"', info.message
        )
        clean = kubeconfig("https://x", "token")
        self.world.flex.put_secret("red", "admin-kubeconfig", {**both, "kubeconfig": clean})
        info = self.get()
        self.assertEqual((info.state, list(info.access)), (USABLE, [EXTERNAL]))
        self.assertIn("tokenFile is not taken from here", info.message)

    def test_one_user(self) -> None:
        """SF 2: only the user and cluster of the current context are handed out."""
        self.create()
        self.turns()
        several = kubeconfig("https://x", "mine")
        several["users"].append({"name": "root", "user": {"token": "root's"}})
        several["clusters"].append({"name": "other", "cluster": {"server": "https://other"}})
        several["contexts"].append({"name": "o", "context": {"cluster": "other", "user": "root"}})
        self.world.flex.put_secret("red", "admin-kubeconfig", {"kubeconfig": several})
        told = json.loads(self.get().access[EXTERNAL].kubeconfig)
        self.assertEqual([len(told[key]) for key in ("users", "clusters", "contexts")], [1, 1, 1])
        self.assertNotIn("root", json.dumps(told))

    def test_token_end(self) -> None:
        """The expiry of access comes from the token's ``exp`` claim."""
        claims = base64.urlsafe_b64encode(b'{"exp":1800000000}').rstrip(b"=").decode()
        self.create("external")
        self.turns()
        ending = {"kubeconfig-incluster": kubeconfig("https://x", f"e30.{claims}.c2ln")}
        self.world.flex.put_secret("red", "admin-kubeconfig", ending)
        self.assertEqual(self.get().access[EXTERNAL].expires, 1.8e9)

    def test_rewritten_times(self) -> None:
        """New timestamps in conditions alone do not change the version."""
        self.create()
        self.turns()
        before = self.get()
        self.turns(3)
        self.assertEqual(self.get().version, before.version)

    def test_broken_object(self) -> None:
        """An invalid control plane is listed and does not affect others."""
        self.create()
        self.turns()
        self.world.put(KIND, "odd", {"spec": "x", "status": {"conditions": "y", "secretRef": 3}})
        self.world.put(KIND, "dotted.name", {"spec": {"type": "k8s"}})
        listed = {each.physical.name: each for each in self.successResultOf(self.list())}
        self.assertEqual(listed["red"].state, USABLE)
        self.assertEqual(listed["odd"].state, BUILDING)
        self.assertEqual(
            (listed["dotted.name"].state, listed["dotted.name"].reason), (BROKEN, "NameRefused")
        )


class EndTests(KubeFlexCase):
    """Deleting control planes, and creating them again."""

    def test_namespace_last(self) -> None:
        """A name can be used again once the control plane's namespace is gone."""
        self.create()
        self.turns()
        self.successResultOf(self.adaptor.delete(RED, UID))
        info = self.get()
        self.assertEqual((info.state, info.owner), (GOING, UID))
        self.assertIn("to remove the finalizers kflex.kubestellar.org/finalizer", info.message)
        uid = info.uid
        self.world.flex.turn()
        self.assertIsNone(self.world.find(KIND, "red"))
        info = self.get()
        self.assertEqual((info.state, info.owner, info.uid), (GOING, None, uid))
        self.assertIn("its namespace red-system is still being deleted", info.message)
        self.assertEqual(self.successResultOf(self.adaptor.list_names()), [RED])
        error = self.refused(self.adaptor.create(RED, SpaceRequest(UID)))
        self.assertIsInstance(error, Conflict)
        self.assertTrue(error.retry_after_seconds)
        self.turns(2)
        self.assertIsInstance(self.refused(self.adaptor.get(RED)), NotFound)
        self.create()

    def test_going(self) -> None:
        """Creating fails while a control plane of the name is being deleted."""
        self.create()
        self.turns()
        self.world.flex.held = True
        self.successResultOf(self.adaptor.delete(RED, UID))
        error = self.refused(self.adaptor.create(RED, SpaceRequest(UID)))
        self.assertIsInstance(error, Conflict)
        self.assertIn("is still being deleted", error.message)

    def test_remade_by_others(self) -> None:
        """
        A control plane recreated by another user is building while the old namespace terminates.
        """
        self.create()
        self.turns()
        self.world.drop(KIND, "red")
        self.world.put(KIND, "red", {"spec": {"type": "k8s"}, "metadata": {"uid": "another"}})
        self.world.flex.turn()
        info = self.get()
        self.assertEqual((info.state, info.uid), (BUILDING, "another"))
        self.assertEqual(info.reason, "NamespaceTerminating")
        self.turns()
        self.assertEqual(self.get().state, USABLE)

    def test_unmarked(self) -> None:
        """A control plane without an owner is not deleted, even for an empty owner."""
        self.world.put(KIND, "red", {"spec": {"type": "k8s"}})
        error = self.refused(self.adaptor.delete(RED, ""))
        self.assertIsInstance(error, Conflict)
        self.assertIsNotNone(self.world.find(KIND, "red"))

    def test_other_since(self) -> None:
        """A control plane recreated just before the delete request is not deleted."""
        self.create()
        client = self.cluster.client

        class Late:
            def __getattr__(late, verb: str) -> Any:
                if verb == "delete":
                    self.world.drop(KIND, "red")
                    self.world.put(KIND, "red", {"metadata": {"uid": "newer"}})
                return getattr(client, verb)

        self.cluster.client = Late()  # type: ignore[assignment]
        self.assertIsInstance(self.refused(self.adaptor.delete(RED, UID)), Conflict)
        self.assertIsNotNone(self.world.find(KIND, "red"))

    def test_created_meanwhile(self) -> None:
        """A control plane that another replica creates first for the same owner is accepted."""
        client = self.cluster.client
        made = []

        class Late:
            def __getattr__(late, verb: str) -> Any:
                if verb == "create" and not made:
                    made.append(
                        self.world.put(KIND, "red", {"metadata": {"annotations": {OWNER: UID}}})
                    )
                return getattr(client, verb)

        self.cluster.client = Late()  # type: ignore[assignment]
        self.create()
        self.assertEqual(len(made), 1)


class WrongClusterTests(KubeFlexCase):
    """A cluster without the ControlPlane API."""

    def test_no_such_kind(self) -> None:
        """Without the ControlPlane API every call fails with 503, not with an empty list."""
        bare = ProviderCluster(MemoryCluster().client(), 'provider "flex"', "put others there")
        adaptor = KubeFlex(bare, Clock())
        for call in (
            adaptor.list_spaces(),
            adaptor.list_names(),
            adaptor.get(RED),
            adaptor.create(RED, SpaceRequest(UID)),
            adaptor.delete(RED, UID),
        ):
            error = self.refused(call)
            self.assertIsInstance(error, ServiceUnavailable)
            self.assertIn('provider "flex" has no controlplanes.tenancy.kflex', error.message)


class HintTests(KubeFlexCase):
    """Hints to watchers."""

    def setUp(self) -> None:
        super().setUp()
        self.create()
        self.turns()
        self.hints: list[Physical | None] = []
        self.end = self.adaptor.watch(self.hints.append)

    def test_beginning(self) -> None:
        """Existing control planes give a single hint None."""
        self.assertEqual(self.hints, [None])

    def test_times(self) -> None:
        """Reconciles without a change give no hint."""
        self.hints.clear()
        self.turns(3)
        self.assertEqual(self.hints, [])

    def test_secret(self) -> None:
        """A changed kubeconfig Secret gives a hint for its control plane."""
        self.hints.clear()
        self.world.flex.put_secret("red", "admin-kubeconfig", {"kubeconfig": "x"})
        self.assertEqual(self.hints, [RED])

    def test_secret_of_new_type(self) -> None:
        """Secrets of a type that appears later are followed too."""
        self.create("vcluster", "blue")
        self.turns(3)
        self.hints.clear()
        self.turns(1)
        self.assertIn(Physical("blue"), self.hints)

    def test_namespace(self) -> None:
        """A deleted namespace gives a hint for its control plane."""
        self.successResultOf(self.adaptor.delete(RED, UID))
        self.turns(1)
        self.hints.clear()
        self.turns(2)
        self.assertEqual(set(self.hints), {RED})

    def test_quiet(self) -> None:
        """SF 13: creating a control plane logs no warning."""
        complaints: list[Any] = []

        def observe(event: Any) -> None:
            if event["log_level"] >= LogLevel.warn:
                complaints.append(event)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.create("vcluster", "blue")
        self.turns()
        self.get("blue")
        self.assertEqual(complaints, [])

    def test_others(self) -> None:
        """Unrelated namespaces and Secrets give no hint."""
        self.hints.clear()
        self.world.put(NAMESPACES, "other-system", {})
        self.world.put(SECRETS, "other", {"data": {}}, "red-system")
        self.world.put(SECRETS, "admin-kubeconfig", {"data": {}}, "default")
        self.assertEqual(self.hints, [])


class MakeTests(SynchronousTestCase):
    """Settings from a provider's Secret."""

    def make(self, secret: dict[str, bytes] | None) -> ISpaceProvider:
        spec = ProviderSpec("flex", KUBEFLEX, secret, "a/b" if secret is not None else "")
        world = KubeFlexWorld()
        return kubeflex.make(
            spec, ProviderContext(world.client(), Clock(), "/nowhere", lambda: 0.0)
        )

    def wrong(self, secret: dict[str, bytes]) -> str:
        with self.assertRaises(Invalid) as caught:
            self.make(secret)
        return caught.exception.message

    def test_own_cluster(self) -> None:
        """Without a Secret the hub itself is used, and type host is refused."""
        adaptor = self.make(None)
        self.assertEqual(self.successResultOf(adaptor.list_names()), [])
        call = adaptor.create(RED, SpaceRequest(UID, {"type": "host"}))
        error = self.failureResultOf(call, BadRequest).value
        self.assertIn("hands out the whole cluster", error.message)
        self.assertIn('"types" of a Secret in spec.secretRef', error.message)

    def test_types(self) -> None:
        """The key ``types`` of the Secret sets the allowed types; others are refused."""
        adaptor = self.make({"types": b"host, external\n"})
        self.successResultOf(adaptor.create(RED, SpaceRequest(UID, {"type": "host"})))
        error = self.failureResultOf(adaptor.create(RED, SpaceRequest(UID)), BadRequest).value
        self.assertIn("does not allow the type k8s", error.message)
        self.assertIn("secret a/b", error.message)

    def test_wrong(self) -> None:
        """Invalid settings are refused with the Secret and the key, but not the value."""
        self.assertIn('a/b, key "types"', self.wrong({"types": b"k9s"}))
        self.assertIn('a/b, key "kubeconfig": there is no such key', self.wrong({"config": b"x"}))
        self.assertIn("there is no such key", self.wrong({}))
        secret = json.dumps(kubeconfig("https://x", "hush", tokenFile="/x")).encode()
        told = self.wrong({"kubeconfig": secret})
        self.assertIn("tokenFile is not taken from here", told)
        self.assertNotIn("hush", told)

    def test_kubeconfig(self) -> None:
        """A kubeconfig, encoded once or twice, selects the cluster, without a request."""
        secret = json.dumps(kubeconfig("https://x", "hush")).encode()
        for each in (secret, base64.b64encode(secret)):
            adaptor = self.make({"kubeconfig": each})
            self.successResultOf(adaptor.close())


class SecretNames(SynchronousTestCase):
    """Types of the fake manager and of the adaptor."""

    def test_types(self) -> None:
        self.assertEqual(set(SECRETS_OF), set(TYPES))
