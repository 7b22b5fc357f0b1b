"""
The adaptor of ClusterProfiles over a real kube-apiserver, with the rules of the documentation: an
inventory in one namespace, whose one cluster is that server, under as many names as there are
profiles.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.interop.space_clusters import RealClusterWorld, reactor
from tests.interop.space_kubeflex import CRD_FILES
from tests.spacemanager.providers.clusterprofile.test_provider_contract import ProfileWorld
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.api.status import APIError
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION, load
from twisted_exec.spacemanager.interfaces import USABLE, ISpaceProvider, Physical, SpaceInfo
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.clusterprofile.profiles import Places
from twisted_exec.spacemanager.providers.clusterprofile.provider import ClusterProfiles

FLEET = "fleet"
ACCOUNT = "spoke"


class RealProfileWorld(RealClusterWorld):
    """Profiles of a real cluster."""

    title = "ClusterProfile, on a real cluster"
    role = "clusterprofile-role.yaml"
    seen = CLUSTERPROFILES.resource
    cannot: Mapping[str, str] = {
        key: value for key, value in ProfileWorld.cannot.items() if key != "works"
    }
    list_calls = 2

    def kinds(self) -> Sequence[Object]:
        return (yaml.safe_load((CRD_FILES / "clusterprofiles.yaml").read_text()),)

    async def start(self) -> None:
        await super().start()
        await self.settled("ClusterProfiles are served", self._served)

    async def _served(self) -> bool:
        try:
            await self.admin.list(CLUSTERPROFILES.resource)
        except APIError:
            return False
        return True

    async def stop(self) -> None:
        if hasattr(self, "config"):
            for physical in await self.there():
                await self.vanish(physical)
        await super().stop()

    def make(self) -> ISpaceProvider:
        reached = ProviderCluster(self.client(), 'provider "fleet"', "put others there")
        return ClusterProfiles(reached, reactor, Places(FLEET, True), "fleet")

    async def make_foreign(self, physical: Physical) -> None:
        """As a cluster manager does: the profile, its status, and a token."""
        token = base64.b64encode((await self.token(ACCOUNT)).encode()).decode()
        secret = {"metadata": {"name": f"of-{physical.name}"}, "data": {"token": token}}
        await self.drop(SECRETS.resource, f"of-{physical.name}", FLEET)
        await self.put(SECRETS.resource, secret, FLEET)
        spec = {"clusterManager": {"name": "somebody"}}
        profile = {"metadata": {"name": physical.name}, "spec": spec}
        await self.put(CLUSTERPROFILES.resource, profile, FLEET)
        told = {"name": EXEC_EXTENSION, "extension": {"clusterName": f"of-{physical.name}"}}
        ca = base64.b64encode(load(self.cluster.kubeconfig).ca.read()).decode()
        cluster = {
            "server": self.cluster.url,
            "certificate-authority-data": ca,
            "extensions": [told],
        }
        status: Any = {"accessProviders": [{"name": "secretreader", "cluster": cluster}]}
        await self.admin.patch(
            CLUSTERPROFILES.resource,
            physical.name,
            {"status": status},
            FLEET,
            subresource="status",
        )

    async def vanish(self, physical: Physical) -> None:
        await self.drop(CLUSTERPROFILES.resource, physical.name, FLEET)

    async def there(self) -> Sequence[Physical]:
        listed = await self.admin.list(CLUSTERPROFILES.resource, FLEET)
        return [Physical(each["metadata"]["name"]) for each in listed["items"]]


class RealProfileTests(SpaceProviderContract, TestCase):
    """The contract, as far as it is about what is only found."""

    timeout = 300
    skip = needs.aggregated()

    def make_world(self) -> SpaceWorld:
        return RealProfileWorld()

    async def usable(self, adaptor: ISpaceProvider, physical: Physical) -> SpaceInfo:
        """Another program makes the Space; wait until it is usable."""
        await self.world.make_foreign(physical)
        found: SpaceInfo = await self.until_state(adaptor, physical, USABLE)
        return found
