"""
The adaptor of KubeFlex over a real kube-apiserver and its controllers, with the rules of the
documentation.

Namespaces are deleted, collected and refused by the real ones here, and tokens are real and open
the cluster. KubeFlex's manager is the real one where its program is found; otherwise, and for types
that need Pods, it is played.  The CRD has what KubeFlex's has.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause, who_am_i
from tests.interop.chains import ours
from tests.interop.programs import free_port
from tests.interop.space_clusters import RealClusterWorld, reactor
from tests.spacemanager.providers.kubeflex.played import FINALIZER
from tests.spacemanager.providers.kubeflex.test_provider_contract import KubeFlexWorld
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.kinds.secrets import value_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import EXTERNAL, OWNER, PROVIDERS, SPACES
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import ISpaceProvider, Physical
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import (
    CONTROLPLANES,
    GROUP,
    namespace_of,
)
from twisted_exec.spacemanager.providers.kubeflex.parameters import (
    BOOTSTRAP_KEY,
    BOOTSTRAP_NAMESPACE,
    BOOTSTRAP_SUFFIX,
    TYPES,
)
from twisted_exec.spacemanager.providers.kubeflex.provider import KubeFlex

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
ADMIN_SECRET, EXTERNAL_KEY, IN_CLUSTER_KEY = "admin-kubeconfig", "kubeconfig", BOOTSTRAP_KEY
ACCOUNT = "kubeflex"
"""Of the adopted cluster, in kube-system; it may do everything there."""

CRD_FILES = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes" / "spaces" / "crds"

TEXT, YES = {"type": "string"}, {"type": "boolean"}


def record(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    """The schema of a mapping."""
    told = {"type": "object", "properties": properties}
    return {**told, "required": list(required)} if required else told


def crd() -> Object:
    """ControlPlanes, as KubeFlex has them: the same fields, values and defaults."""
    number = {"type": "integer", "format": "int64"}
    texts = {"type": "object", "additionalProperties": TEXT}
    reference = {"namespace": TEXT, "name": TEXT, "inClusterKey": TEXT}
    hook = record(["hookName"], hookName=TEXT, vars=texts)
    spec = record(
        type={**TEXT, "enum": list(TYPES)},
        backend={**TEXT, "enum": ["shared", "dedicated"]},
        bootstrapSecretRef=record(list(reference), **reference),
        tokenExpirationSeconds={**number, "default": 31536000},
        postCreateHook=TEXT,
        postCreateHookVars=texts,
        postCreateHooks={"type": "array", "items": hook},
        globalVars=texts,
        waitForPostCreateHooks={**YES, "default": False},
    )
    moment = {**TEXT, "format": "date-time"}
    parts = {
        "type": TEXT,
        "status": TEXT,
        "reason": TEXT,
        "message": TEXT,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    status = record(
        ["conditions", "observedGeneration"],
        conditions={"type": "array", "items": record(list(parts), **parts)},
        observedGeneration=number,
        secretRef=record(list(reference), key=TEXT, **reference),
        postCreateHookCompleted=YES,
        postCreateHooks={"type": "object", "additionalProperties": YES},
    )
    version = {
        "name": CONTROLPLANES.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": record(spec=spec, status=status)},
        "subresources": {"status": {}},
    }
    names = {
        "kind": "ControlPlane",
        "listKind": "ControlPlaneList",
        "plural": "controlplanes",
        "singular": "controlplane",
        "shortNames": ["cp", "cps"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"controlplanes.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Cluster", "versions": [version]},
    }


class RealKubeFlexWorld(RealClusterWorld):
    """ControlPlanes of a real cluster."""

    role = "kubeflex-role.yaml"
    cannot: Mapping[str, str] = {
        key: KubeFlexWorld.cannot[key] for key in ("rotates", "broken", "parents")
    }
    no_names = KubeFlexWorld.no_names
    no_parameters = KubeFlexWorld.no_parameters
    list_calls = 3
    many = 10

    def kinds(self) -> Sequence[Object]:
        return (crd(),)

    async def start(self) -> None:
        await super().start()
        await self.settled("ControlPlanes are served", self._served)
        await self.put(NAMESPACES.resource, {"metadata": {"name": BOOTSTRAP_NAMESPACE}})
        self.held = False
        await self._start_manager()

    async def _start_manager(self) -> None:
        """KubeFlex's."""

    async def _served(self) -> bool:
        try:
            await self.admin.list(CONTROLPLANES)
        except APIError:
            return False
        return True

    async def stop(self) -> None:
        if hasattr(self, "held"):
            await self._clean()
        await super().stop()

    async def _clean(self) -> None:
        """Nothing is left for the next one to find."""
        self.held = False
        for each in (await self.admin.list(CONTROLPLANES))["items"]:
            await self.drop(CONTROLPLANES, each["metadata"]["name"])

        async def no_planes() -> bool:
            await self.turn()
            return not (await self.admin.list(CONTROLPLANES))["items"]

        await self.settled("all ControlPlanes are gone", no_planes)
        await gatherResults(
            [Deferred.fromCoroutine(self._empty(each)) for each in await self._namespaces()]
        )
        if left := await self.there():
            raise AssertionError(f"{left} are left over")

    async def _namespaces(self) -> list[str]:
        """Of ControlPlanes."""
        listed = await self.admin.list(NAMESPACES.resource)
        return [
            each["metadata"]["name"]
            for each in listed["items"]
            if any(
                owner["kind"] == "ControlPlane"
                for owner in each["metadata"].get("ownerReferences", ())
            )
        ]

    async def _empty(self, namespace: str) -> None:
        """
        Delete a namespace at once.

        The namespace controller would do so five seconds later, which is most of what a case takes.
        """
        await self.drop(NAMESPACES.resource, namespace)
        for each in (await self.admin.list(SECRETS.resource, namespace))["items"]:
            await self.drop(SECRETS.resource, each["metadata"]["name"], namespace)
        try:
            found = await self.admin.get(NAMESPACES.resource, namespace)
            final = {**found, "spec": {"finalizers": []}}
            await self.admin.update(NAMESPACES.resource, final, subresource="finalize")
        except (Conflict, NotFound):
            pass  # the controller was faster

        async def gone() -> bool:
            return namespace not in await self._namespaces()

        await self.settled(f"namespace {namespace} is gone", gone)

    def make(self) -> ISpaceProvider:
        return KubeFlex(
            ProviderCluster(self.client(), "the cluster of KubeFlex", "put others there"), reactor
        )

    async def make_foreign(self, physical: Physical) -> None:
        made = {"metadata": {"name": physical.name}, "spec": self._spec(physical.name)}
        await self.put(CONTROLPLANES, made)

    def _spec(self, name: str) -> Object:
        raise NotImplementedError

    async def vanish(self, physical: Physical) -> None:
        await self.drop(CONTROLPLANES, physical.name)

        async def gone() -> bool:
            await self.turn()
            return physical not in await self.there()

        await self.settled(f"{physical} is gone", gone)

    async def there(self) -> Sequence[Physical]:
        planes = (await self.admin.list(CONTROLPLANES))["items"]
        found = {each["metadata"]["name"] for each in planes}
        found |= {each.removesuffix("-system") for each in await self._namespaces()}
        return sorted(map(Physical, found))

    async def hide_access(self, physical: Physical) -> None:
        place = namespace_of(physical.name)
        self.hidden = await self.admin.get(SECRETS.resource, ADMIN_SECRET, place)
        await self.drop(SECRETS.resource, ADMIN_SECRET, place)

    async def show_access(self, physical: Physical) -> None:
        secret = {"metadata": {"name": ADMIN_SECRET}, "data": self.hidden["data"]}
        await self.put(SECRETS.resource, secret, namespace_of(physical.name))


