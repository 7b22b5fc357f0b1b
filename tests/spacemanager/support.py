"""
The environment of a manager in memory: a hub, its providers, and a clock that tests advance.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from twisted_exec.api.kinds import NAMESPACES, SECRETS
from twisted_exec.api.spaces import LOCAL, PROVIDERS, SPACES, namespace_of
from twisted_exec.control.listeners import Listeners
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.bounded import NoMetrics
from twisted_exec.spacemanager.interfaces import (
    ISpaceProvider,
    ISpaces,
    MakeProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
)
from twisted_exec.spacemanager.registry import ProviderRegistry
from twisted_exec.spacemanager.views import ProviderEnvironment
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.testing.space_provider import MemoryProvider, MemorySpaces

EPOCH = 1_800_000_000.0


@implementer(ISpaces)
class HubSpaces:
    """The Spaces of a hub, read from the hub at each call."""

    synced = True

    def __init__(self, hub: MemoryCluster) -> None:
        self._hub = hub
        self.followers = Listeners("the Spaces")

    def all(self) -> Sequence[Object]:
        return [o for (resource, _, _), o in self._hub.objects.items() if resource == SPACES]

    def of_provider(self, name: str) -> Sequence[Object]:
        return [
            space
            for (resource, namespace, _), space in self._hub.objects.items()
            if resource == SPACES and namespace == namespace_of(name)
        ]

    def get(self, namespace: str, name: str) -> Object | None:
        return self._hub.objects.get((SPACES, namespace, name))

    def follow(self, changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        return self.followers.add(changed)


class Hub:
    """
    A cluster with SpaceProviderDescs, and the physical spaces of their providers.

    :ivar worlds: physical spaces, by the name of the SpaceProviderDesc.
    :ivar made: each adaptor, with the spec from which it was created.
    """

    def __init__(self) -> None:
        self.clock: Any = Clock()
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.worlds: dict[str, MemorySpaces] = {}
        self.made: list[tuple[ProviderSpec, MemoryProvider]] = []
        self.spaces = HubSpaces(self.cluster)
        self.around = ProviderContext(self.client, self.clock, "/nowhere", self.now)
        self.makers: dict[str, MakeProvider] = {LOCAL: self._make}

    def now(self) -> float:
        return EPOCH + float(self.clock.seconds())

    def _make(self, spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
        made = self.world(spec.name).provider()
        self.made.append((spec, made))
        return made

    def world(self, name: str) -> MemorySpaces:
        return self.worlds.setdefault(name, MemorySpaces())

    def providers(self) -> ProviderRegistry:
        """Return a registry of providers, not started."""
        found = ProviderRegistry(ProviderEnvironment(self.around, self.makers, NoMetrics()))
        found.spaces = self.spaces
        return found

    def put(self, resource: Any, name: str, namespace: str = "", **rest: Any) -> Object:
        """Create an object, or update it if it exists."""
        metadata = {"name": name, **rest.pop("metadata", {})}
        obj = {"metadata": metadata, **rest}
        key = (resource, namespace, name)
        if key in self.cluster.objects:
            return self.done(self.client.update(resource, obj, namespace))
        return self.done(self.client.create(resource, obj, namespace))

    def desc(self, name: str, *, type: str = LOCAL, **spec: Any) -> Object:
        """Create or update a SpaceProviderDesc."""
        return self.put(PROVIDERS, name, spec={"ProviderType": type, **spec})

    def secret(self, name: str, namespace: str = "default", **data: bytes) -> Object:
        """Create or update a Secret."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        return self.put(SECRETS.resource, name, namespace, data=encoded)

    def space(self, name: str, provider: str, **spec: Any) -> Object:
        """Create or update a Space."""
        told = {"SpaceProviderDescName": provider, **spec}
        made = self.put(SPACES, name, namespace_of(provider), spec=told)
        self.spaces.followers.tell(None, made)
        return made

    def drop(self, resource: Any, name: str, namespace: str = "") -> None:
        """Delete an object."""
        gone = self.cluster.objects[resource, namespace, name]
        self.done(self.client.delete(resource, name, namespace))
        if resource == SPACES:
            self.spaces.followers.tell(gone, None)

    def got(self, name: str) -> Object:
        """Return the stored SpaceProviderDesc."""
        return self.cluster.objects[PROVIDERS, "", name]

    def condition(self, name: str, type: str) -> tuple[str, str]:
        """Status and reason of a condition of a SpaceProviderDesc."""
        (found,) = (each for each in self.got(name)["status"]["conditions"] if each["type"] == type)
        return found["status"], found["reason"]

    def message(self, name: str, type: str) -> str:
        (found,) = (each for each in self.got(name)["status"]["conditions"] if each["type"] == type)
        return str(found["message"])

    def namespace(self, provider: str) -> Object | None:
        return self.cluster.objects.get((NAMESPACES.resource, "", namespace_of(provider)))

    def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and object of each Event."""
        return [
            (each["type"], each["reason"], each["involvedObject"]["name"])
            for (resource, _, _), each in self.cluster.objects.items()
            if resource.plural == "events"
        ]

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    @staticmethod
    def done(answer: Any) -> Object:
        results: list[Any] = []
        answer.addBoth(results.append)
        if not isinstance(results[0], dict):
            results[0].raiseException()
        return results[0]  # type: ignore[no-any-return]


def one(name: str) -> Physical:
    """Return a physical space under the default parent."""
    return Physical(name)


KUBECONFIG = b"""
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
