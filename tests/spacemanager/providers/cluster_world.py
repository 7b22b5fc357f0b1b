"""
Worlds whose provider is a cluster's objects: the way there can be cut, stalled and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from tests.contracts.space_world import SpaceWorld
from twisted_exec.api.kinds import NAMESPACES, SECRETS, Kind
from twisted_exec.api.status import APIError, BadGateway, Forbidden, Unauthorized
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.testing.cluster import MemoryCluster

LOOKS = ("get", "list", "watch")


class Way:
    """
    Between adaptors and a cluster.

    :ivar problem: what every request fails with.
    :ivar stalled: no request is answered.
    :ivar nonsense: every request is answered by something that is no API server.
    :ivar lived: how many more requests have an effect; ``None`` for all.
    :ivar looks_count: as what has an effect counts what only looks, too; where time passes that
        makes steps without end.
    :ivar requests: how many there were.
    :ivar valid: the only credentials that are good, by their number.
    """

    def __init__(self) -> None:
        self.problem: APIError | None = None
        self.stalled = self.nonsense = False
        self.lived: int | None = None
        self.died = False
        self.looks_count = True
        self.requests = 0
        self.valid: int | None = 1
        self.waiting: set[Deferred[Any]] = set()

    def pass_on(self, verb: str, number: int, act: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        self.requests += 1
        if self.lived is not None and (self.looks_count or verb not in LOOKS):
            self.lived -= 1
            if self.lived < 0:
                self.died = True
                return self._never()
        if self.stalled:
            return self._never()
        if self.problem is not None:
            return fail(self.problem)
        if number != self.valid:
            return fail(Unauthorized())
        if self.nonsense:
            return self._nonsense(verb)
        return act()

    def _never(self) -> Deferred[Any]:
        never: Deferred[Any] = Deferred(self.waiting.discard)
        self.waiting.add(never)
        return never

    def _nonsense(self, verb: str) -> Deferred[Any]:
        """As :class:`KubeClient` tells it: one object is not looked at, lists are."""
        told: Deferred[Any] = Deferred()
        if verb == "get":
            told.callback({"hello": "world"})
        else:
            told.errback(BadGateway("the API server's answer is not a list of objects"))
        return told


@implementer(IKubeClient)
class WayClient:
    """A client that goes by a :class:`Way`, with the credentials of a number."""

    def __init__(self, client: IKubeClient, way: Way) -> None:
        assert way.valid is not None
        self._client, self._way, self._number = client, way, way.valid

    def __getattr__(self, verb: str) -> Any:
        """Each verb of the door."""
        act = getattr(self._client, verb)
        return lambda *args, **more: self._way.pass_on(
            verb, self._number, lambda: act(*args, **more)
        )


class ClusterWorld(SpaceWorld):
    """A provider whose things are objects of a cluster in memory."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.cluster = MemoryCluster((NAMESPACES, SECRETS, *kinds))
        self.way = Way()
        self.own_watches = 0

    def client(self) -> Any:
        """For one more adaptor."""
        number = self.way.valid
        if number is None:  # revoked: what is made now has what is not good
            self.way.valid = 0
            client = WayClient(self.cluster.client(), self.way)
            self.way.valid = None
            return client
        return WayClient(self.cluster.client(), self.way)

    def put(self, kind: Kind, name: str, obj: Object, namespace: str = "") -> Object:
        """An object as whoever owns the cluster would write it: made, or replaced whole."""
        key = (kind.resource, namespace, name)
        before = self.cluster.objects.get(key)
        new = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **obj}
        given = dict(new.get("metadata") or {})
        kept = before["metadata"] if before else {"uid": f"uid-{name}-{self.cluster.version}"}
        new["metadata"] = {**kept, **given, "name": name}
        if namespace:
            new["metadata"]["namespace"] = namespace
        return self.cluster.put(key, new)

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """One as it is stored."""
        return self.cluster.objects.get((kind.resource, namespace, name))

    def drop(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Take one away, if it is there."""
        if self.find(kind, name, namespace) is not None:
            self.cluster.remove((kind.resource, namespace, name))

    def all(self, kind: Kind) -> Sequence[Object]:
        """All of a kind."""
        return [obj for key, obj in self.cluster.objects.items() if key[0] == kind.resource]

    async def break_down(self) -> None:
        self.way.problem = BadGateway("the API server cannot be reached: start it again")
        self.cluster.end_watches(self.way.problem)

    async def come_back(self) -> None:
        self.way.problem, self.way.stalled, self.way.nonsense = None, False, False

    async def stall(self) -> None:
        self.way.stalled = True

    async def talk_nonsense(self) -> None:
        self.way.nonsense = True

    async def revoke(self) -> None:
        self.way.valid = None

    async def forbid(self) -> None:
        self.way.problem = Forbidden('User "us" cannot do that')

    async def renew(self) -> None:
        self.way.valid = self.way.requests + 2

    def calls(self) -> int:
        return self.way.requests

    def left(self) -> Sequence[str]:
        watches = self.cluster.watches - self.own_watches
        return [*["a watch"] * watches, *["a request"] * len(self.way.waiting)]

    async def die_after(self, steps: int) -> None:
        self.way.lived, self.way.died = steps, False

    def died(self) -> bool:
        return self.way.died

    async def live(self) -> None:
        self.way.lived, self.way.died = None, False


def kubeconfig(server: str, token: str, **user: Any) -> dict[str, Any]:
    """A kubeconfig as KubeFlex, or anybody, writes it, as data."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority-data": CA}}
        ],
        "users": [{"name": "u", "user": {"token": token, **user}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


CA = "LS0tLS1CRUdJTg=="
"""Base64, and no certificate: nothing here connects."""


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A member that may not be there."""
    return value if isinstance(value, dict) else {}
