"""The provider contract for KubeFlex, with a fake manager."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import NO_NAMES, SpaceWorld, pause
from tests.spacemanager.providers.cluster_world import ClusterWorld, kubeconfig
from tests.spacemanager.providers.kubeflex.played import KIND, SECRETS_OF, PlayedKubeFlex
from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.spaces import EXTERNAL
from twisted_exec.spacemanager.interfaces import ISpaceProvider, Physical
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import namespace_of
from twisted_exec.spacemanager.providers.kubeflex.provider import KubeFlex


class KubeFlexWorld(ClusterWorld):
    """A cluster in memory with a fake KubeFlex manager."""

    title = "KubeFlex, recorded"
    cannot = {
        "works": "No server listens at the addresses in its kubeconfigs.",
        "rotates": "KubeFlex writes the credentials of a control plane once and never renews them.",
        "broken": "A control plane's data outlive its credentials: errors of the credentials are reported,"
        " and nothing is deleted for a repair.",
        "parents": "It has no parents.",
    }
    no_names = (*NO_NAMES, "kube", "kubeflex", "a.b", "1a", "a" * 57)
    no_parameters = (
        {"no-such-parameter": "x"},
        {"type": "k9s"},
        {"type": "host"},
        {"backend": "own"},
        {"tokenExpirationSeconds": "soon"},
        {"bootstrapSecret": "any-bootstrap"},
    )
    list_calls = 3

    def __init__(self) -> None:
        super().__init__([KIND])
        self.flex = PlayedKubeFlex(self)
        self.cluster.version = 10
        self.time = Clock()

    def make(self) -> ISpaceProvider:
        client = self.client()
        return KubeFlex(
            ProviderCluster(client, "the cluster of KubeFlex", "put credentials there"), self.time
        )

    async def turn(self) -> None:
        self.flex.turn()
        self.time.advance(1)
        await pause(0)

    async def settle(self) -> None:
        for _ in range(6):
            self.flex.turn()

    async def make_foreign(self, physical: Physical) -> None:
        self.put(KIND, physical.name, {"spec": {"type": "k8s"}})
        await self.settle()

    async def vanish(self, physical: Physical) -> None:
        self.drop(KIND, physical.name)
        await self.settle()

    async def there(self) -> Sequence[Physical]:
        found = {each["metadata"]["name"] for each in self.all(KIND)}
        found |= {each["metadata"]["name"].removesuffix("-system") for each in self.all(NAMESPACES)}
        return sorted(map(Physical, found))

    async def hold(self) -> None:
        self.flex.held = True

    async def release(self) -> None:
        self.flex.held = False

    async def hide_access(self, physical: Physical) -> None:
        self.drop(SECRETS, "admin-kubeconfig", namespace_of(physical.name))

    async def show_access(self, physical: Physical) -> None:
        self.flex.write_secret(physical.name, "k8s", late=False)

    async def only(self, physical: Physical, viewpoint: str) -> None:
        secret, external, within = SECRETS_OF["k8s"]
        key = external if viewpoint == EXTERNAL else within
        told = kubeconfig("https://only.example", f"only-{physical.name}")
        self.flex.put_secret(physical.name, secret, {key: told})


class KubeFlexContractTests(SpaceProviderContract, TestCase):
    """Tests for :class:`KubeFlex`."""

    def make_world(self) -> SpaceWorld:
        return KubeFlexWorld()
