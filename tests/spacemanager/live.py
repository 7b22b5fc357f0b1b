"""
A whole manager in memory: it manages providers and Spaces on a hub; the test advances the clock.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.kinds import ALL
from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.bounded import NoMetrics
from twisted_exec.spacemanager.interfaces import (
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
)
from twisted_exec.spacemanager.registry import ProviderRegistry
from twisted_exec.spacemanager.spaces.loop import SpaceLoop
from twisted_exec.spacemanager.spaces.observation import ProbeResult, unreachable
from twisted_exec.spacemanager.spaces.probes import Contents, digest_of
from twisted_exec.spacemanager.spaces.verdicts import ANSWERS, VALID
from twisted_exec.spacemanager.views import ProviderEnvironment
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.testing.space_provider import MemorySpaces

from .mortal import Life, MortalClient, mortal, plain
from .support import Hub

REFUSED = ("False", "Refused", "the API server does not take the credentials")


class Manager:
    """
    A manager with its provider registry and Space loop.

    :param life: how many steps the manager takes before it is killed.
    """

    def __init__(self, world: World, life: Life) -> None:
        client: IKubeClient = MortalClient(world.cluster.client(), life)
        around = ProviderContext(client, world.clock, "/nowhere", world.now)
        makers = {type: mortal(make, life) for type, make in world.makers.items()}
        self.life = life
        self.providers = ProviderRegistry(ProviderEnvironment(around, makers, NoMetrics()))
        self.loop = SpaceLoop(
            client,
            self.providers,
            world.clock,
            world.now,
            probe=world.probe,
            rng=random.Random(7),
        )
        self.providers.spaces = self.loop

    def start(self) -> None:
        self.providers.startService()
        self.loop.startService()

    def stop(self) -> None:
        """Stop both services; the end of the test checks for leftovers."""
        self.loop.stopService()
        self.providers.stopService()


class World(Hub):
    """
    A hub, its providers, the results of probes, and any number of managers.

    :ivar silent: physical spaces that do not answer.
    :ivar tokens: valid tokens of API servers that belong to no provider.
    :ivar revoked: tokens that API servers reject.
    :ivar rotates: whether new adaptors can rotate credentials.
    """

    def __init__(self, kinds: Any = ALL) -> None:
        super().__init__()
        self.cluster = MemoryCluster(kinds)
        self.client = self.cluster.client()
        self.around = ProviderContext(self.client, self.clock, "/nowhere", self.now)
        self.silent: set[Physical] = set()
        self.tokens: set[str] = set()
        self.revoked: set[str] = set()
        self.rotates = True
        self.probes = 0
        self.managers: list[Manager] = []

    def manager(self, life: Life | None = None) -> Manager:
        """Create and start a manager."""
        made = Manager(self, life or Life())
        self.managers.append(made)
        made.start()
        return made

    def stop(self) -> None:
        for each in self.managers:
            each.stop()

    async def probe(self, contents: Contents, what: str) -> ProbeResult:
        """Probe as the real function does, using the state of this world."""
        self.probes += 1
        stamp = digest_of(contents)
        for content in contents.values():
            (user,) = json.loads(content)["users"]
            found = self.answer(user["user"]["token"])
            if found == "refused":
                return ProbeResult(stamp, REFUSED, ("Unknown", "NotProbed", ""))
            if found == "lives":
                return ProbeResult(stamp, VALID, ANSWERS, "v1.36.2")
        return unreachable(stamp, "connection refused")

    def answer(self, token: str) -> str:
        """``lives``, ``refused`` or ``silent``."""
        if token in self.revoked:
            return "refused"
        if token in self.tokens:
            return "lives"
        for physical, uid in self.physical():
            if token.startswith(f"token-{uid}-"):
                return "silent" if physical in self.silent else "lives"
        return "silent"

    def physical(self) -> Iterable[tuple[Physical, str]]:
        for world in self.worlds.values():
            for physical, space in world.spaces.items():
                yield physical, space.uid

    # Actions and views of users.

    def settle(self, seconds: float = 10.0) -> None:
        """Let time pass, in steps of 2 s when more than a minute passes."""
        self.pass_time(seconds, 0.25 if seconds <= 60 else 2.0)

    def seen(self, name: str, provider: str = "p") -> Object:
        """Return the stored Space."""
        return self.cluster.objects[spaces.SPACES, spaces.namespace_of(provider), name]

    def names(self, namespace: str = "") -> list[str]:
        """Return the sorted names of all Spaces, or of those in a namespace."""
        return sorted(
            name
            for resource, where, name in self.cluster.objects
            if resource == spaces.SPACES and namespace in ("", where)
        )

    def phase(self, name: str, provider: str = "p") -> str:
        return str((self.seen(name, provider).get("status") or {}).get("Phase", ""))

    def said(self, name: str, type: str, provider: str = "p") -> tuple[str, str]:
        """Status and reason of a condition of a Space."""
        return condition(self.seen(name, provider), type)

    def secrets(self) -> list[str]:
        """Names of all Secrets."""
        return sorted(
            name for resource, _, name in self.cluster.objects if resource == SECRETS.resource
        )

    def kubeconfig(self, name: str, namespace: str = "spaceprovider-p") -> Any:
        """Return the kubeconfig in a Secret, base64-decoded once and parsed."""
        secret = self.cluster.objects[SECRETS.resource, namespace, name]
        return json.loads(value_of(secret, spaces.KUBECONFIG_KEY) or b"")

    def token(self, name: str, namespace: str = "spaceprovider-p") -> str:
        (user,) = self.kubeconfig(name, namespace)["users"]
        return str(user["user"]["token"])

    def delete(self, name: str, provider: str = "p") -> None:
        """Delete a Space as a user does; the object stays until its finalizers are removed."""
        self.done(self.client.delete(spaces.SPACES, name, spaces.namespace_of(provider)))

    def annotate(self, name: str, provider: str = "p", **notes: Any) -> None:
        patch = {"metadata": {"annotations": notes}}
        namespace = spaces.namespace_of(provider)
        self.done(self.client.patch(spaces.SPACES, name, patch, namespace))

    @staticmethod
    def given(token: str) -> bytes:
        """Return a kubeconfig with a token, as a user would write it."""
        context = {"cluster": "c", "user": "u"}
        return json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": context}],
                "current-context": "x",
            }
        ).encode()

    def _make(self, spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
        made = super()._make(spec, around)
        return made if self.rotates else plain(made)

    def lasting(self, world: MemorySpaces, seconds: float) -> None:
        """Let credentials expire this many seconds after they are issued."""
        begun: dict[tuple[str, int], float] = {}
        tell = world.info

        def info(physical: Physical) -> SpaceInfo:
            told, space = tell(physical), world.spaces[physical]
            at = begun.setdefault((space.uid, space.generation), self.now())
            access = {v: replace(a, expires=at + seconds) for v, a in told.access.items()}
            return replace(told, access=access)

        world.info = info  # type: ignore[method-assign]

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of the Events about a Space."""
        return [
            event["reason"]
            for (resource, _, _), event in self.cluster.objects.items()
            if resource.plural == "events" and event["involvedObject"]["name"] == name
        ]

    def spaces_of(self, name: str = "p") -> MemorySpaces:
        return self.world(name)


def condition(space: Object, type: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    for one in (space.get("status") or {}).get("conditions") or ():
        if one["type"] == type:
            return one["status"], one["reason"]
    return "", ""


def message(space: Object, type: str) -> str:
    """The message of a condition."""
    (found,) = (one for one in space["status"]["conditions"] if one["type"] == type)
    return str(found["message"])
