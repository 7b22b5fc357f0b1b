"""
The provider contract for the adaptor of ClusterProfiles, as far as it applies without creating
clusters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld, pause
from tests.spacemanager.providers.cluster_world import ClusterWorld, kubeconfig
from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.clusterprofiles import CLUSTERPROFILES
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import EXEC_EXTENSION
from twisted_exec.spacemanager.interfaces import USABLE, ISpaceProvider, Physical, SpaceInfo
from twisted_exec.spacemanager.providers.cluster import ProviderCluster
from twisted_exec.spacemanager.providers.clusterprofile.profiles import Places
from twisted_exec.spacemanager.providers.clusterprofile.provider import ClusterProfiles

NOT_HERE = "The inventory's clusters are created and deleted by other programs."
MADE = (
    "create",
    "create_again",
    "delete",
    "delete_early",
    "recreate",
    "another_owner",
    "down_at_start",
    "down_midway",
    "down_while_made",
    "not_ready",
    "access_late",
    "partial",
    "broken",
    "vanished_recreated",
    "killed_while_creating",
    "killed_and_forgotten",
    "killed_while_deleting",
    "killed_then_kept",
    "two",
    "rotated",
    "revoked",
    "close",
    "cancel",
    "parameters",
    "parents",
)


def cluster(name: str) -> Object:
    """Return a cluster as in an access provider."""
    config = kubeconfig(f"https://{name}.example", "")
    found: Object = config["clusters"][0]["cluster"]
    return found


def provider(name: str, secret: str, **more: Any) -> Object:
    """Return an access provider that reads a kubeconfig."""
    told = {"name": secret, "key": "value", **more}
    extension = {"name": EXEC_EXTENSION, "extension": told}
    return {
        "name": "kubeconfig-secretreader",
        "cluster": {**cluster(name), "extensions": [extension]},
    }


class ProfileWorld(ClusterWorld):
    """Profiles in a cluster in memory, each with an access provider."""

    title = "ClusterProfile"
    cannot: Mapping[str, str] = {
        **dict.fromkeys(MADE, NOT_HERE),
        "works": "No server listens at the addresses in its kubeconfigs.",
        "rotates": "The inventory's credentials are renewed by its owner.",
        "no_parents": "It has parents.",
    }
    parents = ("fleet-a", "fleet-b")
    list_calls = 2

    def __init__(self) -> None:
        super().__init__([CLUSTERPROFILES])
        self.time = Clock()

    def make(self) -> ISpaceProvider:
        return ClusterProfiles(self.reached(), self.time, Places(), "fleet")

    def reached(self) -> ProviderCluster:
        return ProviderCluster(self.client(), 'provider "fleet"', "put others there")

    async def turn(self) -> None:
        self.time.advance(1)
        await pause(0)

    async def make_foreign(self, physical: Physical) -> None:
        self.put_profile(physical.name, [provider(physical.name, f"of-{physical.name}")])
        self.put_secret(
            f"of-{physical.name}", value=kubeconfig("https://unused", f"token-{physical.name}")
        )

    def put_profile(
        self,
        name: str,
        providers: Sequence[Object] = (),
        namespace: str = "default",
        *,
        member: str = "accessProviders",
        conditions: Sequence[Object] = (),
        manager: str = "fleet",
    ) -> None:
        """Store a profile as a cluster manager does."""
        labels = {"x-k8s.io/cluster-manager": manager}
        profile = {
            "metadata": {"labels": labels},
            "spec": {"clusterManager": {"name": manager}},
            "status": {member: list(providers), "conditions": list(conditions)},
        }
        self.put(CLUSTERPROFILES, name, profile, namespace)

    def put_secret(
        self,
        name: str,
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        """Store a Secret; values other than text are written as JSON."""
        texts = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in values.items()
        }
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        secret = {"metadata": {"labels": dict(labels or {})}, "data": data}
        self.put(SECRETS, name, secret, namespace)

    async def vanish(self, physical: Physical) -> None:
        self.drop(CLUSTERPROFILES, physical.name, physical.parent or "default")

    async def there(self) -> Sequence[Physical]:
        found = []
        for each in self.all(CLUSTERPROFILES):
            place = each["metadata"]["namespace"]
            found.append(Physical(each["metadata"]["name"], "" if place == "default" else place))
        return sorted(found)


class ClusterProfileContractTests(SpaceProviderContract, TestCase):
    """Tests for :class:`ClusterProfiles`."""

    def make_world(self) -> SpaceWorld:
        return ProfileWorld()

    async def usable(self, adaptor: ISpaceProvider, physical: Physical) -> SpaceInfo:
        """Let another user create a profile, and wait until it is usable."""
        await self.world.make_foreign(physical)
        found: SpaceInfo = await self.until_state(adaptor, physical, USABLE)
        return found