class PlayedManagerWorld(RealKubeFlexWorld):
    """KubeFlex's manager is played, with type k8s: both keys, and Ready when it is let."""

    title = "KubeFlex, simulated on a real cluster"

    def _spec(self, name: str) -> Object:
        return {"type": "k8s"}

    async def _start_manager(self) -> None:
        """End KubeFlex's own, which an earlier test may have left running."""
        await deferToThread(self.cluster.programs.end, "kubeflex")

    async def turn(self) -> None:
        await pause(0.02)
        for each in (await self.admin.list(CONTROLPLANES))["items"]:
            try:
                await self._reconcile(each)
            except APIError as error:
                if error.code not in (403, 404, 409):
                    raise

    async def hold(self) -> None:
        self.held = True

    async def release(self) -> None:
        self.held = False

    async def only(self, physical: Physical, viewpoint: str) -> None:
        key = IN_CLUSTER_KEY if viewpoint == EXTERNAL else EXTERNAL_KEY
        place = namespace_of(physical.name)
        await self.admin.patch(SECRETS.resource, ADMIN_SECRET, {"data": {key: None}}, place)

    async def _reconcile(self, plane: Object) -> None:
        metadata = plane["metadata"]
        name, finalizers = metadata["name"], metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp"):
            if not self.held and finalizers:
                await self.admin.patch(CONTROLPLANES, name, {"metadata": {"finalizers": None}})
            return
        if not finalizers:
            await self.admin.patch(CONTROLPLANES, name, {"metadata": {"finalizers": [FINALIZER]}})
        owner = {
            "apiVersion": CONTROLPLANES.api_version,
            "kind": "ControlPlane",
            "name": name,
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        place = namespace_of(name)
        await self.put(
            NAMESPACES.resource, {"metadata": {"name": place, "ownerReferences": [owner]}}
        )
        if "status" not in plane:
            await self._write_secret(place)
        await self._tell_status(plane)

    async def _write_secret(self, place: str) -> None:
        await self.bind("kubeflex-clusterrolebinding", "cluster-admin", ACCOUNT, "kube-system")
        data = {
            key: base64.b64encode(
                self.kubeconfig(await self.token(ACCOUNT, "kube-system")).encode()
            ).decode()
            for key in (EXTERNAL_KEY, IN_CLUSTER_KEY)
        }
        await self.put(SECRETS.resource, {"metadata": {"name": ADMIN_SECRET}, "data": data}, place)

    async def _tell_status(self, plane: Object) -> None:
        name, now = plane["metadata"]["name"], "2026-01-01T00:00:00Z"
        moments = {"lastUpdateTime": now, "lastTransitionTime": now, "message": ""}
        ready = ("False", "Unavailable") if self.held else ("True", "Available")
        conditions = [
            {"type": "Synced", "status": "True", "reason": "ReconcileSuccess", **moments},
            {"type": "Ready", "status": ready[0], "reason": ready[1], **moments},
        ]
        reference = {
            "namespace": namespace_of(name),
            "name": ADMIN_SECRET,
            "key": EXTERNAL_KEY,
            "inClusterKey": IN_CLUSTER_KEY,
        }
        status = {"conditions": conditions, "observedGeneration": 1, "secretRef": reference}
        await self.admin.patch(CONTROLPLANES, name, {"status": status}, subresource="status")


class RealManagerWorld(RealKubeFlexWorld):
    """
    KubeFlex's own manager adopts the cluster itself, again and again: type external, which needs no
    Pods.
    """

    title = "KubeFlex"
    parameters = {"type": "external"}
    cannot = {
        **RealKubeFlexWorld.cannot,
        "partial": "An adopted cluster has one kubeconfig for both viewpoints.",
        "not_ready": "An adopted cluster is ready at once.",
        "down_while_made": "An adopted cluster is ready at once.",
    }

    def _spec(self, name: str) -> Object:
        reference = {
            "namespace": BOOTSTRAP_NAMESPACE,
            "name": f"{name}{BOOTSTRAP_SUFFIX}",
            "inClusterKey": BOOTSTRAP_KEY,
        }
        return {"type": "external", "bootstrapSecretRef": reference}

    async def _start_manager(self) -> None:
        cluster = self.cluster
        if not cluster.programs.is_running("kubeflex"):
            cluster.programs.run(
                "kubeflex",
                needs.kubeflex_manager_program(),
                f"--metrics-bind-address=127.0.0.1:{free_port()}",
                f"--health-probe-bind-address=127.0.0.1:{free_port()}",
                env={"KUBECONFIG": cluster.kubeconfig},
            )
        await self.bind("bootstrap", "cluster-admin", "bootstrap")
        self.bootstrap = self.kubeconfig(await self.token("bootstrap"))
        for name in self.names:
            await self._put_bootstrap(name)

    async def _put_bootstrap(self, name: str) -> None:
        secret = {
            "metadata": {"name": f"{name}{BOOTSTRAP_SUFFIX}"},
            "stringData": {BOOTSTRAP_KEY: self.bootstrap},
        }
        await self.put(SECRETS.resource, secret, BOOTSTRAP_NAMESPACE)

    async def turn(self) -> None:
        """The manager deletes the bootstrap Secret after adoption; restore missing Secrets."""
        await pause(0.1)
        for name in self.names:
            try:
                await self.admin.get(SECRETS.resource, ADMIN_SECRET, namespace_of(name))
            except NotFound:
                await self._put_bootstrap(name)

    async def make_foreign(self, physical: Physical) -> None:
        await self._put_bootstrap(physical.name)
        await super().make_foreign(physical)


class PlayedManagerTests(SpaceProviderContract, TestCase):
    """The contract with a real kube-apiserver, its collector and its controllers of namespaces."""

    timeout = 300
    skip = needs.aggregated()

    def make_world(self) -> SpaceWorld:
        return PlayedManagerWorld()

    async def test_hint_of_secret(self) -> None:
        """A changed Secret gives a hint: rules by name allow watches by name."""
        await self.world.start()
        adaptor = self.adaptor()
        await self.usable(adaptor, self.red)
        hints: list[Physical | None] = []
        adaptor.watch(hints.append)

        async def told() -> bool:
            return bool(hints)

        await self.until("the beginning is told", told)
        for number in range(100):
            # The Secrets are followed from when their control plane is known, and are no news by then.
            hints.clear()
            note = {"metadata": {"annotations": {"number": str(number)}}}
            place = namespace_of(self.red.name)
            await self.world.admin.patch(SECRETS.resource, ADMIN_SECRET, note, place)
            await pause(0.2)
            if hints:
                break
        self.assertEqual(hints, [self.red])


class RealManagerTests(SpaceProviderContract, TestCase):
    """The contract with KubeFlex's own manager besides."""

    timeout = 300
    skip = needs.kubeflex_manager()

    def make_world(self) -> SpaceWorld:
        return RealManagerWorld()


class ManagerTests(TestCase):
    """A Space of type ``kubeflex`` from its making to its end, by the program."""

    timeout = 300
    skip = needs.aggregated()

    async def setUp(self) -> None:
        self.world = PlayedManagerWorld()
        self.world.prepare()
        await self.world.start()
        cluster = self.cluster = self.world.cluster
        for path in sorted(CRD_FILES.glob("*.yaml")):
            cluster.apply(*yaml.safe_load_all(path.read_text()))
        arguments = ["--health-listen=", "--state-dir=manager", "--providers=kubeflex"]
        cluster.programs.run(
            "manager",
            *ours("exec-spacemanager"),
            f"--kubeconfig={cluster.kubeconfig}",
            *arguments,
        )

    async def tearDown(self) -> None:
        await deferToThread(self.cluster.programs.end, "manager")
        await self.world.stop()

    async def until(self, what: str, resource: Resource, name: str, true: Any) -> Object | None:
        """An object, ``None`` where there is none, once something is true of it."""
        found: list[Object | None] = []

        async def look() -> bool:
            await self.world.turn()
            try:
                found[:] = [await self.world.admin.get(resource, name, "spaceprovider-flex")]
            except NotFound:
                found[:] = [None]
            return bool(true(found[0]))

        try:
            await self.world.settled(what, look)
        except AssertionError as error:
            log = self.cluster.programs.log("manager")[-3000:]
            raise AssertionError(f"{error}: {found[0]}\n{log}") from None
        return found[0]

    async def test_space(self) -> None:
        """It is made, tried, handed out in Secrets that work, and deleted with all that is of it."""
        provider = {"metadata": {"name": "flex"}, "spec": {"ProviderType": "kubeflex"}}
        await self.world.put(PROVIDERS, provider)
        await self.until(
            "the provider's namespace", NAMESPACES.resource, "spaceprovider-flex", lambda o: o
        )
        spec = {"SpaceProviderDescName": "flex", "Type": "managed"}
        await self.world.put(
            SPACES, {"metadata": {"name": "red"}, "spec": spec}, "spaceprovider-flex"
        )
        ready = await self.until("the Space is ready", SPACES, "red", lambda o: phase(o) == "Ready")
        assert ready is not None
        owners = (await self.world.admin.get(CONTROLPLANES, "red"))["metadata"]["annotations"]
        self.assertEqual(owners[OWNER], ready["metadata"]["uid"])
        for viewpoint in ("incluster", "external"):
            name = f"{viewpoint}-red"
            secret = await self.world.admin.get(SECRETS.resource, name, "spaceprovider-flex")
            user = await who_am_i(value_of(secret, "kubeconfig") or b"")
            self.assertEqual(user, "system:serviceaccount:kube-system:kubeflex")
        await self.world.drop(SPACES, "red", "spaceprovider-flex")
        await self.until("the Space is gone", SPACES, "red", lambda o: o is None)
        self.assertEqual(await self.world.there(), [])
        await self.world.drop(PROVIDERS, "flex")
        self.assertNotIn("Traceback", self.cluster.programs.log("manager"))


def phase(space: Object | None) -> str:
    """Of a Space."""
    return str(((space or {}).get("status") or {}).get("Phase"))
